"""scikit-learn estimators on a pretrained network: `ICLClassifier(network).fit(X, y).predict_proba(X_new)`.

Fitting stores the context; no parameter changes (seed 5.1). Predictions are averaged over a few feature orders and, in
classification, class-slot orders, because the network depends a little on both.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn import base
from torch import Tensor

from model.cell_embedding import CATEGORY, NUMBER
from model.class_distribution import ClassLogProbabilities
from model.label_injection import LabelKind
from model.network import ContextMemory, Network, NetworkInputs
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionHeadKind, RegressionPrediction
from tools.failure import BadInput, ExitCode, Failure


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Context:
    x: np.ndarray  # [N, C] float32
    y: np.ndarray  # [N] class slots or targets
    column_kinds: np.ndarray  # [C]
    levels: tuple[np.ndarray | None, ...]  # per column: the context's levels, for columns that came as text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Order:
    """One member of the ensemble. Args: columns [C], their order; slots [K], where each class stands (or none)."""

    columns: np.ndarray
    slots: np.ndarray


class _ICLEstimator(base.BaseEstimator):
    """What both estimators share: reading tables, checking limits, the ensemble over orders, remembered contexts."""

    _kind: LabelKind

    def __init__(self, network: Network, *, num_estimators: int = 4, seed: int = 0, cache: bool = True) -> None:
        self.network = network
        self.num_estimators = num_estimators
        self.seed = seed
        self.cache = cache

    def _store(self, x: Any, y: np.ndarray, column_kinds: np.ndarray | None) -> None:
        if self.network.config.kind is not self._kind:
            raise Failure(
                ExitCode.CONFIG_MISMATCH,
                f"{type(self).__name__} needs a {self._kind} network and got a {self.network.config.kind} one",
            )
        raw = _columns(x)
        if not raw or len(raw[0]) == 0:
            raise Failure(ExitCode.TABLE_EMPTY, f"X has shape {np.shape(x)}: give at least one row and one column")
        if np.shape(y) != (len(raw[0]),):
            mend = "give one label a row"
            raise Failure(ExitCode.TABLE_LABELS, f"y has shape {np.shape(y)} and X has {len(raw[0])} rows: {mend}")
        limit = self.network.config.max_features
        if len(raw) > limit:
            raise Failure(ExitCode.OVER_LIMIT, f"X has {len(raw)} features and the model takes {limit}: select fewer")
        levels = tuple(_text_levels(column) for column in raw)
        coded = np.stack([_coded(column, level) for column, level in zip(raw, levels, strict=True)], axis=1)
        if column_kinds is None:
            column_kinds = np.array([NUMBER if level is None else CATEGORY for level in levels], np.int8)
        kinds = np.asarray(column_kinds, np.int8)
        if kinds.shape != (len(raw),):
            mend = "give one kind a column"
            raise Failure(ExitCode.BAD_FLAG, f"column_kinds has shape {kinds.shape} for {len(raw)} columns: {mend}")
        self._context = _Context(x=coded, y=y.astype(np.float32), column_kinds=kinds, levels=levels)
        self._memories: dict[int, ContextMemory] = {}
        self.n_features_in_ = len(raw)

    def _check_fitted(self) -> None:
        if not hasattr(self, "_context"):
            raise Failure(ExitCode.BAD_FLAG, f"{type(self).__name__} has no context yet: call fit first")

    def _queries(self, x: Any) -> np.ndarray:
        raw, levels = _columns(x), self._context.levels
        if len(raw) != len(levels):
            mend = "give the same columns"
            raise Failure(ExitCode.BAD_FLAG, f"X has {len(raw)} columns and the context has {len(levels)}: {mend}")
        return np.stack([_coded(column, level) for column, level in zip(raw, levels, strict=True)], axis=1)

    def _predictions(
        self, x: Any, *, num_classes: int = 0
    ) -> Iterator[tuple[_Order, ClassLogProbabilities | RegressionPrediction]]:
        """What the network says of queries x, order by order; each context is passed through once where it is kept."""
        queries, generator = self._queries(x), np.random.default_rng(self.seed)
        for member in range(self.num_estimators):
            columns = generator.permutation(queries.shape[1])
            order = _Order(columns=columns, slots=generator.permutation(num_classes) if num_classes else np.array([]))
            inputs = self._inputs(queries, order)
            if not self.cache:
                yield order, self.network(inputs)
                continue
            if member not in self._memories:
                self._memories[member] = self.network.remember(inputs)
            yield order, self.network.predict(self._memories[member], inputs.x_query)

    def _inputs(self, x_query: np.ndarray, order: _Order) -> NetworkInputs:
        context, columns = self._context, order.columns
        parameter = next(self.network.parameters())
        x_context, x_query = (torch.from_numpy(part[None][..., columns]).to(parameter) for part in (context.x, x_query))
        labels = order.slots.astype(np.float32)[context.y.astype(int)] if len(order.slots) else context.y
        return NetworkInputs(
            x_context=x_context,
            y_context=torch.from_numpy(labels[None]).to(parameter),
            x_query=x_query,
            column_kinds=torch.from_numpy(context.column_kinds[columns][None]).to(parameter.device),
            num_classes=len(order.slots),
        )


class ICLClassifier(_ICLEstimator, base.ClassifierMixin):
    """Class probabilities from a classification network.

    Args:
        network: a pretrained classification network.
        num_estimators: how many random orders are averaged.
        seed: of those orders.
        cache: whether the first prediction keeps what queries read of the context (keys and values of every layer), so
            that later ones cost no work on context rows. Call fit again after changing the network's weights.
    """

    _kind = LabelKind.CLASSIFICATION

    def fit(self, x: Any, y: Any, *, column_kinds: np.ndarray | None = None) -> Self:
        """Stores the context: x [N, C] (array or DataFrame; text and category columns become categories), y [N].

        Raises:
            Failure: TABLE_EMPTY, OVER_LIMIT for too many features or classes.
        """
        self.classes_, slots = np.unique(np.asarray(y), return_inverse=True)
        limit = self.network.config.icl.max_classes
        if len(self.classes_) > limit:
            found = len(self.classes_)
            raise Failure(ExitCode.OVER_LIMIT, f"y has {found} classes and the model takes {limit}: merge some")
        self._store(x, slots, column_kinds)
        return self

    @torch.no_grad()
    def predict_proba(self, x: Any) -> np.ndarray:
        """Probabilities [M, K] of `classes_`."""
        self._check_fitted()
        parts = [
            found.probabilities()[0].double().cpu().numpy()[:, order.slots]
            for order, found in self._predictions(x, num_classes=len(self.classes_))
        ]
        total = np.sum(parts, axis=0)
        return total / total.sum(-1, keepdims=True)

    def predict(self, x: Any) -> np.ndarray:
        """The most probable class of each query [M]."""
        return self.classes_[self.predict_proba(x).argmax(-1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetForecast:
    """What a regression network says of M queries, in units of the target, averaged over orders.

    Args:
        mean: [M].
        quantiles: [M, S] at the levels asked for; None where the head predicts points only.
        crossing_rate: [M] the share of neighbouring quantiles that crossed before the repair; None but for a quantile
            head.
    """

    mean: np.ndarray
    quantiles: np.ndarray | None
    crossing_rate: np.ndarray | None


class ICLRegressor(_ICLEstimator, base.RegressorMixin):
    """Predictive means and quantiles from a regression network; arguments as for `ICLClassifier`."""

    _kind = LabelKind.REGRESSION

    def fit(self, x: Any, y: Any, *, column_kinds: np.ndarray | None = None) -> Self:
        """Stores the context: x [N, C], y [N] finite numbers.

        Raises:
            Failure: TABLE_EMPTY, TABLE_LABELS, OVER_LIMIT.
        """
        try:
            target = np.asarray(y, np.float64)
        except ValueError as error:
            raise Failure(ExitCode.TABLE_LABELS, f"regression targets must be numbers ({error}): convert y") from error
        if not np.isfinite(target).all():
            wrong = (~np.isfinite(target)).sum()
            raise Failure(ExitCode.TABLE_LABELS, f"{wrong} targets are not finite: drop those rows")
        # The network sees targets of mean 0 and deviation 1, so that fp32 holds any unit (year 2000 ± 1, say).
        self._location, spread = float(target.mean()), float(target.std())
        self._scale = spread if spread > 1e-12 * abs(self._location) else 1.0  # a constant's spread is rounding
        self._store(x, (target - self._location) / self._scale, column_kinds)
        return self

    def predict(self, x: Any) -> np.ndarray:
        """The predictive mean of each query [M]."""
        return self.forecast(x, levels=()).mean

    def predict_quantiles(self, x: Any, levels: Any) -> np.ndarray:
        """Predictive quantiles [M, S] at levels [S] in (0, 1), averaged level by level over the orders.

        Raises:
            BadInput (a ValueError): BAD_LEVEL; CONFIG_MISMATCH where the network's head predicts points only.
        """
        head = self.network.config.regression.kind
        if head is RegressionHeadKind.SCALAR:
            mend = f"use a network with a {RegressionHeadKind.BAR} or {RegressionHeadKind.QUANTILE} head, or predict"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"the network's head is {head}, which has no quantiles: {mend}")
        return self.forecast(x, levels=levels).quantiles

    @torch.no_grad()
    def forecast(self, x: Any, *, levels: Any) -> TargetForecast:
        """All that the network's head says of each query, quantiles at levels [S] in (0, 1) included where it has any.

        Raises:
            BadInput (a ValueError): BAD_LEVEL.
        """
        self._check_fitted()
        at = torch.as_tensor(np.asarray(levels, np.float64))
        means, quantiles, crossings = [], [], []
        for _, found in self._predictions(x):
            means.append(found.mean()[0])
            if not isinstance(found, PointPrediction):
                quantiles.append(found.icdf(at)[0])
            if isinstance(found, QuantilePrediction):
                crossings.append(found.crossing_rate()[0])
        return TargetForecast(
            mean=_average(means) * self._scale + self._location,
            quantiles=_average(quantiles) * self._scale + self._location if quantiles else None,
            crossing_rate=_average(crossings) if crossings else None,
        )


def _average(parts: list[Tensor]) -> np.ndarray:
    """The mean over the orders."""
    return torch.stack(parts).double().mean(0).cpu().numpy()


def _columns(x: Any) -> list[np.ndarray]:
    """The columns of an array or a DataFrame."""
    if hasattr(x, "columns"):
        return [np.asarray(x[name]) for name in x.columns]
    array = np.asarray(x)
    if array.ndim != 2:
        raise Failure(ExitCode.TABLE_EMPTY, f"X has shape {array.shape}: give a table of rows and columns")
    return list(array.T)


def _text_levels(column: np.ndarray) -> np.ndarray | None:
    """The sorted levels of a text column of the context, or None for a column of numbers."""
    try:
        _numbers(column)
    except (TypeError, ValueError):
        return np.unique([str(value) for value in column if not _missing(value)])
    return None


def _numbers(column: np.ndarray) -> np.ndarray:
    """[R] float32; None and other marks of a missing value become NaN, and what fp32 cannot hold becomes ±inf."""
    if column.dtype == object:
        column = np.array([np.nan if _missing(value) else value for value in column], object)
    with np.errstate(over="ignore"):
        return column.astype(np.float64).astype(np.float32)


def _missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _coded(column: np.ndarray, levels: np.ndarray | None) -> np.ndarray:
    """[R] float32: numbers as they are, text as its place among the context's levels; an unseen level follows the last.

    Raises:
        Failure: TABLE_TEXT_COLUMN for text in a column that held numbers in the context.
    """
    if levels is None:
        try:
            return _numbers(column)
        except (TypeError, ValueError) as error:
            mend = "clean the column, or give it as text to fit too"
            raise Failure(ExitCode.TABLE_TEXT_COLUMN, f"a column of numbers holds text ({error}): {mend}") from error
    place = {level: index for index, level in enumerate(levels)}
    return np.array([np.nan if _missing(v) else place.get(str(v), len(levels)) for v in column], np.float32)
