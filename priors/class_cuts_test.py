"""Tests of priors.class_cuts: classes by rank, by value and by centre, from balanced to one in fifty."""

import dataclasses

import pytest
import torch

from priors.class_cuts import cut_nearest
from priors.draws import Draws, standardised
from priors.targets import Labels, TargetConfig, classify

PLAIN = TargetConfig(flip_share=0.0)
RANKS = dataclasses.replace(PLAIN, cluster_share=0.0, binary_cluster_share=0.0, value_share=0.0)
VALUES = dataclasses.replace(RANKS, value_share=1.0)
CLUSTERS = dataclasses.replace(PLAIN, cluster_share=1.0, binary_cluster_share=1.0)


def scores_of(seed: int, *, count: int, rows: int = 128) -> torch.Tensor:
    """[B, 3, R] normal scores."""
    return standardised(Draws(seed).normal((count, 3, rows)))


def cut(config: TargetConfig, *, scores: torch.Tensor) -> Labels:
    """Labels of scores [B, S, R] without noise."""
    count, _, rows = scores.shape
    return classify(Draws(0), config, scores=scores, fixed=torch.full((count, rows), -1), noise=torch.zeros(count))


@pytest.mark.parametrize("config", [RANKS, VALUES], ids=["ranks", "values"])
def test_cut_classes_are_intervals_of_the_main_score(config: TargetConfig) -> None:
    scores = scores_of(1, count=200)
    labels = cut(config, scores=scores)
    along = labels.y.gather(1, scores[:, 0].argsort(-1))
    intervals = (along.diff(dim=-1) != 0).sum(-1) + 1
    assert (intervals == labels.num_classes).float().mean() > 0.97  # the others have classes that were merged


def test_ranks_do_not_feel_the_shape_of_the_score_and_values_do() -> None:
    """Balanced classes stay balanced at ranks; between equally spaced values of a skewed score one class is large."""
    balanced = {"balanced_share": 1.0, "binary_share": 1.0}
    scores = standardised(scores_of(1, count=300).exp())
    shares = {}
    for name, config in (("ranks", RANKS), ("values", VALUES)):
        labels = cut(dataclasses.replace(config, **balanced), scores=scores)
        high = scores[:, 0].argmax(-1, keepdim=True)
        shares[name] = (labels.y == labels.y.gather(1, high)).float().mean(-1)
    assert (shares["ranks"] - 0.5).abs().max() < 0.02
    assert (shares["values"] < 0.35).float().mean() > 0.7
    border = [float(s[y == y[s.argmax()]].min()) for s, y in zip(scores[:, 0], labels.y, strict=True)]
    spread = scores[:, 0].sort(-1).values
    middle = torch.stack([(spread[:, t] + spread[:, 127 - t]) / 2 for t in range(20)])
    nearest = (torch.tensor(border) - middle).abs().amin(0)
    assert nearest.median() < 0.05


def test_clusters_are_the_cells_of_centres_in_the_space_of_scores() -> None:
    """Classes are convex: the row nearest to the middle of two rows of a class mostly has it too. Mostly they are no
    intervals of the main score."""
    scores = scores_of(1, count=100, rows=300)
    labels = cut(dataclasses.replace(CLUSTERS, binary_share=0.0), scores=scores)
    along = labels.y.gather(1, scores[:, 0].argsort(-1))
    assert ((along.diff(dim=-1) != 0).sum(-1) + 1 > labels.num_classes).float().mean() > 0.65
    agreement = []
    for points, y in zip(scores.transpose(1, 2), labels.y, strict=True):
        middle = (points[:150] + points[150:])[y[:150] == y[150:]] / 2
        nearest = torch.cdist(middle, points).argmin(-1)
        agreement.append(float((y[nearest] == y[:150][y[:150] == y[150:]]).float().mean()))
    assert sum(agreement) / 100 > 0.85


def test_classes_are_from_balanced_to_one_in_fifty() -> None:
    labels = cut(dataclasses.replace(RANKS, binary_share=1.0), scores=scores_of(2, count=600, rows=512))
    sizes = torch.nn.functional.one_hot(labels.y.long(), 2).sum(1)
    ratio = sizes.amax(-1) / sizes.amin(-1)
    assert (ratio < 1.02).float().mean() == pytest.approx(0.25, abs=0.06)
    assert 40 < ratio.max() <= 52 and (ratio > 10).float().mean() > 0.2
    few = cut(dataclasses.replace(RANKS, binary_share=1.0), scores=scores_of(2, count=600, rows=32))
    assert torch.nn.functional.one_hot(few.y.long(), 2).sum(1).amin() >= 2  # as the rows allow it


def test_the_nearest_centre_wins_by_distance() -> None:
    """The same draws, with distances written out: centres are rows, in scores that are stretched by importance."""
    noisy = scores_of(1, count=30, rows=50)
    labels = cut_nearest(Draws(3), noisy, quiet=noisy * 0.5, weights=torch.ones((30, 4)))
    draws = Draws(3)
    importance = draws.normal((30, 3, 1)).mul(0.7).exp()
    importance[:, 1:] *= draws.happens((30, 1, 1), share=0.8)
    chosen = draws.integers((30, 1, 4), low=0, high=49).expand(-1, 3, -1)
    centres = (noisy.gather(2, chosen) * importance).transpose(1, 2)
    for points, found in ((noisy, labels[:, :50]), (noisy * 0.5, labels[:, 50:])):
        nearest = torch.cdist((points * importance).transpose(1, 2), centres).argmin(-1)
        assert (nearest == found).float().mean() > 0.99
