"""Tests of priors.targets: legal classes, legal numbers, and noise that does what it says."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.draws import Draws, standardised
from priors.targets import TargetConfig, classify, draw_noise, regress

PLAIN = TargetConfig(
    uneven_noise_share=0.0,
    long_tail_share=0.0,
    skewed_share=0.0,
    rounded_share=0.0,
    flip_share=0.0,
    noiseless_share=1.0,
)


def scores_of(seed: int, *, count: int = 64, rows: int = 128) -> torch.Tensor:
    """[B, 3, R] normal scores."""
    return standardised(Draws(seed).normal((count, 3, rows)))


def check_classes(y: torch.Tensor, number: torch.Tensor) -> None:
    """Ids are 0 … K−1 and every class has two rows at least."""
    for labels, k in zip(y, number, strict=True):
        sizes = torch.bincount(labels)
        assert len(sizes) == k >= 2 and sizes.min() >= 2


@given(seed=st.integers(0, 10**6), rows=st.sampled_from([16, 40, 129]), levels=st.sampled_from([1, 2, 3, 100]))
@settings(max_examples=40, deadline=None)
def test_classes_are_legal_for_any_scores(seed: int, rows: int, levels: int) -> None:
    raw = Draws(seed).normal((6, 3, rows))
    scores = standardised((raw * levels).round()) if levels < 100 else standardised(raw)
    if levels == 1:
        scores[:3] = 0.0
    y, number = classify(
        Draws(seed), TargetConfig(), scores=scores, fixed=torch.full((6, rows), -1), noise=torch.zeros(6)
    )
    check_classes(y, number)
    assert number.max() <= min(10, max(2, rows // 8))


def test_rare_classes_are_merged_and_a_single_class_is_split() -> None:
    fixed = torch.zeros((3, 20), dtype=torch.int64)
    fixed[1, :4], fixed[1, 4] = 3, 7
    fixed[2, 0] = 5
    y, number = classify(Draws(0), PLAIN, scores=scores_of(0, count=3, rows=20), fixed=fixed, noise=torch.zeros(3))
    check_classes(y, number)
    assert number.tolist() == [2, 2, 2]
    assert torch.bincount(y[1]).sort().values.tolist() == [4, 16]
    assert torch.bincount(y[0]).tolist() == torch.bincount(y[2]).tolist() == [10, 10]


def test_fixed_classes_are_kept_up_to_a_permutation_of_ids() -> None:
    fixed = (torch.arange(60) % 5).expand(200, 60)
    y, number = classify(Draws(0), PLAIN, scores=scores_of(0, count=200, rows=60), fixed=fixed, noise=torch.zeros(200))
    assert (number == 5).all()
    assert torch.equal(y, y[:, :5].repeat(1, 12))
    first = torch.bincount(y[:, 0], minlength=5)
    assert first.min() > 20  # every id is used for the first class


def test_no_task_has_more_classes_than_the_configuration_allows() -> None:
    config = dataclasses.replace(PLAIN, max_classes=3)
    for fixed in (torch.full((50, 80), -1), (torch.arange(80) % 7).expand(50, 80)):
        _, number = classify(
            Draws(0), config, scores=scores_of(0, count=50, rows=80), fixed=fixed, noise=torch.zeros(50)
        )
        assert number.max() == 3


def test_class_ids_say_nothing_about_the_order_of_the_score() -> None:
    scores = scores_of(1, count=400)
    y, _ = classify(Draws(1), PLAIN, scores=scores, fixed=torch.full((400, 128), -1), noise=torch.zeros(400))
    relation = (scores[:, 0] * standardised(y.float())).mean(-1)
    assert relation.mean().abs() < 0.1 and (relation.abs() > 0.5).float().mean() > 0.4


def test_sizes_of_classes_and_numbers_of_classes_vary() -> None:
    y, number = classify(
        Draws(2),
        TargetConfig(),
        scores=scores_of(2, count=400),
        fixed=torch.full((400, 128), -1),
        noise=torch.zeros(400),
    )
    largest = torch.nn.functional.one_hot(y, 10).sum(1).amax(-1)[number == 2] / 128
    assert 0.5 < (number == 2).float().mean() < 0.75 and number.max() >= 9
    assert (largest < 0.56).float().mean() > 0.15 and (largest > 0.75).float().mean() > 0.08


def test_flipped_labels_are_a_bounded_share() -> None:
    fixed = (torch.arange(300) % 2).expand(300, 300)
    config = dataclasses.replace(PLAIN, flip_share=1.0, max_flip=0.2)
    y, _ = classify(Draws(0), config, scores=scores_of(0, count=300, rows=300), fixed=fixed, noise=torch.zeros(300))
    agreement = (y == fixed).float().mean(-1)
    wrong = torch.minimum(agreement, 1 - agreement)
    assert wrong.max() < 0.18 and 0.03 < wrong.mean() < 0.07


@pytest.mark.parametrize("level", [0.0, 0.5, 1.5])
def test_noise_explains_as_much_variance_as_it_says(level: float) -> None:
    scores = scores_of(3, count=100, rows=400)
    y = regress(Draws(3), PLAIN, scores=scores, noise=torch.full((100,), level))
    explained = (standardised(y) * scores[:, 0]).mean(-1).square()
    assert explained.mean() == pytest.approx(1 / (1 + level**2), abs=0.02)


def test_noise_is_absent_mild_or_strong() -> None:
    noise = draw_noise(Draws(0), TargetConfig(), count=4000)
    assert (noise == 0).float().mean() == pytest.approx(0.25, abs=0.03)
    assert (noise > 0.5).float().mean() == pytest.approx(0.2, abs=0.03)
    assert noise[noise > 0].min() >= 0.029 and noise.max() <= 1.31


def test_uneven_noise_grows_with_the_last_score() -> None:
    scores = scores_of(4, count=200, rows=400)
    config = dataclasses.replace(PLAIN, uneven_noise_share=1.0)
    y = standardised(regress(Draws(4), config, scores=scores, noise=torch.full((200,), 0.5)))
    slope = (y * scores[:, 0]).mean(-1, keepdim=True)
    rest = (y - slope * scores[:, 0]).abs()
    loud, calm = scores[:, 2] > 0.8, scores[:, 2] < -0.8
    ratio = (rest * loud).sum(-1) / loud.sum(-1) / ((rest * calm).sum(-1) / calm.sum(-1))
    assert ratio.median() > 1.8


@given(seed=st.integers(0, 10**6), rows=st.sampled_from([16, 65]))
@settings(max_examples=30, deadline=None)
def test_regression_targets_are_finite_and_never_constant(seed: int, rows: int) -> None:
    scores = scores_of(seed, count=8, rows=rows)
    scores[0] = 0.0
    y = regress(Draws(seed), TargetConfig(), scores=scores, noise=draw_noise(Draws(seed), TargetConfig(), count=8) * 0)
    assert y.isfinite().all()
    assert ((y.amax(-1) - y.amin(-1)) > 0).all()


def test_units_and_shapes_of_regression_targets_vary() -> None:
    y = regress(Draws(5), TargetConfig(), scores=scores_of(5, count=400), noise=torch.zeros(400))
    assert y.std(-1).log10().std() > 1
    skew = (standardised(y) ** 3).mean(-1)
    distinct = torch.tensor([len(values.unique()) for values in y]) / 128
    assert 0.05 < (skew > 1).float().mean() < 0.3 and 0.2 < (distinct < 0.8).float().mean() < 0.6
