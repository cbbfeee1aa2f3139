"""Temperature: one number that sharpens or softens a classifier, fitted on calibration tasks alone (seed 6.7).

The labels that a score is made with never take part: `fit_temperature` is given other tasks' predictions and answers.
p ∝ exp(log p / T) is renormalised over the classes present (Guo et al. 2017, section 4.2); T = 1 changes nothing.
Shapes: M query rows, K classes.
"""

from collections.abc import Iterable

import numpy as np

_LOG_RANGE = 3.0  # temperatures from e^-3 to e^3
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def tempered(log_p: np.ndarray, temperature: float) -> np.ndarray:
    """log p [M, K] at a temperature; classes of probability 0 (minus infinity) keep it.

    Raises:
        ValueError: for a temperature that is not a positive number.
    """
    if not temperature > 0 or not np.isfinite(temperature):
        raise ValueError(f"temperature is {temperature}: give a positive number")
    logits = log_p / temperature
    highest = logits.max(axis=1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))


def fit_temperature(tasks: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """The temperature of least mean NLL over calibration tasks, by golden-section search on its logarithm.

    Each task weighs the same. The NLL is convex in 1/T, so it has one minimum on the range searched.

    Args:
        tasks: log p [M, K] and class ids [M] of each calibration task; queries whose class has probability 0 are left
            out, since no temperature moves them.

    Raises:
        ValueError: without a query that can be answered.
    """
    kept = []
    for log_p, answers in tasks:
        told = log_p[np.arange(len(answers)), answers.astype(int)]
        if np.isfinite(told).any():
            kept.append((log_p[np.isfinite(told)], answers[np.isfinite(told)].astype(int)))
    if not kept:
        raise ValueError("calibration tasks hold no query whose class is in its context: give others")

    def nll(log_temperature: float) -> float:
        parts = [tempered(log_p, np.exp(log_temperature)) for log_p, _ in kept]
        return float(np.mean([-part[np.arange(len(y)), y].mean() for part, (_, y) in zip(parts, kept, strict=True)]))

    low, high = -_LOG_RANGE, _LOG_RANGE
    while high - low > 1e-4:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, right) if nll(left) < nll(right) else (left, high)
    return float(np.exp(0.5 * (low + high)))
