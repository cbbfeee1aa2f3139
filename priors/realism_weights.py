"""Which weights bring a mixture of families nearest to real tables.

The squared maximum mean discrepancy (Gretton et al. 2012) between a mixture and the real tables, in the space of
meta-features, is a quadratic function of the families' weights: wᵀKw − 2wᵀk + constant. Its least value on the simplex
is found by projected gradient steps; it falls where the mixture covers real tables, and rises where it makes others.
"""

import dataclasses

import numpy as np

from priors.realism_distance import RealParts, standardised_by

_STEPS = 4000


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelMeans:
    """Mean kernel values between families and real tables; `families` names the rows.

    Args:
        families: F names.
        inside: [F, F] between synthetic tasks (two different ones).
        across: [F] between synthetic tasks and real parts.
        real: between parts of two different tables.
    """

    families: tuple[str, ...]
    inside: np.ndarray
    across: np.ndarray
    real: float

    def discrepancy(self, weights: np.ndarray) -> float:
        """Squared MMD of the mixture, unbiased: may fall below 0 where nothing is left to see."""
        return float(weights @ self.inside @ weights - 2 * weights @ self.across + self.real)


def kernel_means(real: RealParts, *, values: np.ndarray, families: tuple[str, ...]) -> KernelMeans:
    """Gaussian kernels at the median distance of real parts of different tables; all tables count the same.

    Args:
        real: parts of real tables.
        values: [S, F] meta-features of synthetic tasks.
        families: S names.
    """
    names = tuple(sorted(set(families)))
    a, b = standardised_by(real.values, real.values), standardised_by(real.values, values)
    other = real.owners[:, None] != real.owners
    between = _squares(a, a)
    scale = float(np.median(between[other]))
    tables = np.array([(real.owners == table) / (real.owners == table).sum() for table in real.tables()])
    tables = tables.mean(0)
    pairs = np.outer(tables, tables) * other
    member = np.array([[family == name for family in families] for name in names], float)
    kernel = np.exp(-_squares(b, b) / scale)
    np.fill_diagonal(kernel, 0)
    sizes = member.sum(1)
    inside = member @ kernel @ member.T / (np.outer(sizes, sizes) - np.diag(sizes))
    across = member @ np.exp(-_squares(b, a) / scale) @ tables / sizes
    return KernelMeans(
        families=names,
        inside=inside,
        across=across,
        real=float((pairs * np.exp(-between / scale)).sum() / pairs.sum()),
    )


def nearest_weights(means: KernelMeans) -> np.ndarray:
    """[F] weights of the least discrepancy, none below 0, sum 1."""
    weights = np.full(len(means.families), 1 / len(means.families))
    rate = 0.5 / max(float(np.linalg.eigvalsh(means.inside).max()), 1e-9)
    for _ in range(_STEPS):
        weights = _on_simplex(weights - rate * (means.inside @ weights - means.across))
    return weights


def _on_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point with entries of at least 0 and sum 1 (Duchi et al. 2008)."""
    ordered = np.sort(values)[::-1]
    spare = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    return (values - spare[ordered > spare][-1]).clip(0)


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T).clip(0)
