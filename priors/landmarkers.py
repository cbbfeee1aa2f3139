"""Landmarkers: held-out scores of simple learners on one table, which tell how its target depends on its columns.

What one column tells, a linear map, a sum of one effect for each column (naive Bayes and an additive fit), neighbours,
a small tree, and extremely randomised trees; their differences tell linear, additive, local and interacting targets.
Pfahringer, Bensusan and Giraud-Carrier (2000), "Meta-learning by landmarking various learning algorithms".

Scores are relative to chance: 0 is what the target alone gives, 1 is perfect. Classification: 2·AUC − 1, one class
against the rest, mean over the classes of the held-out rows, weighted by their share. Regression: R² in −0.2 … 1.
"""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn import ensemble, tree

from priors.column_features import ranked
from priors.task import ColumnKind, Task, TaskKind

_FOLDS = 2
_MOST_LEVELS = 12
_BINS = 6
_NEIGHBOURS = 10
_TREES = 40
_WORST = -0.2


def landmark_features(task: Task, *, seed: int) -> dict[str, float]:
    """Scores of all landmarkers on a task, and their differences.

    Args:
        task: at least two classes of two rows each, or a target of two values.
        seed: of the folds and the trees.

    Returns:
        Finite values; names as in the module docstring, `accuracy_gain` (classification: accuracy of the trees over the
        largest class, 0 … 1), and how the relevance of columns is spread.
    """
    folds = _folds(task, seed=seed)
    views = {"plain": task.x.astype(np.float64), "linear": _linear_view(task), "bins": _bin_view(task)}
    targets = _target_matrix(task)
    held: dict[str, list[float]] = {}
    for fold in range(_FOLDS):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        for name, score in _fold_scores(task, views, targets=targets, split=(train, test), seed=seed).items():
            held.setdefault(name, []).append(score)
    scores = {name: float(np.mean(values)) for name, values in held.items()}
    best = max(scores["linear"], scores["additive"], scores["neighbours"], scores["tree"], scores["trees"])
    return {
        **scores,
        "best": best,
        "interaction_gain": scores["trees"] - max(scores["additive"], scores["linear"]),
        "bend_gain": scores["additive"] - scores["linear"],
        "local_gain": scores["neighbours"] - scores["linear"],
        "one_column_part": scores["stump"] / max(best, 0.1),
        "more_rows_gain": scores["trees"] - scores["trees_on_half"],
        **relevance_features(task),
    }


def relevance_features(task: Task) -> dict[str, float]:
    """How much single columns tell: squared correlation ratio of their ranks (or of the target's) with the target.

    relevant_most and relevant_mean: over columns, less what chance gives. relevant_share: columns beyond what chance
    gives to one in a hundred. relevant_spread: effective number of columns among which the explained part is spread,
    over columns. missing_tells: the largest correlation of a column's missing cells with the target.
    """
    targets = _target_matrix(task)
    targets = targets - targets.mean(0)
    total = (targets**2).sum()
    ranks = ranked(task.x)
    ranks = ranks - ranks.mean(0)
    norm = np.sqrt((ranks**2).sum(0))
    part = ((ranks / np.where(norm > 0, norm, 1)).T @ targets) ** 2
    share = part.sum(1) / total
    rows, freedom = len(targets), max(targets.shape[1] - 1, 1)
    real = (share - 1 / rows).clip(0)
    weights = real / real.sum() if real.sum() > 0 else np.full(len(real), 1 / len(real))
    gone = np.isnan(task.x).astype(np.float64)
    gone = gone - gone.mean(0)
    norm = np.sqrt((gone**2).sum(0))
    missing = ((gone / np.where(norm > 0, norm, 1)).T @ targets) ** 2
    return {
        "relevant_most": float(real.max()),
        "relevant_mean": float(real.mean()),
        "relevant_share": float((share > (1 + 5.6 / freedom**0.5) / rows).mean()),
        "relevant_spread": float(np.exp(-np.sum(weights * np.log(weights.clip(1e-12)))) / len(weights)),
        "missing_tells": float((missing.sum(1) / total - 1 / rows).max().clip(0) if norm.any() else 0.0),
    }


def _folds(task: Task, *, seed: int) -> np.ndarray:
    """[R] fold of every row; classes, or the order of the target, are spread evenly."""
    generator = np.random.default_rng([seed, 1])
    order = np.lexsort((generator.uniform(size=len(task.y)), task.y))
    folds = np.empty(len(task.y), int)
    folds[order] = (np.arange(len(task.y)) + generator.integers(_FOLDS)) % _FOLDS
    return folds


