"""How each column becomes numbers that the network reads: learnt from the context alone.

Text and pandas categories become codes 0, 1, … of the context's levels in ascending order; a level that the context
lacks gets the next code. Numbers are reckoned in fp64 and cast to fp32 at the end: a column whose values fp32 would
merge (times, long ids) is shifted to its middle first, which the network's own standardisation takes out again.
"""

import dataclasses
import datetime
import math
import numbers
import re
from typing import Any

import numpy as np

from model.cell_embedding import CATEGORY, NUMBER, ORDINAL
from model.table_columns import Column, Table, as_number, as_numbers, as_scalars, is_missing, listed
from tools.failure import BadInput, ExitCode

KINDS = (NUMBER, ORDINAL, CATEGORY)
_WRITTEN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?")  # text like 01 keeps its zeros: a postcode
_TWINS = {"True": "1", "False": "0", "1": "True", "0": "False"}
_ROUNDING_STEPS = 8  # a column whose values differ by so few steps of its own precision is constant
_NEAR = 1e-3  # a column within this share of its magnitude around its middle loses digits that matter in fp32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnCode:
    """How a column becomes numbers, learnt from the context.

    Args:
        kind: as in `NetworkInputs.column_kinds`.
        levels: of a category: the code of each; None for numbers.
        centre: what is subtracted from numbers, in fp64.
    """

    kind: int
    levels: dict[str, int] | None = None
    centre: float = 0.0

    def encode(self, column: Column) -> np.ndarray:
        """[R] float32.

        Raises:
            BadInput (a ValueError): TABLE_TEXT_COLUMN for text in a column that held numbers in the context.
        """
        if self.levels is not None:
            return np.array([self._code(value) for value in as_scalars(column.values)], np.float32)
        try:
            return _single(as_numbers(column.values) - self.centre)
        except ValueError as error:
            what = f"{column.title} held numbers in the context and holds text ({error})"
            raise BadInput(ExitCode.TABLE_TEXT_COLUMN, f"{what}: clean it, or give it as text to fit too") from error

    def _code(self, value: Any) -> float:
        if is_missing(value):
            return math.nan
        if _is_infinite(value):
            return float(value)
        level = _level(value)
        return self.levels.get(level, self.levels.get(_TWINS.get(level, level), len(self.levels)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableCode:
    """How a table becomes numbers. Args: names as in `Table`; columns [C]."""

    names: tuple[Any, ...] | None
    columns: tuple[ColumnCode, ...]

    @property
    def kinds(self) -> np.ndarray:
        """[C] int8."""
        return np.array([column.kind for column in self.columns], np.int8)

    def encode(self, table: Table) -> np.ndarray:
        """[R, C] float32, columns in the context's order: by name where both tables have names, else by place.

        Raises:
            BadInput (a ValueError): BAD_FLAG for other columns than the context's; TABLE_TEXT_COLUMN.
        """
        columns = self._aligned(table)
        return np.stack([code.encode(column) for code, column in zip(self.columns, columns, strict=True)], axis=1)

    def _aligned(self, table: Table) -> tuple[Column, ...]:
        if self.names is None or table.names is None:
            if len(table.columns) == len(self.columns):
                return table.columns
            found = f"X has {len(table.columns)} columns and the context has {len(self.columns)}"
            raise BadInput(ExitCode.BAD_FLAG, f"{found}: give the same columns")
        by_name = dict(zip(table.names, table.columns, strict=True))
        lacking = [name for name in self.names if name not in by_name]
        surplus = [name for name in table.names if name not in set(self.names)]
        parts = [f"lacks {listed(lacking)}, which fit had"] if lacking else []
        parts += [f"has {listed(surplus)}, which fit had not"] if surplus else []
        if parts:
            raise BadInput(ExitCode.BAD_FLAG, f"X {' and '.join(parts)}: give the same columns")
        return tuple(by_name[name] for name in self.names)


def learn_code(table: Table, column_kinds: Any = None) -> TableCode:
    """What the context's table says of its columns.

    Args:
        table: the context.
        column_kinds: [C] of 0 number, 1 ordinal, 2 category; None to tell from the columns: text and pandas
            categories are categories, everything else is a number.

    Raises:
        BadInput (a ValueError): BAD_FLAG for other kinds; TABLE_TEXT_COLUMN for text that is declared a number.
    """
    given = [None] * len(table.columns) if column_kinds is None else _checked_kinds(column_kinds, len(table.columns))
    codes = tuple(_learn_column(column, kind) for column, kind in zip(table.columns, given, strict=True))
    return TableCode(names=table.names, columns=codes)


def _checked_kinds(column_kinds: Any, num_columns: int) -> list[int]:
    allowed = f"give one of {NUMBER} (number), {ORDINAL} (ordinal) and {CATEGORY} (category) a column"
    try:
        kinds = np.asarray(column_kinds)
    except ValueError as error:
        raise BadInput(ExitCode.BAD_FLAG, f"column_kinds is no list of numbers: {allowed}") from error
    if kinds.shape != (num_columns,):
        raise BadInput(ExitCode.BAD_FLAG, f"column_kinds has shape {kinds.shape} for {num_columns} columns: {allowed}")
    wrong = [kind for kind in kinds.tolist() if kind not in KINDS]
    if wrong:
        raise BadInput(ExitCode.BAD_FLAG, f"column_kinds holds {wrong[0]!r}: {allowed}")
    return [int(kind) for kind in kinds.tolist()]


def _learn_column(column: Column, kind: int | None) -> ColumnCode:
    try:
        values, text = as_numbers(column.values), None
    except ValueError as error:
        values, text = None, error
    if kind is None:
        kind = NUMBER if text is None and not column.categorical else CATEGORY
    if kind == CATEGORY:
        return ColumnCode(kind=kind, levels=_levels(column.values))
    if text is not None:
        what = f"column_kinds calls {column.title} a number and it holds text ({text})"
        raise BadInput(ExitCode.TABLE_TEXT_COLUMN, f"{what}: clean it, or declare it {CATEGORY} (category)")
    return _number_code(kind, values, precision=_precision(column.values.dtype))


def _precision(dtype: np.dtype) -> float:
    """The relative step between neighbouring values: 0 for whole numbers and times, which are exact."""
    if dtype.kind in "biumM":
        return 0.0
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


def _number_code(kind: int, values: np.ndarray, *, precision: float) -> ColumnCode:
    """A shift to the column's median where fp32 would merge values that differ, or nearly so; else none.

    Not shifted either: a column that is constant but for the rounding of its own type, which would be blown up, and
    one whose median fp32 cannot hold.
    """
    ordered = np.sort(values[np.isfinite(values)])
    middle = ordered[(len(ordered) - 1) // 2] if len(ordered) else 0.0
    if middle == 0 or np.isinf(_single(middle)):
        return ColumnCode(kind=kind)
    with np.errstate(over="ignore"):
        moved = ordered - middle
    farthest = np.abs(moved).max()
    plain, shifted = (len(np.unique(_single(part))) for part in (ordered, moved))
    merged = shifted > plain or (shifted == plain and farthest < _NEAR * np.abs(ordered).max())
    if not merged or farthest <= _ROUNDING_STEPS * precision * abs(middle):
        return ColumnCode(kind=kind)
    return ColumnCode(kind=kind, centre=float(middle))


def _single(values: np.ndarray) -> np.ndarray:
    """The same in fp32; what that cannot hold becomes ±inf."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _levels(values: np.ndarray) -> dict[str, int]:
    """The codes of the levels in the context: numbers in order of size, else text in alphabetical order."""
    found = {_level(value) for value in as_scalars(values) if not is_missing(value) and not _is_infinite(value)}
    try:
        ordered = sorted(found, key=lambda level: (float(level), level))
    except ValueError:
        ordered = sorted(found)
    return {level: code for code, level in enumerate(ordered)}


def _level(value: Any) -> str:
    """What tells levels apart: a number is the same as 1, 1.0, "1" and "1.0"."""
    if isinstance(value, str):
        if not _WRITTEN_NUMBER.fullmatch(value):
            return str(value)
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real | datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        value = as_number(value)
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isinf(value))
