"""Tests of priors.levels: how many levels columns have, how often each occurs, and what a level is worth."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.draws import Draws
from priors.levels import LevelConfig, as_codes, draw_levels

ZIPF = LevelConfig(zipf_share=1.0)


def codes_of(
    levels: int, *, config: LevelConfig = LevelConfig(), ordered: bool = False, rows: int = 4000, count: int = 40
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Raw quantities, codes and signals of columns with one number of levels, all [n, R]."""
    raw = Draws(1).normal((count, rows))
    shape = {"levels": torch.full((count,), levels), "ordered": torch.full((count,), ordered)}
    return raw, *as_codes(Draws(2), raw, config=config, **shape)


def frequencies(codes: torch.Tensor, *, levels: int) -> torch.Tensor:
    """[n, L] share of the rows of each level, the commonest first."""
    return torch.nn.functional.one_hot(codes.long(), levels).float().mean(1).sort(-1, descending=True).values


@given(seed=st.integers(0, 10**6), rows=st.sampled_from([16, 33, 256, 1024]))
@settings(max_examples=20, deadline=None)
def test_levels_stay_within_what_rows_and_configuration_allow(seed: int, rows: int) -> None:
    coded = Draws(seed).happens((20, 7), share=0.7)
    wide = Draws(seed + 1).happens((20, 7), share=0.3)
    levels = draw_levels(Draws(seed), LevelConfig(), coded=coded, wide=wide & coded, rows=rows)
    assert (levels[~coded] == 0).all() and (levels[coded] >= 2).all()
    assert levels.max() <= max(2, min(256, rows // 2))
    assert (levels[coded & ~wide] <= 20).all()
    assert (levels[coded & wide] >= min(30, rows // 2)).all()


def test_wide_columns_have_from_thirty_to_256_levels() -> None:
    everywhere = torch.ones((200, 5), dtype=torch.bool)
    levels = draw_levels(Draws(0), LevelConfig(), coded=everywhere, wide=everywhere, rows=1000)
    assert levels.min() < 34 and levels.max() > 240 and 70 < levels.float().median() < 110


@pytest.mark.parametrize("levels", [2, 3, 20, 60, 256])
def test_codes_are_whole_numbers_below_their_level_count(levels: int) -> None:
    _, codes, _ = codes_of(levels)
    assert torch.equal(codes, codes.floor()) and codes.min() >= 0 and codes.max() < levels
    used = (frequencies(codes, levels=levels) > 0).float().mean()
    assert used > 0.75


@pytest.mark.parametrize("levels", [10, 100])
def test_frequencies_follow_zipfs_law_with_many_exponents(levels: int) -> None:
    """log frequency falls linearly with log rank; the slopes are the exponents 0 … 1.6."""
    _, codes, _ = codes_of(levels, config=ZIPF, rows=20_000)
    top = frequencies(codes, levels=levels)[:, :10].log()
    rank = torch.arange(1, 11).float().log()
    rank = rank - rank.mean()
    slope = (top * rank).sum(-1) / rank.square().sum()
    rest = top - top.mean(-1, keepdim=True) - slope.unsqueeze(-1) * rank
    assert slope.min() < -1.2 and slope.max() > -0.4
    assert rest.square().mean(-1).sqrt().median() < 0.12


def test_other_frequencies_are_log_normal() -> None:
    _, codes, _ = codes_of(10, config=LevelConfig(zipf_share=0.0), rows=20_000)
    spread = frequencies(codes, levels=10).clamp(min=1e-5).log().std(-1)
    assert spread.min() < 0.2 and spread.max() > 1.0


def test_the_number_of_a_category_says_nothing_about_its_frequency_or_its_place() -> None:
    raw, codes, signal = codes_of(12, config=ZIPF, count=4000, rows=200)
    first = (codes == 0).float()
    assert first.mean() == pytest.approx(1 / 12, abs=0.015)
    assert (raw * first).sum() / first.sum() == pytest.approx(0.0, abs=0.1)
    assert (signal * first).sum() / first.sum() == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("levels", [2, 5, 20, 256])
def test_ordinals_keep_the_order_of_the_quantity(levels: int) -> None:
    raw, codes, _ = codes_of(levels, ordered=True)
    reach = raw.clamp(-4, 4).argsort(-1)
    steps = codes.gather(-1, reach).diff(dim=-1)
    assert (steps >= 0).float().mean() > 0.97  # cells of the grid are not told apart
    assert (codes.amax(-1) > codes.amin(-1)).all()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("levels", [3, 128])
def test_a_level_has_one_signal_and_levels_differ(levels: int, ordered: bool) -> None:
    _, codes, signal = codes_of(levels, ordered=ordered)
    assert torch.allclose(signal.mean(-1), torch.zeros(40), atol=1e-4)
    for column, score in zip(codes.long(), signal, strict=True):
        low = torch.full((levels,), 9.0).scatter_reduce(0, column, score, "amin", include_self=False)
        high = torch.full((levels,), 9.0).scatter_reduce(0, column, score, "amax", include_self=False)
        assert torch.equal(low, high)
        assert len(low.unique()) == len(column.unique()) + (len(column.unique()) < levels)


def test_frequencies_can_be_switched_off() -> None:
    even = dataclasses.replace(ZIPF, max_exponent=0.0)
    _, codes, _ = codes_of(8, config=even)
    assert frequencies(codes, levels=8).min() > 0.06