def _target_matrix(task: Task) -> np.ndarray:
    """[R, K] one-hot classes, or [R, 1] the target as its rank (long tails would drown everything else)."""
    if task.kind is TaskKind.CLASSIFICATION:
        return np.eye(task.num_classes)[task.y.astype(int)]
    y = task.y.astype(np.float64)
    low, high = np.quantile(y, (0.01, 0.99))
    y = y.clip(low, high) if high > low else y
    return ((y - y.mean()) / max(y.std(), 1e-30))[:, None]


def _filled(x: np.ndarray) -> np.ndarray:
    """x [R, C] with missing cells at the column's median, standardised and cut at ±4: for learners by distance."""
    values = np.where(np.isfinite(x), x, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without a value
        middle = np.nan_to_num(np.nanmedian(values, axis=0))
    values = np.where(np.isnan(values), middle, values) - middle
    values /= np.abs(values).max(0).clip(1e-30)
    deviation = values.std(0)
    return ((values - values.mean(0)) / np.where(deviation > 1e-9, deviation, 1)).clip(-4, 4)


def _linear_view(task: Task) -> np.ndarray:
    """[R, F] standardised numbers; columns of few values, declared a category or not, also one-hot."""
    parts = [_filled(task.x)]
    for column, kind in zip(task.x.T, task.column_kinds, strict=True):
        levels, sizes = np.unique(column[~np.isnan(column)], return_counts=True)
        if 2 < len(levels) and (kind == ColumnKind.CATEGORY or len(levels) <= _MOST_LEVELS // 2):
            common = levels[np.argsort(-sizes, kind="stable")[:_MOST_LEVELS]]
            parts.append((column[:, None] == common).astype(np.float64) * 1.5)
    return np.concatenate(parts, axis=1)


def _bin_view(task: Task) -> np.ndarray:
    """[R, F] one-hot bins of equal size of every column, missing cells apart."""
    ranks, parts = ranked(task.x), []
    for column, place in zip(task.x.T, ranks.T, strict=True):
        gone = np.isnan(column)
        bins = np.where(gone, _BINS, ((place + 0.5) * _BINS).clip(0, _BINS - 1).astype(int))
        hot = np.eye(_BINS + 1)[bins]
        parts.append(hot[:, hot.any(0)])
    return np.concatenate(parts, axis=1)


_Split = tuple[np.ndarray, np.ndarray]


def _fold_scores(
    task: Task, views: dict[str, np.ndarray], *, targets: np.ndarray, split: _Split, seed: int
) -> dict[str, float]:
    train, test = split
    half = train[::2]
    trees = _trees(task.kind, seed=seed)
    stump, small = (_tree(task.kind, depth=depth, seed=seed) for depth in (1, 4))
    linear, bins, plain = views["linear"], views["bins"], views["plain"]
    plain = np.nan_to_num(plain, nan=-1e30, posinf=1e30, neginf=-1e30).astype(np.float32)
    predictions = {
        "stump": _by_model(stump, plain, task=task, split=split),
        "linear": _ridge(linear, targets, split=split),
        "additive": _ridge(bins, targets, split=split),
        "neighbours": _neighbours(linear, targets, split=split),
        "tree": _by_model(small, plain, task=task, split=split),
        "trees": _by_model(trees, plain, task=task, split=split),
        "trees_on_half": _by_model(_trees(task.kind, seed=seed), plain, task=task, split=(half, test)),
    }
    out = {name: _score(task.kind, found, truth=targets[test]) for name, found in predictions.items()}
    if task.kind is TaskKind.CLASSIFICATION:
        naive = _naive_bayes(bins, targets, split=split)
        out["naive_bayes"] = _score(task.kind, naive, truth=targets[test])
        right = (predictions["trees"].argmax(1) == targets[test].argmax(1)).mean()
        largest = targets[test].mean(0).max()
        out["accuracy_gain"] = float(max(right - largest, _WORST) / max(1 - largest, 0.02))
    return out


def _score(kind: TaskKind, predicted: np.ndarray, *, truth: np.ndarray) -> float:
    """Relative to chance; predicted and truth [M, K]."""
    if kind is TaskKind.REGRESSION:
        error = ((predicted - truth) ** 2).sum() / max(((truth - truth.mean(0)) ** 2).sum(), 1e-30)
        return float(max(1 - error, _WORST))
    sizes = truth.sum(0)
    ranks = (ranked(predicted) + 0.5) * len(truth)
    both = (sizes > 0) & (sizes < len(truth))
    above = (ranks * truth).sum(0) - sizes**2 / 2
    area = above[both] / (sizes * (len(truth) - sizes))[both]
    return float(np.average(2 * area - 1, weights=sizes[both])) if both.any() else 0.0


def _ridge(view: np.ndarray, targets: np.ndarray, *, split: _Split) -> np.ndarray:
    """[M, K] ridge regression whose penalty is chosen by generalised cross-validation (Golub et al. 1979)."""
    train, test = split
    middle, centre = view[train].mean(0), targets[train].mean(0)
    u, s, v = np.linalg.svd(view[train] - middle, full_matrices=False)
    answers = u.T @ (targets[train] - centre)
    rest = ((targets[train] - centre) ** 2).sum() - (answers**2).sum()
    best, chosen = np.inf, 1.0
    for penalty in np.geomspace(0.1, 3000, 8):
        keep = s**2 / (s**2 + penalty)
        freedom = 1 - (keep.sum() + 1) / len(train)
        loss = (rest + (((1 - keep)[:, None] * answers) ** 2).sum()) / max(freedom, 1e-3) ** 2
        if loss < best:
            best, chosen = loss, penalty
    weights = v.T @ ((s / (s**2 + chosen))[:, None] * answers)
    return (view[test] - middle) @ weights + centre


def _neighbours(view: np.ndarray, targets: np.ndarray, *, split: _Split) -> np.ndarray:
    """[M, K] mean target of the nearest rows, nearer ones weighing more."""
    train, test = split
    a, b = view[test], view[train]
    distance = ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T).clip(0) ** 0.5
    count = min(_NEIGHBOURS, len(train))
    near = np.argpartition(distance, count - 1, axis=1)[:, :count]
    weights = 1 / (np.take_along_axis(distance, near, axis=1) + 1e-3 * view.shape[1] ** 0.5)
    return (weights[:, :, None] * targets[train][near]).sum(1) / weights.sum(1)[:, None]


def _naive_bayes(view: np.ndarray, targets: np.ndarray, *, split: _Split) -> np.ndarray:
    """[M, K] log-probabilities (not normalised) that take the bins of the columns as independent in a class."""
    train, test = split
    sizes = targets[train].sum(0)
    inside = (view[train].T @ targets[train] + 1) / (sizes + _BINS)
    prior = np.log((sizes + 1) / (len(train) + len(sizes)))
    total = view[test] @ np.log(inside)
    # a class is judged against the others: rows differ in how common their bins are
    scores = total + prior
    return scores - scores.max(1, keepdims=True) - np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1))[:, None]


