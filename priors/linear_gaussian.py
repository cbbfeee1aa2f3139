"""Linear regression with Gaussian weights and noise: y = b + x·w + σε (Bishop 2006, section 3.3)."""

import dataclasses

import numpy as np

from priors.draws import Draws
from priors.exact_draft import ExactDraft, numbers_draft, numpy_generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearGaussianConfig:
    """Everything that the tasks are drawn from, and all that the Bayes predictor knows."""

    weight: float = 1.0
    """Standard deviation of x·w: the C weights share its variance; the features are standard normal."""
    offset: float = 0.5
    """Standard deviation of b."""
    noises: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Standard deviations of the noise; a task has one of them, each as likely."""


def sample_linear_gaussian(
    draws: Draws, config: LinearGaussianConfig, *, count: int, rows: int, features: int
) -> ExactDraft:
    """Draws `count` regression tasks; facts hold the noise and its share of the variance."""
    generator = numpy_generator(draws)
    x = generator.standard_normal((count, rows, features)).astype(np.float32)
    weights = generator.standard_normal((count, features, 1)) * config.weight / np.sqrt(features)
    offset = generator.standard_normal((count, 1)) * config.offset
    noise = generator.choice(np.array(config.noises), count)
    error = noise[:, None] * generator.standard_normal((count, rows))
    y = (x.astype(np.float64) @ weights)[..., 0] + offset + error
    facts = {
        "noise": noise,
        "noise_share": np.minimum(error.var(1) / y.var(1), 1.0),
        "relevant": np.full(count, features),
    }
    return numbers_draft(x, y, facts=facts)
