"""Smooth functions from a Gaussian process with a squared-exponential kernel, and noise.

Rasmussen & Williams 2006, section 2.2.
"""

import dataclasses

import numpy as np

from priors.draws import Draws
from priors.exact_draft import ExactDraft, normal_draws, numbers_draft, numpy_generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianProcessConfig:
    """Everything that the tasks are drawn from, and all that the Bayes predictor knows."""

    amplitude: float = 1.0
    """Standard deviation of the function."""
    length_scales: tuple[float, ...] = (0.3, 0.7, 1.5)
    """Length scales as multiples of √C; a task has one of them, each as likely. The features are standard normal."""
    noises: tuple[float, ...] = (0.1, 0.5)
    """Standard deviations of the noise; a task has one of them, each as likely."""


def squared_exponential(left: np.ndarray, right: np.ndarray, *, length_scale: float | np.ndarray) -> np.ndarray:
    """exp(−‖a − b‖² / (2·C·ℓ²)) [..., N, M] for left [..., N, C], right [..., M, C] and ℓ in units of √C."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    square = (a**2).sum(-1)[..., :, None] + (b**2).sum(-1)[..., None, :] - 2 * (a @ np.swapaxes(b, -1, -2))
    return np.exp(-np.maximum(square, 0.0) / (2 * a.shape[-1] * np.asarray(length_scale) ** 2))


def sample_gaussian_process(
    draws: Draws, config: GaussianProcessConfig, *, count: int, rows: int, features: int
) -> ExactDraft:
    """Draws `count` regression tasks; facts hold length scale, noise and its share of the variance."""
    generator = numpy_generator(draws)
    x = generator.standard_normal((count, rows, features)).astype(np.float32)
    length_scale = generator.choice(np.array(config.length_scales), count)
    noise = generator.choice(np.array(config.noises), count)
    kernel = squared_exponential(x, x, length_scale=length_scale[:, None, None])
    covariance = config.amplitude**2 * kernel + noise[:, None, None] ** 2 * np.eye(rows)
    y = normal_draws(draws, covariance)
    facts = {
        "length_scale": length_scale,
        "noise": noise,
        "noise_share": np.minimum(noise**2 / y.var(1), 1.0),
        "relevant": np.full(count, features),
    }
    return numbers_draft(x, y, facts=facts)
