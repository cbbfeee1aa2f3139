"""Nadaraya–Watson regression: weights, the choice of width, weighted quantiles. Numpy only.

A retrieval head with identity projections is this estimator with the dot-product kernel (1.2): softmax over context
rows of q·k/√d, times the context's values. On rows of equal norm the Gaussian kernel of width d^¼ is the same softmax.

Shapes: M query rows, N context rows, P columns, V values per row (one-hot classes, or one number).
"""

import numpy as np

from priors.task import TaskKind

RELATIVE_WIDTHS = tuple(2.0 ** (step / 2) for step in range(-9, 1))
"""Candidate widths as multiples of the median distance between context rows: 0.044 to 1 in steps of √2."""

_FLOOR = 1e-6  # probabilities below it count as it when widths are compared


def dot_product_weights(query: np.ndarray, context: np.ndarray) -> np.ndarray:
    """[M, N] softmax over context rows of q·k/√P (Vaswani et al. 2017, equation 1)."""
    return _softmax(query @ context.T / np.sqrt(query.shape[1]))


def gaussian_weights(query: np.ndarray, context: np.ndarray, *, width: float) -> np.ndarray:
    """[M, N] softmax over context rows of −‖q − k‖²/(2 width²) (Nadaraya 1964; Watson 1964)."""
    return _softmax(-squared_distances(query, context) / (2 * width**2))


def chosen_width(context: np.ndarray, *, values: np.ndarray, kind: TaskKind) -> float:
    """The width with the smallest leave-one-out loss among `RELATIVE_WIDTHS` × the median distance of context rows.

    Args:
        context: [N, P].
        values: [N, V] one-hot classes or one target.
        kind: the loss, a proper score either way: NLL for classes, CRPS of the weighted targets for regression.

    Returns:
        The width; 1 where all rows coincide or there are fewer than two.
    """
    if len(context) < 2:
        return 1.0
    distances = squared_distances(context, context)
    apart = distances[np.triu_indices(len(context), 1)]
    unit = float(np.sqrt(np.median(apart))) or float(np.sqrt(apart.mean()))
    if unit == 0.0:
        return 1.0
    np.fill_diagonal(distances, np.inf)
    widths = [unit * relative for relative in RELATIVE_WIDTHS]
    losses = [_left_out_loss(distances, values=values, kind=kind, width=width) for width in widths]
    return widths[int(np.argmin(losses))]


def _left_out_loss(distances: np.ndarray, *, values: np.ndarray, kind: TaskKind, width: float) -> float:
    weights = _softmax(-distances / (2 * width**2))
    if kind is TaskKind.CLASSIFICATION:
        return float(-np.log(np.maximum((weights @ values * values).sum(axis=1), _FLOOR)).mean())
    return weighted_crps(values[:, 0], weights=weights, answers=values[:, 0])


def weighted_crps(values: np.ndarray, *, weights: np.ndarray, answers: np.ndarray) -> float:
    """Mean over rows of ∫ (F(z) − 1[z ≥ answer])² dz within the values' range.

    F steps by `weights` [M, N] at `values` [N]; `answers` [M].
    Exact for answers that are among the values (Gneiting & Raftery 2007, equation 20).
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    steps = np.cumsum(weights[:, order], axis=1)[:, :-1] - (ordered[:-1] >= answers[:, None])
    return float((steps**2 @ np.diff(ordered)).mean())


def weighted_quantiles(values: np.ndarray, *, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of a weighted sample, one sample of weights per row.

    The sorted values stand at the middles of their weights (Hazen's positions); between them the quantile is linear,
    outside constant. Values of weight 0 do not matter.

    Args:
        values: [N].
        weights: [M, N], rows sum to 1.
        levels: [L] ascending.

    Returns:
        [M, L].
    """
    order = np.argsort(values, kind="stable")
    ordered, sorted_weights = values[order], weights[:, order]
    middles = np.cumsum(sorted_weights, axis=1) - sorted_weights / 2
    out = np.empty((len(weights), len(levels)))
    for row, (middle, weight) in enumerate(zip(middles, sorted_weights, strict=True)):
        used = weight > 0
        out[row] = np.interp(levels, middle[used], ordered[used])
    return out


def squared_distances(query: np.ndarray, context: np.ndarray) -> np.ndarray:
    """[M, N] ‖q − k‖²."""
    product = query @ context.T
    total = (query**2).sum(axis=1)[:, None] + (context**2).sum(axis=1)
    return np.maximum(total - 2 * product, 0.0)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
