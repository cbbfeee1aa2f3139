"""A mixture of normal distributions per query row: what a Gaussian posterior over a small grid of settings predicts.

Shapes: G settings, M query rows, S levels. Numpy in and out; the normal distribution's functions are torch's, in fp64.
"""

import dataclasses
import math

import numpy as np
import torch

_BISECTIONS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalMixture:
    """p(y) = Σ_g weight_g · N(y; mean_g, deviation_g²) for each query row.

    Args:
        weights: [G], sum 1.
        means: [G, M].
        deviations: [G, M], above 0.
    """

    weights: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y) [M] in nats per unit of y [M]."""
        z = (y - self.means) / self.deviations
        single = -0.5 * z**2 - np.log(self.deviations) - 0.5 * math.log(2 * math.pi)
        with np.errstate(divide="ignore"):  # a setting of weight 0 takes no part
            return np.logaddexp.reduce(np.log(self.weights)[:, None] + single, axis=0)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(Y ≤ y) [M, S] at points y [M, S]."""
        z = (y - self.means[..., None]) / self.deviations[..., None]
        return np.tensordot(self.weights, torch.special.ndtr(torch.from_numpy(z)).numpy(), axes=1)

    def mean(self) -> np.ndarray:
        """E[Y] [M]."""
        return self.weights @ self.means

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """y [M, S] with P(Y ≤ y) = level for levels [S] in (0, 1): bisection between the settings' own quantiles."""
        z = torch.special.ndtri(torch.from_numpy(np.asarray(levels, np.float64))).numpy()
        single = self.means[..., None] + self.deviations[..., None] * z
        low, high = single.min(axis=0), single.max(axis=0)
        for _ in range(_BISECTIONS if len(self.weights) > 1 else 0):
            middle = (low + high) / 2
            is_low = self.cdf(middle) < levels
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return (low + high) / 2
