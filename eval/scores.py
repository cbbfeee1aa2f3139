"""Scores of one episode: AUC, accuracy, NLL and ECE for classes; RMSE, R², CRPS and intervals for numbers.

Shapes: M query rows, K classes. Symbols and sources are given at each function; scikit-learn is the yardstick of the
tests. A score that the answers leave undefined (AUC with one class, R² of a constant) is NaN: such a NaN depends on
the answers alone, hence is the same for every model, and `comparison` drops and counts it. Malformed predictions are
never a NaN: they raise.
"""

import dataclasses

import numpy as np
from sklearn import metrics

TAUS = np.arange(1, 100) / 100
"""[99] the levels .01, .02, ... .99 at which every forecast states its quantiles."""

NLL_FLOOR = 1e-6
"""Probabilities are clipped to [NLL_FLOOR, 1] and renormalised before the logarithm, for every model alike."""

NUM_ECE_BINS = 15
"""Equal-width bins of the top label's confidence on [0, 1]."""

_LOW, _MIDDLE, _HIGH = 4, 49, 94  # positions of .05, .5 and .95 in TAUS: the median, and a central 90 % interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """A forecast per query row, in the units of the target.

    Args:
        mean: [M] the point forecast that RMSE and R² judge.
        quantiles: [M, 99] the quantiles at `TAUS`; None for a model that predicts points and no distribution.
        crossing_rate: [M] the share of neighbouring quantiles that the model had crossed, before any repair; None for a
            model whose quantiles cannot cross.
    """

    mean: np.ndarray
    quantiles: np.ndarray | None
    crossing_rate: np.ndarray | None = None


def classification_scores(probabilities: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Scores class probabilities.

    Args:
        probabilities: [M, K] columns by class id; rows sum to 1; an absent class has 0.
        answers: [M] class ids 0..K-1.

    Returns:
        `auc_ovr`: macro mean over the classes present in `answers` of AUC(class against the rest). `auc_ovo`: macro
        mean over pairs of present classes of the mean of both directions (Hand & Till 2001). Neither renormalises over
        the present classes, so ties stay ties. Where K is 2 both are the AUC of column 1. NaN when fewer than two
        classes are present. `accuracy` of the largest column. `nll`: mean −log p(answer) after `NLL_FLOOR`. `ece`:
        expected calibration error (Guo et al. 2017, equation 3) with `NUM_ECE_BINS` bins of the top label.

    Raises:
        ValueError: shapes that do not fit, values that are not finite or negative, rows that do not sum to 1 (such as
            log-probabilities), answers outside 0..K-1.
    """
    p = np.asarray(probabilities, np.float64)
    y = np.asarray(answers).astype(np.int64)
    _check_probabilities(p, y)
    top = p.argmax(axis=1)
    return {
        "auc_ovr": one_vs_rest_auc(p, y),
        "auc_ovo": one_vs_one_auc(p, y),
        "accuracy": float(metrics.accuracy_score(y, top)),
        "nll": negative_log_likelihood(p, y),
        "ece": calibration_error(p.max(axis=1), top == y),
    }


def regression_scores(forecast: Forecast, answers: np.ndarray, *, scale: float = 1.0) -> dict[str, float]:
    """Scores forecasts.

    Args:
        forecast: mean and quantiles for M query rows.
        answers: [M] targets.
        scale: what one unit of the score is. 1 keeps the target's own units (real tables). Synthetic targets have
            arbitrary scales: there it is the standard deviation of the context targets, so that tasks can be averaged.

    Returns:
        `rmse`, `crps`, `mae` and `width90` are in units of `scale`. `rmse` and `r2` (NaN for a constant target) are of
        the mean. Where there are quantiles: `crps` is 2 × the mean pinball loss over `TAUS` (Gneiting & Ranjan 2011,
        equation 17, as a sum over 99 levels); `mae` is of the median; `coverage90` is the share of answers within
        [q.05, q.95], both ends included, and `width90` its mean width. Where there is a crossing rate: `crossing_rate`,
        its mean. A point forecast has no score of a distribution.

    Raises:
        ValueError: shapes that do not fit, values that are not finite, a scale that is not positive.
    """
    mean, y = np.asarray(forecast.mean, np.float64), np.asarray(answers, np.float64)
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale is {scale}: a positive number is needed")
    if mean.shape != y.shape or not len(y):
        raise ValueError(f"mean {mean.shape} does not fit {len(y)} answers")
    if not (np.isfinite(mean).all() and np.isfinite(y).all()):
        raise ValueError("a mean or an answer is not finite")
    varies = len(y) > 1 and np.ptp(y) > 0
    found = {
        "rmse": float(metrics.root_mean_squared_error(y, mean)) / scale,
        "r2": float(metrics.r2_score(y, mean)) if varies else float("nan"),
    }
    if forecast.quantiles is not None:
        found |= _quantile_scores(np.asarray(forecast.quantiles, np.float64), y, scale=scale)
    if forecast.crossing_rate is not None:
        found["crossing_rate"] = _crossing_rate(np.asarray(forecast.crossing_rate, np.float64), len(y))
    return found


