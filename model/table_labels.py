"""Labels as people have them → class slots, or targets of mean 0 and deviation 1; what is missing is refused."""

import dataclasses
from typing import Any

import numpy as np

from model.table_columns import is_missing
from tools.failure import BadInput, ExitCode


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassLabels:
    """Args: classes [K], sorted; slots [N], the place of each row's class among them."""

    classes: np.ndarray
    slots: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Targets:
    """Args: scaled [N] of mean 0 and deviation 1 (0 where constant); y = scaled · scale + location."""

    scaled: np.ndarray
    location: float
    scale: float


def read_classes(y: Any, *, num_rows: int) -> ClassLabels:
    """Classes of y [N]: whole numbers, text, booleans, anything that sorts.

    Raises:
        BadInput (a ValueError): TABLE_LABELS for missing or complex labels, types that do not sort, or another count.
    """
    values = _labels(y, num_rows=num_rows)
    text = [isinstance(value, str) for value in values.tolist()]
    try:
        if any(text) and not all(text):
            raise TypeError
        if values.dtype == object:
            values = np.array(values.tolist())
        classes, slots = np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values.tolist()}))
        raise BadInput(ExitCode.TABLE_LABELS, f"y holds labels of types {kinds}: make them one type") from error
    return ClassLabels(classes=classes, slots=slots)


def read_targets(y: Any, *, num_rows: int) -> Targets:
    """Targets y [N], finite numbers, scaled in fp64, so that fp32 holds any unit (year 2000 ± 1, say).

    Raises:
        BadInput (a ValueError): TABLE_LABELS for what is missing, infinite or no number, or another count.
    """
    values = _labels(y, num_rows=num_rows)
    try:
        if values.dtype.kind in "mM":
            raise TypeError(f"{values.dtype}")
        target = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(ExitCode.TABLE_LABELS, f"regression targets must be numbers ({error}): convert y") from error
    wrong = int((~np.isfinite(target)).sum())
    if wrong:
        raise BadInput(ExitCode.TABLE_LABELS, f"{wrong} targets are not finite: drop those rows")
    # A power of two near the largest magnitude: exact to divide by, and squares neither over- nor underflow after it.
    unit = float(np.ldexp(1.0, int(np.frexp(np.abs(target).max())[1]) - 1)) if target.any() else 1.0
    target = target / unit
    location, spread = float(target.mean()), float(target.std())
    if spread <= 1e-12 * abs(location):  # a constant's spread is rounding
        return Targets(scaled=np.zeros_like(target), location=location * unit, scale=1.0)
    return Targets(scaled=(target - location) / spread, location=location * unit, scale=spread * unit)


def _labels(y: Any, *, num_rows: int) -> np.ndarray:
    """y as an array [N] without missing values."""
    try:
        # Lists go through objects: NumPy would write NaN among text as the text "nan".
        values = np.asarray(y) if hasattr(y, "dtype") else np.asarray(y, object)
    except ValueError as error:
        raise BadInput(ExitCode.TABLE_LABELS, "y has rows of different lengths: give one label a row") from error
    if values.shape != (num_rows,):
        found = f"y has shape {values.shape} and X has {num_rows} rows"
        raise BadInput(ExitCode.TABLE_LABELS, f"{found}: give one label a row")
    listed = list(values)
    if any(hasattr(value, "__len__") and not isinstance(value, str | bytes) for value in listed):
        raise BadInput(ExitCode.TABLE_LABELS, "y holds more than one label in a row: give one label a row")
    missing = sum(is_missing(value) for value in listed)
    if missing:
        raise BadInput(ExitCode.TABLE_LABELS, f"y lacks {missing} of {num_rows} labels: drop those rows")
    if any(isinstance(value, complex | np.complexfloating) for value in listed):
        raise BadInput(ExitCode.TABLE_LABELS, "y holds complex numbers: give real labels")
    return values
