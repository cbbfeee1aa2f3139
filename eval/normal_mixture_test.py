"""Mixtures of normals: density, cdf and quantiles are those of one distribution."""

import statistics

import numpy as np
import pytest

from eval.normal_mixture import NormalMixture
from eval.scores import TAUS


@pytest.fixture
def mixture() -> NormalMixture:
    means, deviations = np.array([[0.0, 3.0], [2.0, -1.0], [2.5, 0.0]]), np.array([[1.0, 0.2], [0.3, 2.0], [0.1, 0.5]])
    return NormalMixture(weights=np.array([0.5, 0.3, 0.2]), means=means, deviations=deviations)


def test_the_density_integrates_to_one_and_to_the_mean(mixture: NormalMixture) -> None:
    grid = np.linspace(-15, 15, 60_001)
    density = np.exp([mixture.log_density(np.full(2, y)) for y in grid])
    assert np.allclose(np.trapezoid(density, grid, axis=0), 1, atol=1e-9)
    assert np.allclose(np.trapezoid(density * grid[:, None], grid, axis=0), mixture.mean(), atol=1e-8)


def test_the_cdf_grows_by_the_density(mixture: NormalMixture) -> None:
    grid = np.tile(np.linspace(-3, 4, 29), (2, 1))
    slope = (mixture.cdf(grid + 1e-5) - mixture.cdf(grid - 1e-5)) / 2e-5
    density = np.exp(np.stack([mixture.log_density(y) for y in grid.T], axis=1))
    assert np.allclose(slope, density, rtol=1e-6, atol=1e-8)


def test_quantiles_invert_the_cdf(mixture: NormalMixture) -> None:
    quantiles = mixture.quantiles(TAUS)
    assert np.allclose(mixture.cdf(quantiles), TAUS, atol=1e-9) and (np.diff(quantiles) > 0).all()


def test_a_single_normal_is_the_standard_librarys() -> None:
    mine = NormalMixture(weights=np.ones(1), means=np.array([[1.5]]), deviations=np.array([[0.4]]))
    yours = statistics.NormalDist(1.5, 0.4)
    assert np.allclose(mine.quantiles(TAUS)[0], [yours.inv_cdf(tau) for tau in TAUS])
    assert np.allclose(mine.cdf(np.array([[1.0, 2.0]]))[0], [yours.cdf(1.0), yours.cdf(2.0)])
    assert mine.log_density(np.array([1.9]))[0] == pytest.approx(np.log(yours.pdf(1.9)))


def test_a_setting_of_weight_zero_takes_no_part(mixture: NormalMixture) -> None:
    more = NormalMixture(
        weights=np.append(mixture.weights, 0.0),
        means=np.vstack([mixture.means, [9.0, 9.0]]),
        deviations=np.vstack([mixture.deviations, [1.0, 1.0]]),
    )
    y = np.array([0.3, 1.0])
    assert np.allclose(more.log_density(y), mixture.log_density(y))
    assert np.allclose(more.quantiles(TAUS), mixture.quantiles(TAUS))
