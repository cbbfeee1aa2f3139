"""Regression tasks of one feature whose noise is known, so that the true conditional mean and quantiles are (seed 6.C).

y = f(x) + σ(x)·e, where e has the distribution (1 − π)·N(0, 1) + π·N(0, λ²): its mean is 0, and its quantiles are
symmetric, so f(x) is the conditional mean and median. Heteroscedastic tasks have a σ that depends on x and π = 0;
tasks with outliers have a constant σ and a few rows with a deviation of λσ. Shapes: N context rows, M query rows.
"""

import dataclasses
import enum

import numpy as np
from scipy import optimize, special

from priors.task import ColumnKind, Episode, Task, TaskKind

HALF_WIDTH = 2.0
"""x lies in ± this."""

_NUM_WAVES = 3


class NoiseFamily(enum.StrEnum):
    """What kind of noise a task has."""

    HETEROSCEDASTIC = "heteroscedastic"
    OUTLIERS = "outliers"


class QueryPlaces(enum.StrEnum):
    """Where the query rows are."""

    RANDOM = "random"  # drawn like context rows
    EVEN = "even"  # from one end of x to the other, for curves


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSize:
    """Rows of a task."""

    num_context: int = 64
    """N."""
    num_query: int = 32
    """M."""
    places: QueryPlaces = QueryPlaces.RANDOM
    """Where the query rows are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyTask:
    """A task and the truth about its queries.

    Args:
        episode: the task, context rows first.
        centre: [M] f(x), the conditional mean and median.
        spread: [M] σ(x).
        outlier_share: π.
        outlier_factor: λ.
    """

    episode: Episode
    centre: np.ndarray
    spread: np.ndarray
    outlier_share: float
    outlier_factor: float

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """[M] the true P(Y ≤ y | x) at y [M]."""
        return self._noise_cdf((y - self.centre) / self.spread)

    def quantile(self, level: float) -> np.ndarray:
        """[M] the true conditional quantile at a level in (0, 1)."""
        reach = float(abs(special.ndtri(level))) * max(1.0, self.outlier_factor) + 1.0
        root = optimize.brentq(lambda e: float(self._noise_cdf(np.float64(e))) - level, -reach, reach, xtol=1e-12)
        return self.centre + self.spread * root

    def interval(self, level: float) -> np.ndarray:
        """[M, 2] the true central interval that holds `level` of the distribution."""
        return np.stack([self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)], axis=-1)

    def _noise_cdf(self, e: np.ndarray) -> np.ndarray:
        share = self.outlier_share
        return (1 - share) * special.ndtr(e) + share * special.ndtr(e / self.outlier_factor)


def noisy_task(family: NoiseFamily, *, seed: int, size: TaskSize | None = None) -> NoisyTask:
    """One task: f is a sum of three waves and a line with standard deviation 1 over x; all of it is drawn from `seed`.

    Heteroscedastic: σ(x) = σ₀·exp(A·sin(ωx + φ)), σ₀ from .1 to .35, A from .6 to 1.2. Outliers: σ from .08 to .25, π
    from .03 to .12, λ from 8 to 20.
    """
    size = size or TaskSize()
    generator = np.random.default_rng(np.random.SeedSequence([seed, list(NoiseFamily).index(family), 63]))
    rows = size.num_context + size.num_query
    x = generator.uniform(-HALF_WIDTH, HALF_WIDTH, rows)
    if size.places is QueryPlaces.EVEN:
        x[size.num_context :] = np.linspace(-HALF_WIDTH, HALF_WIDTH, size.num_query)
    centre = _function(generator, x)
    if family is NoiseFamily.HETEROSCEDASTIC:
        swing, speed, phase = generator.uniform(0.6, 1.2), generator.uniform(0.8, 2.0), generator.uniform(0, 2 * np.pi)
        spread = generator.uniform(0.1, 0.35) * np.exp(swing * np.sin(speed * x + phase))
        share, factor = 0.0, 1.0
    else:
        spread = np.full(rows, generator.uniform(0.08, 0.25))
        share, factor = generator.uniform(0.03, 0.12), generator.uniform(8.0, 20.0)
    widened = np.where(generator.random(rows) < share, factor, 1.0)
    y = centre + spread * widened * generator.normal(size=rows)
    task = Task(
        x=x[:, None].astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=np.full(1, ColumnKind.NUMBER, np.int8),
        level_counts=np.zeros(1, np.int32),
        kind=TaskKind.REGRESSION,
        num_classes=0,
        family=family.value,
        seed=seed,
    )
    return NoisyTask(
        episode=Episode(task=task, num_context=size.num_context),
        centre=centre[size.num_context :],
        spread=spread[size.num_context :],
        outlier_share=share,
        outlier_factor=factor,
    )


def _function(generator: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """f at x: three waves and a line, brought to mean 0 and standard deviation 1 over an even grid."""
    speeds, phases = generator.uniform(0.5, 2.5, _NUM_WAVES), generator.uniform(0, 2 * np.pi, _NUM_WAVES)
    sizes, slope = generator.normal(size=_NUM_WAVES), 0.5 * generator.normal()

    def raw(points: np.ndarray) -> np.ndarray:
        return np.sin(points[:, None] * speeds + phases) @ sizes + slope * points

    grid = raw(np.linspace(-HALF_WIDTH, HALF_WIDTH, 201))
    return (raw(x) - grid.mean()) / max(float(grid.std()), 1e-6)
