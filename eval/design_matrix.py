"""What scikit-learn can read of one table's evidence: imputed, scaled and one-hot, fitted on context rows alone.

Shapes: N context rows, M query rows, C features, P columns of the design.
"""

import dataclasses

import numpy as np

from priors.task import ColumnKind, Evidence

MAX_LEVELS = 30
"""Levels of a category that get a column of their own, the most frequent first; the others share none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """Finite float64 matrices (or with NaN, where the maker says so).

    Args:
        context: [N, P].
        query: [M, P].
    """

    context: np.ndarray
    query: np.ndarray


def standardised(evidence: Evidence) -> Design:
    """For distances and linear models.

    Numbers and ordinals: ±inf becomes the largest or smallest finite context value, missing the context median; then
    minus the context mean, over the context standard deviation. Categories: one 0/1 column per context level (at most
    `MAX_LEVELS`) and one for missing; a level that the context lacks is all zeros.
    """
    parts = []
    for position, kind in enumerate(evidence.column_kinds):
        context, query = _column(evidence, position)
        if kind == ColumnKind.CATEGORY:
            parts.append(_one_hot(context, query))
        elif kind != ColumnKind.ABSENT:
            parts.append(_z_scores(context, query))
    return _joined(parts, evidence)


def ordinal(evidence: Evidence) -> Design:
    """For trees: numbers as they are with NaN, ±inf becoming an extreme context value.

    Categories are their codes; a missing value and a level that the context lacks share the code −1.
    """
    parts = []
    for position, kind in enumerate(evidence.column_kinds):
        if kind != ColumnKind.ABSENT:
            context, query = _column(evidence, position)
            if kind == ColumnKind.CATEGORY:
                query = np.where(np.isin(query, context), query, -1)
                context = np.where(np.isnan(context), -1, context)
            parts.append(Design(context=context[:, None], query=query[:, None]))
    return _joined(parts, evidence)


def _column(evidence: Evidence, position: int) -> tuple[np.ndarray, np.ndarray]:
    """A column's context [N] and query [M] values without ±inf."""
    context = evidence.x_context[:, position].astype(np.float64)
    query = evidence.x_query[:, position].astype(np.float64)
    finite = context[np.isfinite(context)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    bounded = (np.where(np.isinf(part), np.where(part > 0, high, low), part) for part in (context, query))
    return tuple(bounded)


def _z_scores(context: np.ndarray, query: np.ndarray) -> Design:
    known = context[~np.isnan(context)]
    fill = np.median(known) if len(known) else 0.0
    context, query = np.where(np.isnan(context), fill, context), np.where(np.isnan(query), fill, query)
    mean, deviation = context.mean(), context.std()
    deviation = deviation if deviation > 0 else 1.0
    return Design(context=(context - mean)[:, None] / deviation, query=(query - mean)[:, None] / deviation)


def _one_hot(context: np.ndarray, query: np.ndarray) -> Design:
    levels, sizes = np.unique(context[~np.isnan(context)], return_counts=True)
    kept = levels[np.argsort(-sizes, kind="stable")[:MAX_LEVELS]]
    columns = [np.concatenate([part[:, None] == kept, np.isnan(part)[:, None]], axis=1) for part in (context, query)]
    return Design(context=columns[0].astype(np.float64), query=columns[1].astype(np.float64))


def _joined(parts: list[Design], evidence: Evidence) -> Design:
    """Columns side by side; a table without any gets one column of zeros."""
    rows = (len(evidence.x_context), len(evidence.x_query))
    parts = parts or [Design(context=np.zeros((rows[0], 1)), query=np.zeros((rows[1], 1)))]
    return Design(
        context=np.concatenate([part.context for part in parts], axis=1),
        query=np.concatenate([part.query for part in parts], axis=1),
    )
