"""How far a prior is from real tables: domain classifier, coverage, and the meta-features that tell them apart.

The domain classifier gives the proxy A-distance 2(1 − 2·error) (Ben-David et al. 2007, "Analysis of representations for
domain adaptation"): 0 where nobody can tell the two apart, 2 where everybody can. Its error is held out: the folds are
over tables, so that no part of a table is on both sides, and both domains weigh the same.

U parts of real tables, S synthetic tasks, F meta-features.
"""

import dataclasses

import numpy as np
from sklearn import ensemble

_FOLDS = 5
_TREES = 100
_DRAWS = 400
_QUANTILES = (0.1, 0.5, 0.9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealParts:
    """Args: values [U, F] of parts of real tables; owners [U] the index of each part's table."""

    values: np.ndarray
    owners: np.ndarray

    def of(self, tables: np.ndarray) -> "RealParts":
        """The parts of some tables (indices)."""
        chosen = np.isin(self.owners, tables)
        return RealParts(values=self.values[chosen], owners=self.owners[chosen])

    def tables(self) -> np.ndarray:
        """The tables' indices."""
        return np.unique(self.owners)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticTasks:
    """Args: values [S, F]; weights [S], what each task counts (a mixture is one sample with other weights)."""

    values: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Args: value; low and high, the 95 % bootstrap interval over tables (and over synthetic tasks)."""

    value: float
    low: float
    high: float


def domain_distance(real: RealParts, synthetic: SyntheticTasks, *, seed: int) -> Estimate:
    """Proxy A-distance of synthetic tasks to real tables, with its interval given these held-out answers."""
    wrong_real, wrong_synthetic = _held_out(real, synthetic, seed=seed)
    generator = np.random.default_rng([seed, 5])
    tables = real.tables()
    by_table = np.array([wrong_real[real.owners == table].mean() for table in tables])
    drawn = generator.integers(len(tables), size=(_DRAWS, len(tables)))
    errors_real = by_table[drawn].mean(1)
    picked = generator.integers(len(wrong_synthetic), size=(_DRAWS, len(wrong_synthetic)))
    weights = synthetic.weights[picked]
    errors_synthetic = (wrong_synthetic[picked] * weights).sum(1) / weights.sum(1).clip(1e-12)
    error = (by_table.mean() + np.average(wrong_synthetic, weights=synthetic.weights)) / 2
    low, high = np.quantile(_a_distance((errors_real + errors_synthetic) / 2), (0.025, 0.975))
    return Estimate(value=float(_a_distance(error)), low=float(low), high=float(high))


def floor_distance(real: RealParts, *, seed: int, repeats: int = 6) -> Estimate:
    """The same figure between random halves of the real tables: what an indistinguishable prior would get.

    Returns:
        The mean over `repeats` halvings, and their range. It scatters around 0, below as well as above.
    """
    found = []
    for repeat in range(repeats):
        order = np.random.default_rng([seed, 6, repeat]).permutation(real.tables())
        left, right = real.of(order[: len(order) // 2]), real.of(order[len(order) // 2 :])
        wrong = _held_out_halves(left, right, seed=seed + repeat)
        found.append(float(_a_distance(wrong)))
    return Estimate(value=float(np.mean(found)), low=min(found), high=max(found))


def _a_distance(error: np.ndarray | float) -> np.ndarray:
    return 2 * (1 - 2 * np.asarray(error))


def _table_weights(owners: np.ndarray) -> np.ndarray:
    """[U] every table counts the same, and all together 1."""
    _, codes, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    return 1 / sizes[codes] / len(sizes)


def _folds_of(groups: np.ndarray, *, seed: int) -> np.ndarray:
    """Fold of every part; parts of a group share one."""
    names, codes = np.unique(groups, return_inverse=True)
    folds = np.arange(len(names)) % _FOLDS
    return np.random.default_rng([seed, 7]).permutation(folds)[codes]


def _classifier(seed: int) -> ensemble.ExtraTreesClassifier:
    settings = {"n_estimators": _TREES, "min_samples_leaf": 3, "max_features": 0.3, "n_jobs": 1}
    return ensemble.ExtraTreesClassifier(random_state=seed, **settings)


def _held_out(real: RealParts, synthetic: SyntheticTasks, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """[U] and [S]: 1 where the held-out classifier is wrong, 0 where right."""
    used = synthetic.weights > 0
    domain = np.r_[np.ones(len(real.values)), np.zeros(len(synthetic.values))]
    values = np.concatenate([real.values, synthetic.values])
    share = synthetic.weights / synthetic.weights.sum()
    weights = np.r_[_table_weights(real.owners), share]
    folds = np.r_[_folds_of(real.owners, seed=seed), _folds_of(np.arange(len(share)), seed=seed + 1)]
    chosen = np.r_[np.ones(len(real.values), bool), used]
    guess = _cross_fitted(values, domain, weights=weights, folds=folds, chosen=chosen, seed=seed)
    wrong = ((guess > 0.5) != (domain > 0.5)).astype(float)
    return wrong[: len(real.values)], wrong[len(real.values) :]


def _held_out_halves(left: RealParts, right: RealParts, *, seed: int) -> float:
    values = np.concatenate([left.values, right.values])
    domain = np.r_[np.ones(len(left.values)), np.zeros(len(right.values))]
    weights = np.r_[_table_weights(left.owners), _table_weights(right.owners)]
    folds = np.r_[_folds_of(left.owners, seed=seed), _folds_of(right.owners, seed=seed + 1)]
    everything = np.ones(len(values), bool)
    guess = _cross_fitted(values, domain, weights=weights, folds=folds, chosen=everything, seed=seed)
    wrong = (guess > 0.5) != (domain > 0.5)
    return float(sum(np.average(wrong[domain == side], weights=weights[domain == side]) for side in (0, 1)) / 2)


def _cross_fitted(
    values: np.ndarray,
    domain: np.ndarray,
    *,
    weights: np.ndarray,
    folds: np.ndarray,
    chosen: np.ndarray,
    seed: int,
) -> np.ndarray:
    """[U + S] probability of being real, by forests that did not see the part's fold; both domains weigh the same."""
    guess = np.full(len(values), 0.5)
    for fold in range(_FOLDS):
        train, test = (folds != fold) & chosen, folds == fold
        if not test.any():
            continue
        balanced = weights[train].copy()
        for side in (0, 1):
            balanced[domain[train] == side] /= balanced[domain[train] == side].sum()
        model = _classifier(seed).fit(values[train], domain[train], sample_weight=balanced * train.sum())
        guess[test] = model.predict_proba(values[test])[:, 1]
    return guess


def coverage(real: RealParts, synthetic: SyntheticTasks, *, seed: int, repeats: int = 40) -> Estimate:
    """Share of real tables that have a synthetic neighbour no farther than real tables are from each other.

    Features are standardised by the real parts and cut at ±3. "Typical" is the median distance of a part to the nearest
    part of another table, so among real tables the same figure is ½. Nearest distances shrink with numbers: as many
    synthetic tasks as there are parts are drawn, by their weights, `repeats` times.

    Returns:
        Mean over tables and draws; interval over tables.
    """
    a, b = standardised_by(real.values, real.values), standardised_by(real.values, synthetic.values)
    between = _distances(a, a)
    between[real.owners[:, None] == real.owners] = np.inf
    typical = np.median(between.min(1))
    near = _distances(a, b) <= typical
    generator = np.random.default_rng([seed, 8])
    share = synthetic.weights / synthetic.weights.sum()
    hits = np.zeros(len(a))
    for _ in range(repeats):
        drawn = generator.choice(len(b), size=len(a), p=share)
        hits += near[:, drawn].any(1) / repeats
    by_table = np.array([hits[real.owners == table].mean() for table in real.tables()])
    means = by_table[generator.integers(len(by_table), size=(_DRAWS, len(by_table)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(value=float(by_table.mean()), low=float(low), high=float(high))


def standardised_by(real: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[·, F] in units of the real parts' standard deviation around their mean, cut at ±3; constants become 0 or ±3."""
    deviation = real.std(0)
    return ((values - real.mean(0)) / np.where(deviation > 1e-9, deviation, 1e-9)).clip(-3, 3)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[U, S] root mean square difference over features."""
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return (squares.clip(0) / a.shape[1]) ** 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Separation:
    """How one meta-feature tells real from synthetic.

    Args:
        name: of the feature.
        above: share of pairs (real, synthetic) in which the real one is larger, ties counting half: ½ where alike.
        low: lower end of its 95 % interval over tables.
        high: upper end.
        real: 10 %, 50 % and 90 % quantile of real parts.
        synthetic: the same of the synthetic tasks.
    """

    name: str
    above: float
    low: float
    high: float
    real: tuple[float, ...]
    synthetic: tuple[float, ...]


def separations(real: RealParts, synthetic: SyntheticTasks, *, names: tuple[str, ...], seed: int) -> list[Separation]:
    """Every meta-feature, the ones that tell most first."""
    tables = real.tables()
    drawn = np.random.default_rng([seed, 9]).integers(len(tables), size=(_DRAWS, len(tables)))
    share, own = synthetic.weights / synthetic.weights.sum(), _table_weights(real.owners)
    found = []
    for index, name in enumerate(names):
        a, b = real.values[:, index], synthetic.values[:, index]
        above = ((a[:, None] > b) + 0.5 * (a[:, None] == b)) @ share
        by_table = np.array([above[real.owners == table].mean() for table in tables])
        low, high = np.quantile(by_table[drawn].mean(1), (0.025, 0.975))
        found.append(
            Separation(
                name=name,
                above=float(by_table.mean()),
                low=float(low),
                high=float(high),
                real=weighted_quantiles(a, own),
                synthetic=weighted_quantiles(b, share),
            )
        )
    return sorted(found, key=lambda separation: -abs(separation.above - 0.5))


def weighted_quantiles(values: np.ndarray, weights: np.ndarray) -> tuple[float, ...]:
    """The 10 %, 50 % and 90 % quantile of values [n] that count as much as weights [n]."""
    order = np.argsort(values, kind="stable")
    spots = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(spots, _QUANTILES).clip(max=len(values) - 1)
    return tuple(float(values[order][place]) for place in places)
