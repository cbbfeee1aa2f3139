"""Tables as people have them → columns of numbers or text, before anything is learnt from them.

Dates and times become seconds (naive ones are read as UTC), durations too. Missing marks (None, NaN, NaT, pandas.NA)
become NaN.
"""

import dataclasses
import datetime
import math
from typing import Any

import numpy as np

from tools.failure import BadInput, ExitCode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column as it came. Args: title, how messages call it; values [R] of any type; categorical, by its dtype."""

    title: str
    values: np.ndarray
    categorical: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table as it came. Args: names of the columns of a DataFrame, None for an array; columns [C]."""

    names: tuple[Any, ...] | None
    columns: tuple[Column, ...]

    @property
    def num_rows(self) -> int:
        """R; 0 without columns."""
        return len(self.columns[0].values) if self.columns else 0


def read_table(x: Any) -> Table:
    """The columns of an array [R, C], nested lists or a DataFrame.

    Raises:
        BadInput (a ValueError): TABLE_EMPTY for what is no table; BAD_FLAG for two columns of one name, cells that hold
            more than one value, and complex numbers.
    """
    if hasattr(x, "columns"):
        names = tuple(x.columns)
        twice = [name for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise BadInput(ExitCode.BAD_FLAG, f"X has more than one column {listed(twice)}: give each its own name")
        parts = [(f"column {name!r}", x[name]) for name in names]
    else:
        names = None
        parts = [(f"column {index}", part) for index, part in enumerate(_array(x).T)]
    columns = []
    for title, part in parts:
        categorical = getattr(getattr(part, "dtype", None), "categories", None) is not None
        columns.append(Column(title=title, values=np.asarray(part), categorical=categorical))
        _check_cells(columns[-1])
    return Table(names=names, columns=tuple(columns))


def as_numbers(values: np.ndarray) -> np.ndarray:
    """[R] float64.

    Raises:
        ValueError: the first value that is no number.
    """
    if values.dtype.kind in "mM":
        return _seconds(values)
    if values.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return values.astype(np.float64)
    return np.array([as_number(value) for value in values.tolist()], np.float64)


def as_scalars(values: np.ndarray) -> list[Any]:
    """The values [R] one by one, of Python's types; times and durations in seconds."""
    return (_seconds(values) if values.dtype.kind in "mM" else values).tolist()


def as_number(value: Any) -> float:
    """One value; what is missing is NaN, what fp64 cannot hold ±inf.

    Raises:
        ValueError: the value, where it is no number.
    """
    if is_missing(value):
        return math.nan
    if isinstance(value, np.datetime64 | np.timedelta64):
        return float(_seconds(np.asarray(value)))
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.date):
        return _timestamp(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError) as error:
        raise ValueError(repr(value)) from error


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _array(x: Any) -> np.ndarray:
    if isinstance(x, np.ma.MaskedArray):
        x = np.where(np.ma.getmaskarray(x), None, x.data)
    try:
        array = np.asarray(x)
        if array.dtype.kind in "US" and not hasattr(x, "dtype"):
            array = np.asarray(x, object)  # NumPy would have written NaN as text
    except ValueError as error:
        raise BadInput(
            ExitCode.TABLE_EMPTY, "X has rows of different lengths: give a table of rows and columns"
        ) from error
    if array.ndim != 2:
        raise BadInput(ExitCode.TABLE_EMPTY, f"X has shape {array.shape}: give a table of rows and columns")
    return array


def _check_cells(column: Column) -> None:
    values = column.values
    if values.ndim != 1:
        raise BadInput(ExitCode.BAD_FLAG, f"{column.title} has shape {values.shape}: give one value a row")
    if values.dtype.kind not in "Oc":
        return
    for value in values:
        if hasattr(value, "__len__") and not isinstance(value, str | bytes):
            what = f"{column.title} holds a {type(value).__name__} in one cell"
            raise BadInput(ExitCode.BAD_FLAG, f"{what}: give each of its parts a column")
        if isinstance(value, complex | np.complexfloating):
            mend = "give real and imaginary part a column each"
            raise BadInput(ExitCode.BAD_FLAG, f"{column.title} holds the complex number {value}: {mend}")


def _timestamp(value: datetime.date) -> float:
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()


def _seconds(values: np.ndarray) -> np.ndarray:
    """Seconds since 1970, or of durations; NaT becomes NaN."""
    spans = values - np.datetime64(0, "s") if values.dtype.kind == "M" else values
    return spans / np.timedelta64(1, "s")


def listed(names: list[Any]) -> str:
    """The first few names."""
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
