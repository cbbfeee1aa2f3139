"""What exact families draw with: Dirichlets, classes, and normals of a given covariance."""

import numpy as np

from priors.draws import Draws
from priors.exact_draft import dirichlet, drawn_classes, normal_draws, numpy_generator


def test_normal_draws_have_their_covariance() -> None:
    covariance = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
    drawn = normal_draws(Draws(1), np.tile(covariance, (40_000, 1, 1)))
    assert np.abs(np.cov(drawn.T) - covariance).max() < 0.05 and np.abs(drawn.mean(0)).max() < 0.03


def test_a_dirichlet_covers_the_real_classes_alone_with_its_moments() -> None:
    real = np.broadcast_to(np.array([True, True, True, False]), (40_000, 4))
    shares = dirichlet(np.random.default_rng(0), concentration=np.array(0.5), real=real)
    assert np.allclose(shares.sum(1), 1) and (shares[:, 3] == 0).all()
    variance = (1 / 3) * (2 / 3) / (3 * 0.5 + 1)
    assert np.abs(shares[:, :3].mean(0) - 1 / 3).max() < 0.01 and np.abs(shares[:, :3].var(0) - variance).max() < 0.004


def test_classes_are_drawn_in_proportion_and_never_where_the_share_is_zero() -> None:
    shares = np.array([0.5, 0.0, 0.2, 0.3, 0.0])
    drawn = drawn_classes(np.random.default_rng(0), np.tile(shares, (50_000, 1)))
    assert np.abs(np.bincount(drawn, minlength=5) / 50_000 - shares).max() < 0.01
    assert set(drawn.tolist()) == {0, 2, 3}


def test_the_numpy_generator_follows_from_the_draws() -> None:
    first, again, draws = numpy_generator(Draws(7)), numpy_generator(Draws(7)), Draws(7)
    numpy_generator(draws)
    values = first.uniform(size=4)
    assert np.array_equal(values, again.uniform(size=4))
    assert not np.array_equal(values, numpy_generator(draws).uniform(size=4))
