"""Gaussian-process tasks: their targets have the covariance that the configuration states."""

import numpy as np

from priors.draws import Draws
from priors.gaussian_process import GaussianProcessConfig, sample_gaussian_process, squared_exponential


def test_two_rows_covary_by_the_kernel_and_one_row_has_the_noise_on_top() -> None:
    config = GaussianProcessConfig(amplitude=1.3, length_scales=(0.8,), noises=(0.4,))
    draft = sample_gaussian_process(Draws(0), config, count=60_000, rows=2, features=2)
    square = ((draft.x[:, 0] - draft.x[:, 1]) ** 2).sum(1)
    kernel = 1.3**2 * np.exp(-square / (2 * 2 * 0.8**2))
    product = (draft.y[:, 0] * draft.y[:, 1]).astype(np.float64)
    for near in (kernel < 0.2, (kernel > 0.5) & (kernel < 1), kernel > 1.2):
        assert abs(product[near].mean() - kernel[near].mean()) < 5 * product[near].std() / np.sqrt(near.sum())
    assert abs(draft.y.var() - (1.3**2 + 0.4**2)) < 0.05


def test_the_kernel_is_one_on_the_diagonal_and_counts_distance_per_column() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    kernel = squared_exponential(x, x, length_scale=0.7)
    by_hand = [[np.exp(-((a - b) ** 2).sum() / (2 * 4 * 0.49)) for b in x] for a in x]
    assert np.allclose(kernel, by_hand) and np.allclose(np.diag(kernel), 1)
