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
_TREES = 60
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


def domain_distance(real: RealParts, synthetic: SyntheticTasks, *, size: int, seed: int, repeats: int = 5) -> Estimate:
    """Proxy A-distance of synthetic tasks to real tables.

    More examples make better classifiers, so figures are comparable at equal `size` only: as many real parts (from each
    table about the same number) and as many tasks (by their weights) are drawn, `repeats` times.

    Returns:
        Mean over repeats, with an interval for other tables and tasks, given these classifiers.
    """
    wrong, seen = np.zeros((2, len(real.values))), np.zeros((2, len(synthetic.values)))
    for repeat in range(repeats):
        generator = np.random.default_rng([seed, 5, repeat])
        a, b = _drawn_parts(real, size=size, generator=generator), _drawn_tasks(synthetic, size, generator)
        groups = real.owners[a], np.arange(len(b))
        right = _held_out((real.values[a], synthetic.values[b]), groups=groups, seed=seed + repeat)
        for counts, drawn, side in ((wrong, a, right[0]), (seen, b, right[1])):
            np.add.at(counts[0], drawn, ~side)
            np.add.at(counts[1], drawn, 1)
    return _with_interval(real.owners, wrong, seen, seed=seed)


def _with_interval(owners: np.ndarray, real: np.ndarray, synthetic: np.ndarray, *, seed: int) -> Estimate:
    """From errors and counts of every part [2, U] and task [2, S]: tables weigh the same, tasks as often as drawn."""
    generator = np.random.default_rng([seed, 6])
    tables = np.array([real[:, owners == table].sum(1) for table in np.unique(owners)])
    by_table = tables[tables[:, 1] > 0, 0] / tables[tables[:, 1] > 0, 1]
    by_task = synthetic[:, synthetic[1] > 0]
    drawn = generator.integers(len(by_table), size=(_DRAWS, len(by_table)))
    picked = by_task[:, generator.integers(by_task.shape[1], size=(_DRAWS, by_task.shape[1]))].sum(-1)
    errors = (by_table[drawn].mean(1) + picked[0] / picked[1]) / 2
    value = (by_table.mean() + by_task[0].sum() / by_task[1].sum()) / 2
    low, high = np.quantile(_a_distance(errors), (0.025, 0.975))
    return Estimate(value=float(_a_distance(value)), low=float(low), high=float(high))


def _drawn_parts(real: RealParts, *, size: int, generator: np.random.Generator) -> np.ndarray:
    """Indices of `size` different parts, from each table about the same number."""
    order = generator.permutation(len(real.owners))
    places = np.zeros(len(order), int)
    for table in real.tables():
        own = real.owners[order] == table
        places[own] = np.arange(own.sum())
    return order[np.argsort(places, kind="stable")][:size]


def _drawn_tasks(synthetic: SyntheticTasks, size: int, generator: np.random.Generator) -> np.ndarray:
    """Indices of `size` different tasks, in proportion to their weights; of all that count where they are fewer."""
    share = synthetic.weights / synthetic.weights.sum()
    return generator.choice(len(share), size=min(size, int((share > 0).sum())), p=share, replace=False)


def floor_distance(real: RealParts, *, seed: int, repeats: int = 6) -> Estimate:
    """The same figure between random halves of the real tables: what an indistinguishable prior would get.

    Returns:
        The mean over `repeats` halvings, and their range. It scatters around 0, below as well as above.
    """
    found = []
    for repeat in range(repeats):
        order = np.random.default_rng([seed, 7, repeat]).permutation(real.tables())
        halves = real.of(order[: len(order) // 2]), real.of(order[len(order) // 2 :])
        groups = halves[0].owners, halves[1].owners
        right = _held_out((halves[0].values, halves[1].values), groups=groups, seed=seed + repeat)
        found.append(float(_a_distance(1 - (right[0].mean() + right[1].mean()) / 2)))
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
    return np.random.default_rng([seed, 8]).permutation(folds)[codes]


def _held_out(
    sides: tuple[np.ndarray, np.ndarray], *, groups: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Per side, which parts forests that did not see their fold put on the right side; both sides weigh the same."""
    values, is_first = np.concatenate(sides), np.repeat([True, False], [len(side) for side in sides])
    folds = np.r_[_folds_of(groups[0], seed=seed), _folds_of(groups[1], seed=seed + 1)]
    settings = {"n_estimators": _TREES, "min_samples_leaf": 3, "max_features": 0.3, "class_weight": "balanced"}
    guess = np.zeros(len(values))
    for fold in np.unique(folds):
        train = folds != fold
        model = ensemble.ExtraTreesClassifier(n_jobs=1, random_state=seed % 2**32, **settings)
        model.fit(values[train], is_first[train])
        guess[~train] = model.predict_proba(values[~train])[:, list(model.classes_).index(True)]
    right = (guess > 0.5) == is_first
    return right[is_first], right[~is_first]


def coverage(real: RealParts, synthetic: SyntheticTasks, *, size: int, seed: int, repeats: int = 40) -> Estimate:
    """Share of real tables that have a synthetic neighbour no farther than real tables are from each other.

    Features are standardised by the real parts and cut at ±3. "Typical" is the median distance of a part to the nearest
    of parts of other tables, so among real tables the same figure is ½. Nearest distances shrink with numbers: `size`
    parts and as many tasks (by their weights) are drawn, `repeats` times.

    Returns:
        Mean over tables and draws; interval over tables.
    """
    a, b = standardised_by(real.values, real.values), standardised_by(real.values, synthetic.values)
    between, across = _distances(a, a), _distances(a, b)
    between[real.owners[:, None] == real.owners] = np.inf
    hits = np.zeros(len(a))
    for repeat in range(repeats):
        generator = np.random.default_rng([seed, 9, repeat])
        nearest = between[:, _drawn_parts(real, size=size, generator=generator)].min(1)
        drawn = _drawn_tasks(synthetic, size, generator)
        hits += (across[:, drawn].min(1) <= np.median(nearest)) / repeats
    by_table = np.array([hits[real.owners == table].mean() for table in real.tables()])
    generator = np.random.default_rng([seed, 10])
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
    drawn = np.random.default_rng([seed, 11]).integers(len(tables), size=(_DRAWS, len(tables)))
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
