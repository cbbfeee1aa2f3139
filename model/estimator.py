"""scikit-learn estimators on a pretrained network: `ICLClassifier(network).fit(X, y).predict_proba(X_new)`.

Fitting stores the context; no parameter changes (seed 5.1). Predictions are averaged over a few feature orders and, in
classification, class-slot orders, because the network depends a little on both.
"""

import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn import base, exceptions
from torch import Tensor

from model.class_distribution import ClassLogProbabilities
from model.column_codes import TableCode, learn_code
from model.label_injection import LabelKind
from model.levels import check_levels
from model.network import ContextMemory, Network, NetworkInputs
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionHeadKind, RegressionPrediction
from model.table_columns import Table, read_table
from model.table_labels import read_classes, read_targets
from tools.failure import BadInput, ExitCode

_CELLS_AT_ONCE, _QUERIES_AT_ONCE = 2**16, 2**12
"""How much a pass through the network takes at most: stages before the row token grow with cells, heads with rows."""


class NotFitted(BadInput, exceptions.NotFittedError):
    """A prediction was asked for before `fit`: a `BadInput` that is also scikit-learn's `NotFittedError`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Context:
    x: np.ndarray  # [N, C] float32
    y: np.ndarray  # [N] float32 class slots or scaled targets
    code: TableCode


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Order:
    """One member of the ensemble. Args: columns [C], their order; slots [K], where each class stands (or none)."""

    columns: np.ndarray
    slots: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Remembered:
    """A context that was passed through `network` in `order`, which is that of `seed`."""

    network: Network
    seed: int
    order: _Order
    memory: ContextMemory


class _ICLEstimator(base.BaseEstimator):
    """What both estimators share: reading tables, checking limits, the ensemble over orders, remembered contexts."""

    _kind: LabelKind

    def __init__(self, network: Network, *, num_estimators: int = 4, seed: int = 0, cache: bool = True) -> None:
        self.network = network
        self.num_estimators = num_estimators
        self.seed = seed
        self.cache = cache

    def _check_settings(self) -> None:
        if self.network.config.kind is not self._kind:
            found = f"{type(self).__name__} needs a {self._kind} network and got a {self.network.config.kind} one"
            raise BadInput(ExitCode.CONFIG_MISMATCH, found)
        for name, least in (("num_estimators", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
                raise BadInput(ExitCode.BAD_FLAG, f"{name} is {value!r}: give a whole number from {least} on")

    def _read_table(self, x: Any) -> Table:
        """The context's table, within the network's limits."""
        self._check_settings()
        table, limit = read_table(x), self.network.config.max_features
        if table.num_rows == 0:
            found = f"X has {table.num_rows} rows and {len(table.columns)} columns"
            raise BadInput(ExitCode.TABLE_EMPTY, f"{found}: give at least one row and one column")
        if len(table.columns) > limit:
            found = f"X has {len(table.columns)} features and the model takes {limit}"
            raise BadInput(ExitCode.OVER_LIMIT, f"{found}: select fewer")
        return table

    def _keep(self, table: Table, *, code: TableCode, y: np.ndarray) -> None:
        """The last step of `fit`: nothing of an earlier context is touched before everything has been checked."""
        self._context = _Context(x=code.encode(table), y=y.astype(np.float32), code=code)
        self._remembered: dict[int, _Remembered] = {}
        self.n_features_in_ = len(table.columns)
        vars(self).pop("feature_names_in_", None)
        if table.names is not None and all(isinstance(name, str) for name in table.names):
            self.feature_names_in_ = np.array(table.names, object)

    def _query_parts(self, x: Any) -> Iterator[np.ndarray]:
        """Queries x as [m, C] float32, so many at a time that a pass through the network stays small."""
        if not hasattr(self, "_context"):
            raise NotFitted(ExitCode.BAD_FLAG, f"{type(self).__name__} has no context yet: call fit first")
        self._check_settings()
        queries = self._context.code.encode(read_table(x))
        size = min(max(1, _CELLS_AT_ONCE // queries.shape[1]), _QUERIES_AT_ONCE)
        if not self.cache:  # every pass goes over the context again: let that be the smaller half of it
            size = max(size, len(self._context.x))
        for start in range(0, max(len(queries), 1), size):
            yield queries[start : start + size]

    def _predictions(
        self, queries: np.ndarray, *, num_classes: int = 0
    ) -> Iterator[tuple[_Order, ClassLogProbabilities | RegressionPrediction]]:
        """What the network says of queries, order by order; each context is passed through once where it is kept."""
        for member, order in enumerate(self._orders(num_classes)):
            if not self.cache:
                yield order, self.network(self._inputs(queries, order))
                continue
            kept = self._remembered.get(member)
            if kept is None or kept.network is not self.network or kept.seed != self.seed:
                memory = self.network.remember(self._inputs(queries, order))
                kept = _Remembered(network=self.network, seed=self.seed, order=order, memory=memory)
                self._remembered[member] = kept
            inputs = self._inputs(queries, kept.order)
            yield kept.order, self.network.predict(kept.memory, inputs.x_query)

    def _orders(self, num_classes: int) -> Iterator[_Order]:
        generator = np.random.default_rng(self.seed)
        for _ in range(self.num_estimators):
            columns = generator.permutation(self.n_features_in_)
            yield _Order(columns=columns, slots=generator.permutation(num_classes) if num_classes else np.array([]))

    def _inputs(self, x_query: np.ndarray, order: _Order) -> NetworkInputs:
        context, columns = self._context, order.columns
        parameter = next(self.network.parameters())
        x_context, x_query = (torch.from_numpy(part[None][..., columns]).to(parameter) for part in (context.x, x_query))
        labels = order.slots.astype(np.float32)[context.y.astype(int)] if len(order.slots) else context.y
        return NetworkInputs(
            x_context=x_context,
            y_context=torch.from_numpy(labels[None]).to(parameter),
            x_query=x_query,
            column_kinds=torch.from_numpy(context.code.kinds[columns][None]).to(parameter.device),
            num_classes=len(order.slots),
        )


class ICLClassifier(base.ClassifierMixin, _ICLEstimator):
    """Class probabilities from a classification network.

    Everything that is refused, is refused with a `BadInput` (a ValueError) of one line; a refused `fit` leaves the
    earlier context as it was. Predictions from an array go by the place of columns, those from a DataFrame by name.

    Args:
        network: a pretrained classification network.
        num_estimators: how many random orders are averaged, 1 or more.
        seed: of those orders, 0 or more.
        cache: whether the first prediction keeps what queries read of the context (keys and values of every layer), so
            that later ones cost no work on context rows. Call fit again after changing the network's weights.
    """

    _kind = LabelKind.CLASSIFICATION

    def fit(self, X: Any, y: Any, *, column_kinds: Any = None) -> Self:
        """Stores the context.

        Args:
            X: [N, C] array or DataFrame; text and pandas categories become categories, dates and times seconds.
            y: [N] classes.
            column_kinds: [C] of 0 number, 1 ordinal, 2 category, to say so yourself.

        Raises:
            BadInput (a ValueError): TABLE_EMPTY; TABLE_LABELS; OVER_LIMIT for too many features or classes; BAD_FLAG
                for other values of column_kinds or settings; TABLE_TEXT_COLUMN; CONFIG_MISMATCH.
        """
        table, limit = self._read_table(X), self.network.config.icl.max_classes
        labels = read_classes(y, num_rows=table.num_rows)
        if len(labels.classes) > limit:
            found = len(labels.classes)
            raise BadInput(ExitCode.OVER_LIMIT, f"y has {found} classes and the model takes {limit}: merge some")
        self._keep(table, code=learn_code(table, column_kinds), y=labels.slots)
        self.classes_ = labels.classes
        return self

    @torch.no_grad()
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [M, K] of `classes_`.

        Raises:
            BadInput (a ValueError): `NotFitted` before fit; BAD_FLAG for other columns than the context's;
                TABLE_TEXT_COLUMN; TABLE_EMPTY.
        """
        return np.concatenate([self._probabilities(part) for part in self._query_parts(X)])

    def _probabilities(self, queries: np.ndarray) -> np.ndarray:
        parts = [
            found.probabilities()[0].double().cpu().numpy()[:, order.slots]
            for order, found in self._predictions(queries, num_classes=len(self.classes_))
        ]
        total = np.sum(parts, axis=0)
        return total / total.sum(-1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each query [M]."""
        places = self.predict_proba(X).argmax(-1)
        return self.classes_[places]


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


class ICLRegressor(base.RegressorMixin, _ICLEstimator):
    """Predictive means and quantiles from a regression network; arguments and refusals as for `ICLClassifier`."""

    _kind = LabelKind.REGRESSION

    def fit(self, X: Any, y: Any, *, column_kinds: Any = None) -> Self:
        """Stores the context: X [N, C] and column_kinds as for `ICLClassifier`, y [N] finite numbers.

        Raises:
            BadInput (a ValueError): as there.
        """
        table = self._read_table(X)
        targets = read_targets(y, num_rows=table.num_rows)
        self._keep(table, code=learn_code(table, column_kinds), y=targets.scaled)
        self._location, self._scale = targets.location, targets.scale
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predictive mean of each query [M]."""
        return self.forecast(X, levels=()).mean

    def predict_quantiles(self, X: Any, levels: Any) -> np.ndarray:
        """Predictive quantiles [M, S] at levels [S] in (0, 1), averaged level by level over the orders.

        Raises:
            BadInput (a ValueError): BAD_LEVEL; CONFIG_MISMATCH where the network's head predicts points only.
        """
        head = self.network.config.regression.kind
        if head is RegressionHeadKind.SCALAR:
            mend = f"use a network with a {RegressionHeadKind.BAR} or {RegressionHeadKind.QUANTILE} head, or predict"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"the network's head is {head}, which has no quantiles: {mend}")
        return self.forecast(X, levels=levels).quantiles

    @torch.no_grad()
    def forecast(self, X: Any, *, levels: Any) -> TargetForecast:
        """All that the network's head says of each query, quantiles at levels [S] in (0, 1) included where it has any.

        Raises:
            BadInput (a ValueError): BAD_LEVEL, and as for `ICLClassifier.predict_proba`.
        """
        at = _levels(levels)
        parts = [self._forecast(queries, at) for queries in self._query_parts(X)]
        return TargetForecast(
            mean=np.concatenate([part.mean for part in parts]),
            quantiles=_joined([part.quantiles for part in parts]),
            crossing_rate=_joined([part.crossing_rate for part in parts]),
        )

    def _forecast(self, queries: np.ndarray, levels: Tensor) -> TargetForecast:
        means, quantiles, crossings = [], [], []
        for _, found in self._predictions(queries):
            means.append(found.mean()[0])
            if not isinstance(found, PointPrediction):
                quantiles.append(found.icdf(levels)[0])
            if isinstance(found, QuantilePrediction):
                crossings.append(found.crossing_rate()[0])
        return TargetForecast(
            mean=_average(means) * self._scale + self._location,
            quantiles=_average(quantiles) * self._scale + self._location if quantiles else None,
            crossing_rate=_average(crossings) if crossings else None,
        )


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    """All queries again; None where the head has no such thing."""
    return None if parts[0] is None else np.concatenate(parts)


def _average(parts: list[Tensor]) -> np.ndarray:
    """The mean over the orders."""
    return torch.stack(parts).double().mean(0).cpu().numpy()


def _levels(levels: Any) -> Tensor:
    """Quantile levels [S] as fp64.

    Raises:
        BadInput: BAD_LEVEL for what is no list of numbers in (0, 1).
    """
    mend = "give a list of numbers inside (0, 1), such as [0.1, 0.9]"
    try:
        array = np.asarray(levels)
    except ValueError as error:
        raise BadInput(ExitCode.BAD_LEVEL, f"levels is {levels!r}: {mend}") from error
    if array.ndim != 1:
        raise BadInput(ExitCode.BAD_LEVEL, f"levels has shape {array.shape}: {mend}")
    if array.dtype.kind not in "biuf":
        raise BadInput(ExitCode.BAD_LEVEL, f"levels is {levels!r}: {mend}")
    at = torch.from_numpy(array.astype(np.float64))
    check_levels("levels", at)
    return at
