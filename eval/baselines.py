"""Baselines that every model is compared with: majority, kNN, linear, random forest, an untrained kernel.

Each reads one table's `Evidence` and answers for all query rows; imputation, scaling and one-hot columns are fitted on
its context rows (`design_matrix`). Shapes: N context rows, M query rows, K classes. Every classifier returns [M, K] by
class id with 0 for a class that the context lacks; a context of a single class is answered with certainty.

No baseline is made weak on purpose: votes (kNN, forest) are smoothed by one pseudo-vote spread as the context's class
frequencies, since a raw share of 0 would cost the whole NLL floor, and every forecast is a full distribution.
"""

import dataclasses
import statistics
import warnings
from typing import Protocol

import numpy as np
from sklearn import ensemble, exceptions, linear_model, neighbors

from eval import design_matrix, kernel_regression
from eval.scores import TAUS, Forecast
from priors.task import Evidence

_RIDGE_PENALTIES = np.logspace(-3, 3, 13)
_NORMAL_QUANTILES = tuple(statistics.NormalDist().inv_cdf(tau) for tau in TAUS.tolist())


class Predictor(Protocol):
    """What can be compared: a name and the two answers. An implementation may support one kind of task only."""

    @property
    def name(self) -> str:
        """As it appears in results."""

    def classify(self, evidence: Evidence) -> np.ndarray:
        """[M, K] probabilities by class id, K = `evidence.num_classes`; rows sum to 1."""

    def forecast(self, evidence: Evidence) -> Forecast:
        """A predictive distribution per query row, in the units of `evidence.y_context`."""