def _tree(kind: TaskKind, *, depth: int, seed: int) -> tree.BaseDecisionTree:
    maker: Callable[..., tree.BaseDecisionTree] = (
        tree.DecisionTreeClassifier if kind is TaskKind.CLASSIFICATION else tree.DecisionTreeRegressor
    )
    return maker(max_depth=depth, min_samples_leaf=3, random_state=seed)


def _trees(kind: TaskKind, *, seed: int) -> ensemble.ExtraTreesClassifier | ensemble.ExtraTreesRegressor:
    settings = {"n_estimators": _TREES, "min_samples_leaf": 2, "random_state": seed, "n_jobs": 1}
    if kind is TaskKind.CLASSIFICATION:
        return ensemble.ExtraTreesClassifier(max_features="sqrt", **settings)
    return ensemble.ExtraTreesRegressor(max_features=0.6, **settings)


def _by_model(model: object, x: np.ndarray, *, task: Task, split: _Split) -> np.ndarray:
    """[M, K] what a scikit-learn model says; classes that its rows lack have probability 0."""
    train, test = split
    if task.kind is TaskKind.REGRESSION:
        targets = _target_matrix(task)[:, 0]
        return model.fit(x[train], targets[train]).predict(x[test])[:, None]
    model.fit(x[train], task.y[train].astype(int))
    out = np.zeros((len(test), task.num_classes))
    out[:, model.classes_] = model.predict_proba(x[test])
    return out
