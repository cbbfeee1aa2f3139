"""Tests of priors.targets: legal classes, legal numbers, and noise that does what it says."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.draws import Draws, standardised
from priors.targets import Labels, TargetConfig, classify, draw_noise, regress

PLAIN = TargetConfig(
    uneven_noise_share=0.0,
    long_tail_share=0.0,
    skewed_share=0.0,
    bounded_share=0.0,
    rounded_share=0.0,
    flip_share=0.0,
    noiseless_share=1.0,
)
RANKS = dataclasses.replace(PLAIN, cluster_share=0.0, binary_cluster_share=0.0, value_share=0.0)
VALUES = dataclasses.replace(RANKS, value_share=1.0)
CLUSTERS = dataclasses.replace(PLAIN, cluster_share=1.0, binary_cluster_share=1.0)


def scores_of(seed: int, *, count: int = 64, rows: int = 128) -> torch.Tensor:
    """[B, 3, R] normal scores."""
    return standardised(Draws(seed).normal((count, 3, rows)))


def cut(
    config: TargetConfig,
    *,
    scores: torch.Tensor,
    fixed: torch.Tensor | None = None,
    noise: float = 0.0,
    seed: int = 0,
    own_noise: torch.Tensor | None = None,
) -> Labels:
    """Labels of scores [B, S, R] under one strength of noise."""
    count, _, rows = scores.shape
    fixed = torch.full((count, rows), -1) if fixed is None else fixed
    noises = torch.full((count,), noise)
    return classify(Draws(seed), config, scores=scores, fixed=fixed, noise=noises, own_noise=own_noise)


def check_classes(labels: Labels) -> None:
    """Ids are 0 … K−1 and every class has two rows at least."""
    assert labels.y.dtype == labels.noise_share.dtype == torch.float32
    for y, k in zip(labels.y.long(), labels.num_classes, strict=True):
        sizes = torch.bincount(y)
        assert len(sizes) == k >= 2 and sizes.min() >= 2


@given(seed=st.integers(0, 10**6), rows=st.sampled_from([16, 40, 129]), levels=st.sampled_from([1, 2, 3, 100]))
@settings(max_examples=40, deadline=None)
def test_classes_are_legal_for_any_scores(seed: int, rows: int, levels: int) -> None:
    raw = Draws(seed).normal((6, 3, rows))
    scores = standardised((raw * levels).round()) if levels < 100 else standardised(raw)
    if levels == 1:
        scores[:3] = 0.0
    labels = cut(TargetConfig(), scores=scores, seed=seed)
    check_classes(labels)
    assert labels.num_classes.max() <= min(10, max(2, rows // 8))
    assert (labels.noise_share >= 0).all() and (labels.noise_share <= 1).all()


def test_rare_classes_are_merged_and_a_single_class_is_split() -> None:
    fixed = torch.zeros((3, 20), dtype=torch.int64)
    fixed[1, :4], fixed[1, 4] = 3, 7
    fixed[2, 0] = 5
    labels = cut(PLAIN, scores=scores_of(0, count=3, rows=20), fixed=fixed)
    check_classes(labels)
    assert labels.num_classes.tolist() == [2, 2, 2]
    y = labels.y.long()
    assert torch.bincount(y[1]).sort().values.tolist() == [4, 16]
    assert torch.bincount(y[0]).tolist() == torch.bincount(y[2]).tolist() == [10, 10]


def test_without_any_score_classes_are_drawn_and_known_to_be_noise() -> None:
    """They do not follow from the order of the rows either."""
    labels = cut(PLAIN, scores=torch.zeros((300, 3, 100)))
    check_classes(labels)
    first = torch.nn.functional.one_hot(labels.y.long()[:, :50], 2).float().mean((0, 1))
    assert labels.noise_share.mean() == pytest.approx(0.5, abs=0.05)
    assert first.tolist() == pytest.approx([0.5, 0.5], abs=0.03)
    assert (labels.y[:, :50].mean(-1) - 0.5).abs().max() < 0.35


def test_fixed_classes_are_kept_up_to_a_permutation_of_ids() -> None:
    fixed = (torch.arange(60) % 5).expand(200, 60)
    labels = cut(PLAIN, scores=scores_of(0, count=200, rows=60), fixed=fixed, noise=1.0)
    assert (labels.num_classes == 5).all() and (labels.noise_share == 0).all()
    assert torch.equal(labels.y, labels.y[:, :5].repeat(1, 12))
    first = torch.bincount(labels.y[:, 0].long(), minlength=5)
    assert first.min() > 20  # every id is used for the first class


def test_no_task_has_more_classes_than_the_configuration_allows() -> None:
    config = dataclasses.replace(PLAIN, max_classes=3)
    for fixed in (torch.full((50, 80), -1), (torch.arange(80) % 7).expand(50, 80)):
        labels = cut(config, scores=scores_of(0, count=50, rows=80), fixed=fixed)
        assert labels.num_classes.max() == 3
    many = cut(dataclasses.replace(TargetConfig(), max_classes=40), scores=scores_of(0, count=200, rows=600))
    assert many.num_classes.max() > 30


def test_class_ids_say_nothing_about_the_order_of_the_score() -> None:
    scores = scores_of(1, count=400)
    labels = cut(PLAIN, scores=scores, seed=1)
    relation = (scores[:, 0] * standardised(labels.y)).mean(-1)
    assert relation.mean().abs() < 0.1 and (relation.abs() > 0.5).float().mean() > 0.4


def test_numbers_of_classes_vary() -> None:
    number = cut(TargetConfig(), scores=scores_of(2, count=400)).num_classes
    assert 0.5 < (number == 2).float().mean() < 0.75 and number.max() >= 9


def test_flipped_labels_are_a_bounded_share_and_counted() -> None:
    fixed = (torch.arange(300) % 2).expand(300, 300)
    config = dataclasses.replace(PLAIN, flip_share=1.0, max_flip=0.2)
    labels = cut(config, scores=scores_of(0, count=300, rows=300), fixed=fixed)
    agreement = (labels.y == fixed).float().mean(-1)
    wrong = torch.minimum(agreement, 1 - agreement)
    assert wrong.max() < 0.18 and 0.03 < wrong.mean() < 0.07
    assert torch.allclose(labels.noise_share, wrong, atol=1e-6)


@pytest.mark.parametrize("config", [RANKS, VALUES, CLUSTERS], ids=["ranks", "values", "clusters"])
def test_the_noise_of_labels_is_what_differs_from_the_noise_free_ones(config: TargetConfig) -> None:
    """Equal draws with and without noise differ in about as many rows as is noted; borders move little, centres do."""
    config = dataclasses.replace(config, binary_share=1.0, balanced_share=1.0)
    scores = scores_of(7, count=200, rows=400)
    clean = cut(config, scores=scores)
    assert (clean.noise_share == 0).all()
    noted = []
    for strength in (0.1, 0.5, 1.3):
        noisy = cut(config, scores=scores, noise=strength)
        same = (clean.y == noisy.y).float().mean(-1)
        found = torch.minimum(same, 1 - same)
        assert (found - noisy.noise_share).abs().median() < 0.04 or (config.cluster_share == 1.0 and strength > 0.1)
        noted.append(float(noisy.noise_share.mean()))
    assert 0.005 < noted[0] < 0.06 and 2 * noted[0] < noted[1] < noted[2] - 0.05 and noted[2] > 0.2
    if config.value_share == 0 and config.cluster_share == 0:  # at the median of a normal: arctan(noise) / π
        assert noted == pytest.approx([math.atan(s) / math.pi for s in (0.1, 0.5, 1.3)], abs=0.01)


def test_noise_that_a_family_added_itself_counts_too() -> None:
    """A score of which a share is noise disagrees at the median with its other part in arccos(√(1 − share)) / π."""
    config = dataclasses.replace(RANKS, binary_share=1.0, balanced_share=1.0)
    share = torch.tensor([0.0, 0.1, 0.4]).repeat_interleave(100)
    labels = cut(config, scores=scores_of(7, count=300, rows=400), own_noise=share)
    noted = labels.noise_share.view(3, 100).mean(-1).tolist()
    assert noted == pytest.approx([math.acos(math.sqrt(1 - s)) / math.pi for s in (0.0, 0.1, 0.4)], abs=0.01)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.5])
def test_noise_explains_as_much_variance_as_it_says(level: float) -> None:
    scores = scores_of(3, count=100, rows=400)
    labels = regress(Draws(3), PLAIN, scores=scores, noise=torch.full((100,), level))
    explained = (standardised(labels.y) * scores[:, 0]).mean(-1).square()
    assert explained.mean() == pytest.approx(1 / (1 + level**2), abs=0.02)
    assert torch.allclose(labels.noise_share, 1 - explained, atol=1e-3)
    half = regress(Draws(3), PLAIN, scores=scores, noise=torch.full((100,), level), own_noise=torch.full((100,), 0.5))
    assert torch.allclose(1 - half.noise_share, 0.5 * (1 - labels.noise_share), atol=1e-6)
    assert (labels.num_classes == 0).all()


def test_noise_is_absent_mild_or_strong() -> None:
    noise = draw_noise(Draws(0), TargetConfig(), count=4000)
    assert (noise == 0).float().mean() == pytest.approx(0.15, abs=0.03)
    assert (noise > 0.5).float().mean() == pytest.approx(0.3, abs=0.03)
    assert noise[noise > 0].min() >= 0.029 and noise.max() <= 1.31


def test_uneven_noise_grows_with_the_last_score() -> None:
    scores = scores_of(4, count=200, rows=400)
    config = dataclasses.replace(PLAIN, uneven_noise_share=1.0)
    y = standardised(regress(Draws(4), config, scores=scores, noise=torch.full((200,), 0.5)).y)
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
    labels = regress(Draws(seed), TargetConfig(), scores=scores, noise=torch.zeros(8))
    y = labels.y
    assert y.isfinite().all() and labels.noise_share[0] == 1
    assert labels.noise_share.min() >= 0 and labels.noise_share[1:].max() < 0.01
    assert ((y.amax(-1) - y.amin(-1)) > 0).all()


def test_units_and_shapes_of_regression_targets_vary() -> None:
    y = regress(Draws(5), TargetConfig(), scores=scores_of(5, count=400), noise=torch.zeros(400)).y
    assert y.std(-1).log10().std() > 1
    skew = (standardised(y) ** 3).mean(-1)
    distinct = torch.tensor([len(values.unique()) for values in y]) / 128
    assert 0.05 < (skew > 1).float().mean() < 0.3 and 0.2 < (distinct < 0.8).float().mean() < 0.6


def test_bounded_targets_pile_up_at_one_end() -> None:
    scores = scores_of(5, count=200)
    y = regress(Draws(5), dataclasses.replace(PLAIN, bounded_share=1.0), scores=scores, noise=torch.zeros(200)).y
    low = (y == y.amin(-1, keepdim=True)).float().mean(-1)
    high = (y == y.amax(-1, keepdim=True)).float().mean(-1)
    assert torch.minimum(low, high).max() < 0.02
    assert torch.maximum(low, high).median() > 0.2 and 0.5 < (low > high).float().mean() < 0.9


def test_noise_has_long_tails_where_asked_for() -> None:
    kurtosis = []
    for share in (0.0, 1.0):
        config = dataclasses.replace(PLAIN, long_tail_share=share)
        scores = scores_of(6, count=100, rows=1000)
        rest = standardised(regress(Draws(6), config, scores=scores, noise=torch.full((100,), 30.0)).y)
        kurtosis.append(float((rest**4).mean(-1).median()))
    assert kurtosis[0] < 3.3 and kurtosis[1] > 5