def all_baselines(*, num_trees: int = 300) -> list[Predictor]:
    """The five baselines: majority, knn, linear, random_forest, kernel.

    Args:
        num_trees: of the forest: 300 for real tables; 100 do for the many small held-out synthetic tasks.
    """
    return [Majority(), NearestNeighbours(), Linear(), RandomForest(num_trees=num_trees), Kernel()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Majority:
    """The context's class frequencies; the context's mean and empirical quantiles."""

    name: str = "majority"

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Class frequencies, the same for every query."""
        return np.tile(class_frequencies(evidence), (len(evidence.x_query), 1))

    def forecast(self, evidence: Evidence) -> Forecast:
        """Mean and quantiles of the context targets, the same for every query."""
        y, rows = evidence.y_context.astype(np.float64), len(evidence.x_query)
        return Forecast(mean=np.full(rows, y.mean()), quantiles=np.tile(np.quantile(y, TAUS), (rows, 1)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearestNeighbours:
    """k nearest neighbours with equal votes on standardised columns.

    Args:
        num_neighbours: k, or all context rows where they are fewer.
    """

    num_neighbours: int = 10
    name: str = "knn"

    def classify(self, evidence: Evidence) -> np.ndarray:
        """(votes + class frequencies) / (k + 1)."""
        nearest = self._nearest(evidence)
        votes = np.eye(evidence.num_classes)[evidence.y_context.astype(np.int64)[nearest]].sum(axis=1)
        return _with_pseudo_vote(votes, evidence, num_votes=nearest.shape[1])

    def forecast(self, evidence: Evidence) -> Forecast:
        """Mean of the k targets; their quantiles by Hazen's positions (i − ½)/k, nearest to the stated coverage."""
        targets = evidence.y_context.astype(np.float64)[self._nearest(evidence)]
        return Forecast(mean=targets.mean(axis=1), quantiles=np.quantile(targets, TAUS, axis=1, method="hazen").T)

    def _nearest(self, evidence: Evidence) -> np.ndarray:
        design = design_matrix.standardised(evidence)
        count = min(self.num_neighbours, len(design.context))
        search = neighbors.NearestNeighbors(n_neighbors=count, n_jobs=1).fit(design.context)
        return search.kneighbors(design.query, return_distance=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear:
    """Logistic regression (C = 1); ridge regression whose penalty leave-one-out errors choose, with Gaussian errors."""

    name: str = "linear"

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Multinomial logistic probabilities. A fit stopped at 1,000 iterations is used as it is, without a warning."""
        y = evidence.y_context.astype(np.int64)
        if len(np.unique(y)) < 2:
            return Majority().classify(evidence)
        design = design_matrix.standardised(evidence)
        model = linear_model.LogisticRegression(max_iter=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
            model.fit(design.context, y)
        return _by_class_id(model.predict_proba(design.query), model.classes_, num_classes=evidence.num_classes)

    def forecast(self, evidence: Evidence) -> Forecast:
        """Gaussian around the ridge prediction; its deviation is the root mean square of leave-one-out residuals."""
        y, center, scale = _standardised_target(evidence)
        if len(y) < 2:
            return Majority().forecast(evidence)
        design = design_matrix.standardised(evidence)
        model = linear_model.RidgeCV(_RIDGE_PENALTIES, store_cv_results=True).fit(design.context, y)
        chosen = int(np.argmin(np.abs(_RIDGE_PENALTIES - model.alpha_)))
        deviation = np.sqrt(model.cv_results_[:, chosen].mean())
        mean = model.predict(design.query)
        quantiles = mean[:, None] + deviation * np.array(_NORMAL_QUANTILES)
        return Forecast(mean=center + scale * mean, quantiles=center + scale * quantiles)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomForest:
    """Breiman's forest as scikit-learn grows it by default, on raw columns with category codes and gaps.

    Args:
        num_trees: trees.
    """

    num_trees: int = 300
    name: str = "random_forest"

    def classify(self, evidence: Evidence) -> np.ndarray:
        """(sum of the trees' leaf frequencies + class frequencies) / (trees + 1)."""
        design = design_matrix.ordinal(evidence)
        model = ensemble.RandomForestClassifier(self.num_trees, n_jobs=1, random_state=0)
        model.fit(design.context, evidence.y_context.astype(np.int64))
        shares = _by_class_id(model.predict_proba(design.query), model.classes_, num_classes=evidence.num_classes)
        return _with_pseudo_vote(shares * self.num_trees, evidence, num_votes=self.num_trees)

    def forecast(self, evidence: Evidence) -> Forecast:
        """The average of two quantile functions around the forest's mean.

        One is the spread of the single trees' answers, which varies from row to row but is narrow where trees agree
        (leaves of one row: a quantile forest, Meinshausen 2006); the other is the mean plus the quantiles of out-of-bag
        residuals, which have the right size on average but are the same everywhere.
        """
        design = design_matrix.ordinal(evidence)
        y, center, scale = _standardised_target(evidence)
        model = ensemble.RandomForestRegressor(self.num_trees, n_jobs=1, random_state=0, oob_score=len(y) > 1)
        model.fit(design.context, y)
        rows = design.query.astype(np.float32)
        trees = np.stack([tree.predict(rows) for tree in model.estimators_])
        mean = trees.mean(axis=0)
        residuals = y - model.oob_prediction_ if len(y) > 1 else np.zeros(1)
        around = mean[:, None] + np.quantile(residuals, TAUS)
        quantiles = (np.quantile(trees, TAUS, axis=0).T + around) / 2
        return Forecast(mean=center + scale * mean, quantiles=center + scale * quantiles)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """Nadaraya–Watson on standardised columns: a retrieval head with features in place of learned states (1.2).

    The Gaussian kernel's width is the candidate with the smallest leave-one-out NLL or CRPS on the context rows.
    """

    name: str = "kernel"

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Weights times one-hot context labels."""
        labels = np.eye(evidence.num_classes)[evidence.y_context.astype(np.int64)]
        return self._weights(evidence, labels) @ labels

    def forecast(self, evidence: Evidence) -> Forecast:
        """Weighted mean and weighted empirical quantiles of the context targets."""
        y = evidence.y_context.astype(np.float64)
        weights = self._weights(evidence, y[:, None])
        quantiles = kernel_regression.weighted_quantiles(y, weights=weights, levels=TAUS)
        return Forecast(mean=weights @ y, quantiles=quantiles)

    def _weights(self, evidence: Evidence, values: np.ndarray) -> np.ndarray:
        design = design_matrix.standardised(evidence)
        width = kernel_regression.chosen_width(design.context, values=values, kind=evidence.kind)
        return kernel_regression.gaussian_weights(design.query, design.context, width=width)


def class_frequencies(evidence: Evidence) -> np.ndarray:
    """[K] share of each class id among the context rows."""
    counts = np.bincount(evidence.y_context.astype(np.int64), minlength=evidence.num_classes)
    return counts / counts.sum()


def _with_pseudo_vote(votes: np.ndarray, evidence: Evidence, *, num_votes: int) -> np.ndarray:
    return (votes + class_frequencies(evidence)) / (num_votes + 1)


def _by_class_id(probabilities: np.ndarray, classes: np.ndarray, *, num_classes: int) -> np.ndarray:
    """Spreads the columns of the classes that a model saw over all K."""
    full = np.zeros((len(probabilities), num_classes))
    full[:, classes] = probabilities
    return full


def _standardised_target(evidence: Evidence) -> tuple[np.ndarray, float, float]:
    """(y − mean)/deviation over the context, and the two numbers; the deviation of a constant target counts as 1."""
    y = evidence.y_context.astype(np.float64)
    center, scale = y.mean(), y.std()
    scale = scale if scale > 0 else 1.0
    return (y - center) / scale, float(center), float(scale)
