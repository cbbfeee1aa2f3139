"""Tests of the weights that bring a mixture nearest to real tables."""

import numpy as np
import pytest

from priors.realism_distance import RealParts
from priors.realism_weights import kernel_means, nearest_weights

FEATURES = 5


def families(generator: np.random.Generator) -> tuple[np.ndarray, tuple[str, ...]]:
    """Three families at different places."""
    centres = {"left": -2.0, "right": 2.0, "away": 12.0}
    values = [generator.normal(size=(150, FEATURES)) + np.eye(FEATURES)[0] * at for at in centres.values()]
    return np.concatenate(values), tuple(name for name in centres for _ in range(150))


def real_tables(generator: np.random.Generator, *, left: float) -> RealParts:
    """Tables of which a share comes from where the family "left" is, the others from "right"."""
    at = np.where(np.arange(80) < 80 * left, -2.0, 2.0)
    owners = np.repeat(np.arange(80), 2)
    values = generator.normal(size=(160, FEATURES)) + np.eye(FEATURES)[0] * at[owners, None]
    return RealParts(values=values, owners=owners)


@pytest.mark.parametrize("left", [0.25, 0.7])
def test_the_shares_of_a_true_mixture_are_found(left: float) -> None:
    """2.1: the mixture is set by distance."""
    generator = np.random.default_rng(0)
    values, names = families(generator)
    means = kernel_means(real_tables(generator, left=left), values=values, families=names)
    weights = nearest_weights(means)
    found = dict(zip(means.families, weights, strict=True))
    assert weights.sum() == pytest.approx(1) and weights.min() >= 0
    assert found["left"] == pytest.approx(left, abs=0.08)
    assert found["away"] == pytest.approx(0, abs=0.02)
    assert abs(means.discrepancy(weights)) < 0.02 < means.discrepancy(np.full(3, 1 / 3))


def test_no_weights_on_the_simplex_are_better() -> None:
    generator = np.random.default_rng(1)
    values, names = families(generator)
    means = kernel_means(real_tables(generator, left=0.5), values=values, families=names)
    best = means.discrepancy(nearest_weights(means))
    for other in generator.dirichlet(np.ones(3), size=200):
        assert means.discrepancy(other) >= best - 1e-9