def _quantile_scores(quantiles: np.ndarray, y: np.ndarray, *, scale: float) -> dict[str, float]:
    if quantiles.shape != (len(y), len(TAUS)):
        raise ValueError(f"quantiles {quantiles.shape} do not fit {len(y)} answers, {len(TAUS)} levels")
    if not np.isfinite(quantiles).all():
        raise ValueError("a quantile is not finite")
    low, middle, high = quantiles[:, _LOW], quantiles[:, _MIDDLE], quantiles[:, _HIGH]
    return {
        "crps": 2 * pinball_loss(quantiles, y) / scale,
        "mae": float(np.abs(y - middle).mean()) / scale,
        "coverage90": float(np.mean((low <= y) & (y <= high))),
        "width90": float(np.mean(high - low)) / scale,
    }


def _crossing_rate(rates: np.ndarray, num_answers: int) -> float:
    if rates.shape != (num_answers,) or not ((rates >= 0) & (rates <= 1)).all():
        raise ValueError(f"crossing rates {rates.shape} are not {num_answers} shares between 0 and 1")
    return float(rates.mean())


def one_vs_rest_auc(probabilities: np.ndarray, answers: np.ndarray) -> float:
    """Macro AUC of each present class against all others; column 1 alone where K is 2."""
    present = np.unique(answers)
    if len(present) < 2:
        return float("nan")
    judged = (1,) if probabilities.shape[1] == 2 else present
    columns = ((probabilities[:, k], answers == k) for k in judged)
    return float(np.mean([binary_auc(column[own], column[~own]) for column, own in columns]))


def one_vs_one_auc(probabilities: np.ndarray, answers: np.ndarray) -> float:
    """Macro AUC over ordered pairs (a, b) of present classes: column a on the rows of a against the rows of b."""
    present = np.unique(answers)
    if len(present) < 2:
        return float("nan")
    if probabilities.shape[1] == 2:
        return one_vs_rest_auc(probabilities, answers)
    pairs = []
    for a in present:
        column = probabilities[:, a]
        own = column[answers == a]
        pairs += [binary_auc(own, column[answers == b]) for b in present if b != a]
    return float(np.mean(pairs))


def binary_auc(positives: np.ndarray, negatives: np.ndarray) -> float:
    """P(positive scores higher) + ½ P(tie) over all pairs of the two samples (Mann–Whitney U / product of sizes)."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left")
    not_above = np.searchsorted(ordered, positives, "right")
    return float((below + not_above).mean() / (2 * len(ordered)))


def negative_log_likelihood(probabilities: np.ndarray, answers: np.ndarray) -> float:
    """Mean −log p(answer) in nats, p clipped to [`NLL_FLOOR`, 1] and renormalised over the K classes."""
    p = np.clip(probabilities, NLL_FLOOR, 1)
    chosen = np.take_along_axis(p, answers[:, None], axis=1)[:, 0]
    return float(np.mean(np.log(p.sum(axis=1)) - np.log(chosen)))


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Mean over `NUM_ECE_BINS` equal-width bins, weighted by their rows, of |accuracy − mean confidence|."""
    bins = np.minimum((confidence * NUM_ECE_BINS).astype(np.int64), NUM_ECE_BINS - 1)
    gaps = np.bincount(bins, weights=correct - confidence, minlength=NUM_ECE_BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def pinball_loss(quantiles: np.ndarray, answers: np.ndarray) -> float:
    """Mean over rows and `TAUS` of max(τ(y − q), (τ − 1)(y − q)); quantiles [M, 99], answers [M]."""
    error = answers[:, None] - quantiles
    return float(np.maximum(TAUS * error, (TAUS - 1) * error).mean())


def _check_probabilities(p: np.ndarray, y: np.ndarray) -> None:
    if p.ndim != 2 or y.shape != p.shape[:1] or not p.size:
        raise ValueError(f"probabilities {p.shape} do not fit {len(y)} answers")
    if not np.isfinite(p).all() or p.min() < 0:
        raise ValueError("a probability is negative or not finite (are these log-probabilities or logits?)")
    worst = float(np.abs(p.sum(axis=1) - 1).max())
    if worst > 1e-3:
        raise ValueError(f"a row of probabilities is off 1 by {worst:.3g} in its sum")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(f"answers {y.min()}..{y.max()} are not class ids of {p.shape[1]} columns")
