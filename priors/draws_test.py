"""Tests of priors.draws: the random source and the moves of flat columns."""

import numpy as np
import pytest
import torch

from priors.draws import Draws, apply_by_code, below, standardised


def test_equal_seeds_draw_equal_tensors_and_leave_the_global_source_alone() -> None:
    before = torch.get_rng_state()
    for name, extra in (
        ("uniform", {}),
        ("normal", {}),
        ("integers", {"low": 0, "high": 9}),
        ("happens", {"share": 0.5}),
    ):
        first, second, other = (getattr(Draws(seed), name)((50,), **extra) for seed in (1, 1, 2))
        assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_stay_in_their_ranges_and_reach_the_ends() -> None:
    draws = Draws(0)
    assert set(draws.integers((500,), low=2, high=4).tolist()) == {2, 3, 4}
    values = draws.log_uniform((4000,), low=0.01, high=100)
    assert values.min() >= 0.0099 and values.max() <= 101 and values.median().log().abs() < 0.3
    assert draws.happens((4000,), share=0.2).float().mean() == pytest.approx(0.2, abs=0.03)


def test_choices_follow_their_weights() -> None:
    picked = Draws(0).choice((8000,), weights=(1, 0, 3))
    shares = np.bincount(picked.numpy(), minlength=3) / 8000
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.02)


def test_picks_are_distinct_and_prefer_high_scores() -> None:
    scores = torch.tensor([0.0, 0.0, 3.0, -1e9]).expand(4000, 4)
    picked = Draws(0).pick(scores, count=3)
    assert (picked.sort(-1).values == torch.tensor([0, 1, 2])).all()
    assert (picked[:, 0] == 2).float().mean() > 0.8


def test_counts_respect_every_bound_and_favour_small_numbers() -> None:
    high = torch.tensor([1, 2, 10, 40]).repeat(1000)
    counts = Draws(0).counts((4000,), low=1, high=high)
    assert (counts >= 1).all() and (counts <= high).all()
    for bound in (2, 10, 40):
        drawn = counts[high == bound]
        assert set((1, bound)) <= set(drawn.tolist())
        assert (drawn <= (bound + 1) ** 0.5).float().mean() > 0.4


def test_standardising_gives_unit_variance_and_takes_constants() -> None:
    values = torch.stack([torch.arange(8.0) * 100 + 7, torch.full((8,), 3.0)])
    out = standardised(values)
    assert out.mean(-1).abs().max() < 1e-6 and out[0].square().mean() == pytest.approx(1)
    assert (out[1] == 0).all()


def test_below_marks_the_first_positions() -> None:
    assert below(torch.tensor([0, 2, 3]), size=3).tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_functions_are_applied_to_the_columns_with_their_code() -> None:
    values = torch.arange(8.0).view(4, 2)
    out = apply_by_code(values, torch.tensor([1, 0, 1, 2]), functions=(torch.neg, lambda z: z + 10, torch.square))
    assert out.tolist() == [[10, 11], [-2, -3], [14, 15], [36, 49]]
