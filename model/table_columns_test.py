"""Reading tables: what is no table of single values is refused in one line; missing marks are one thing."""

import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from model.table_columns import as_numbers, read_table
from tools.failure import BadInput, ExitCode


@pytest.mark.parametrize(
    ("x", "match"),
    [
        ([[1.0], [1.0, 2.0]], "rows of different lengths"),
        (np.zeros(3), r"shape \(3,\): give a table of rows and columns"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (None, r"shape \(\)"),
        (pd.Series([1.0, 2.0]), r"shape \(2,\)"),
    ],
)
def test_what_is_no_table_is_refused(x: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        read_table(x)
    assert caught.value.code is ExitCode.TABLE_EMPTY


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (pd.DataFrame(np.zeros((2, 3)), columns=["a", "b", "a"]), "more than one column 'a': give each its own name"),
        (pd.DataFrame({"a": [[1, 2], [3]]}), "column 'a' holds a list in one cell"),
        (pd.DataFrame({"a": [np.zeros(2), 3]}), "column 'a' holds a ndarray in one cell"),
        (np.array([[1, {"b": 2}]], object), "column 1 holds a dict in one cell"),
        (np.array([[1 + 2j]]), r"column 0 holds the complex number \(1\+2j\)"),
        ([[1.0, 1j]], "column 0 holds the complex number"),
        (pd.DataFrame({"a": [None, 1j]}, dtype=object), "column 'a' holds the complex number 1j"),
    ],
)
def test_cells_hold_one_real_value_and_columns_one_name(x: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        read_table(x)
    assert caught.value.code is ExitCode.BAD_FLAG and "\n" not in str(caught.value)


def test_every_mark_of_a_missing_value_is_nan() -> None:
    marks = [None, math.nan, pd.NaT, pd.NA, np.float32("nan"), np.datetime64("NaT"), decimal.Decimal("NaN")]
    assert np.isnan(as_numbers(np.array(marks, object))).all()
    for dtype in ("Int64", "Float64", "boolean"):
        found = as_numbers(read_table(pd.DataFrame({"a": pd.array([1, None], dtype=dtype)})).columns[0].values)
        assert found[0] == 1 and math.isnan(found[1])
    masked = np.ma.array([[1.0], [2.0]], mask=[[False], [True]])
    found = as_numbers(read_table(masked).columns[0].values)
    assert found[0] == 1 and math.isnan(found[1])


def test_nested_lists_keep_nan_beside_text() -> None:
    """NumPy alone would make it the text nan."""
    table = read_table([["a", math.nan], ["b", 2.0]])
    assert math.isnan(table.columns[1].values[0]) and table.columns[1].values[1] == 2.0


def test_what_fp64_cannot_hold_is_infinite() -> None:
    assert as_numbers(np.array([10**400, -(10**400), "1e999"], object)).tolist() == [math.inf, -math.inf, math.inf]
