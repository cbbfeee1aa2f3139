"""How columns become numbers: nothing that differs is merged, nothing that is equal is told apart."""

import datetime
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from model.cell_embedding import CATEGORY, NUMBER, ORDINAL
from model.column_codes import TableCode, learn_code
from model.table_columns import read_table
from tools.failure import BadInput, ExitCode


def _learnt(context: Any, kinds: Any = None) -> tuple[TableCode, np.ndarray]:
    table = read_table(context)
    code = learn_code(table, kinds)
    return code, code.encode(table)


def _column(values: Any, *, query: Any = None, kind: int | None = None) -> tuple[int, list[float], list[float]]:
    """The kind of one column and its codes, in the context and in a query."""
    frame = pd.DataFrame({"a": values})
    code, coded = _learnt(frame, None if kind is None else [kind])
    asked = frame if query is None else pd.DataFrame({"a": query})
    return int(code.kinds[0]), coded[:, 0].tolist(), code.encode(read_table(asked))[:, 0].tolist()


@pytest.mark.parametrize("kind", [NUMBER, ORDINAL])
@pytest.mark.parametrize("start", [1.7e9, -1.7e9, 1e15])
def test_values_that_fp32_would_merge_keep_their_distances(kind: int, start: float) -> None:
    """Shifted in fp64, before the cast; a query is shifted by the context's middle."""
    values = start + np.arange(40)
    _, coded, asked = _column(values, query=values[:3] + 0.5, kind=kind)
    assert np.diff(coded).tolist() == [1.0] * 39
    assert np.subtract(asked, coded[:3]).tolist() == [0.5] * 3


def test_a_far_outlier_costs_the_other_values_nothing() -> None:
    """The middle is the median: neither a mark such as 0 among times nor 1e300 moves it."""
    times = np.append(1.7e9 + np.arange(40), 0.0)
    assert len(set(_column(times)[1])) == 41
    found = _column([*range(20), 1e300, -1e300, math.inf, -math.inf, math.nan])[1]
    assert found[:20] == list(range(20)) and found[20:24] == [math.inf, -math.inf] * 2 and math.isnan(found[24])


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6, 1e30, 1e300])
def test_columns_that_fp32_holds_are_cast_as_they_are(scale: float) -> None:
    """No bit of an ordinary table changes, small values beside large ones included."""
    generator = np.random.default_rng(0)
    for values in (generator.normal(size=50), generator.lognormal(sigma=4, size=50), np.arange(1990.0, 2020)):
        with np.errstate(over="ignore"):
            expected = (scale * values).astype(np.float32)
        assert np.array_equal(_column(scale * values)[1], expected)


def test_a_column_that_is_constant_but_for_rounding_stays_constant() -> None:
    """0.1 + 0.2 is not 0.3: standardising must not blow that up."""
    assert len(set(_column([0.3, 0.1 + 0.2] * 10)[1])) == 1
    steps = np.float32(1000.0) + np.float32(6.1e-5) * np.arange(4, dtype=np.float32)
    assert np.array_equal(_column(steps)[1], steps)


def test_ids_declared_categories_are_told_apart_and_unseen_ones_follow_the_last() -> None:
    """Their codes are places among the context's levels in order of size, so that fp32 merges none."""
    ids = [20000001, 20000000, 3, 9007199254740993, 9007199254740992]
    kind, coded, asked = _column(ids, query=[20000001, 7], kind=CATEGORY)
    assert kind == CATEGORY and coded == [2, 1, 0, 4, 3] and asked == [2, 5]
    assert _column([0.0, 2.0, 1.0, 3.0], kind=CATEGORY)[1] == [0, 2, 1, 3]  # codes 0..K-1 stay what they are
    found = _column([4.0, math.inf, -math.inf, math.nan, 9.0], kind=CATEGORY)[1]
    assert found[:3] == [0, math.inf, -math.inf] and math.isnan(found[3]) and found[4] == 1


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["b", "a", None, "b"], [1, 0, math.nan, 1]),
        ([10, 9, None, 10], [1, 0, math.nan, 1]),
        ([True, False, None, True], [1, 0, math.nan, 1]),
        ([0.5, -2.0, None, 0.5], [1, 0, math.nan, 1]),
    ],
)
def test_pandas_categories_are_categories_whatever_they_hold(levels: list[Any], expected: list[float]) -> None:
    """Text, numbers or booleans; the same values without the dtype are the same levels."""
    kind, coded, asked = _column(pd.Categorical(levels), query=pd.Series(levels, dtype=object))
    assert kind == CATEGORY
    np.testing.assert_array_equal(coded, expected)
    np.testing.assert_array_equal(asked, expected)


def test_a_number_is_one_level_however_pandas_read_it() -> None:
    """A column with text in the context may have none in the query, and come as int, float or bool."""
    context = ["1", "2", "01", "2.5", "high", "True"]
    for query in (["1", "2"], [1, 2], [1.0, 2.0], ["1.0", "2.0"], np.array([1, 2], np.float32)):
        found = _column(context, query=query)
        assert found[0] == CATEGORY and found[2] == [found[1][0], found[1][1]]
    assert _column(context, query=[2.5, math.nan])[2][0] == _column(context)[1][3]
    assert _column(context, query=[True])[2] == [_column(context)[1][5]]
    assert len(set(_column(context)[1])) == 6  # 01 is not 1
    assert _column(pd.Categorical([True, False]), query=[1, 0])[2] == [1, 0]
    assert _column(pd.Categorical([0, 1]), query=[True, False])[2] == [1, 0]
    assert _column([1, 2, "high"], query=["1", 2.0, "low"])[2] == [0, 1, 3]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_dates_and_times_are_seconds(unit: str, zone: str | None) -> None:
    """Naive or with a zone, in any unit; NaT is missing; neighbouring seconds stay apart."""
    times = pd.Series(pd.date_range("2024-03-01", periods=30, freq="s", tz=zone)).dt.as_unit(unit)
    kind, coded, asked = _column(times, query=pd.Series([times[3], pd.NaT]))
    assert kind == NUMBER and np.diff(coded).tolist() == [1.0] * 29
    assert asked[0] == coded[3] and math.isnan(asked[1])
    assert _column(times.astype(object))[1] == coded


def test_one_instant_is_one_number_and_naive_times_are_utc() -> None:
    """Zones of context and query may differ; dates, datetimes and NumPy's times follow the same rule."""
    naive = [datetime.datetime(2024, 3, 1, hour) for hour in range(5)]
    aware = [
        time.replace(tzinfo=datetime.UTC).astimezone(datetime.timezone(datetime.timedelta(hours=-5))) for time in naive
    ]
    expected = _column(naive)[1]
    for same in (aware, np.array(naive, "M8[s]"), pd.Series(np.array(naive, "M8[s]")).astype(object)):
        assert _column(naive, query=same)[2] == expected
    assert _column([datetime.date(2024, 3, 1)], query=[datetime.datetime(2024, 3, 1)])[2] == [np.float32(1709251200)]
    assert _column(pd.to_timedelta([1, 90], unit="s"))[1] == [1.0, 90.0]


def test_columns_are_put_in_order_by_name() -> None:
    """An array has no names: its columns go by place."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], 3: [5.0, 6.0]})
    code, coded = _learnt(frame)
    assert np.array_equal(code.encode(read_table(frame[[3, "b", "a"]])), coded)
    assert np.array_equal(code.encode(read_table(frame.to_numpy())), coded)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"columns": ["a"]}, "X lacks 'b', which fit had: give the same columns"),
        ({"columns": ["a", "b", "c"]}, "X has 'c', which fit had not"),
        ({"columns": ["a", "B"]}, "X lacks 'b', which fit had and has 'B', which fit had not"),
    ],
)
def test_other_columns_are_refused_by_name(change: dict[str, Any], match: str) -> None:
    code, _ = _learnt(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    table = read_table(pd.DataFrame(np.zeros((2, len(change["columns"]))), columns=change["columns"]))
    with pytest.raises(BadInput, match=match) as caught:
        code.encode(table)
    assert caught.value.code is ExitCode.BAD_FLAG


@pytest.mark.parametrize("wrong", [3, -1, 0.5, 300, math.nan, None, "number", 2 + 1j, [0]])
def test_kinds_of_columns_are_0_1_or_2(wrong: Any) -> None:
    with pytest.raises(BadInput, match="column_kinds .*give one of 0 .number., 1 .ordinal. and 2 .category."):
        _learnt(np.zeros((3, 2)), [0, wrong])
    if not isinstance(wrong, list):
        with pytest.raises(BadInput, match=f"column_kinds holds '?{re.escape(str(wrong))}"):
            _learnt(np.zeros((3, 1)), [wrong] if not isinstance(wrong, complex) else np.array([wrong]))


@pytest.mark.parametrize("kind", [NUMBER, ORDINAL])
def test_text_is_no_number_even_if_declared_one(kind: int) -> None:
    with pytest.raises(BadInput, match="calls column 'a' a number and it holds text .'x'."):
        _column(["x", "y"], kind=kind)
    with pytest.raises(BadInput, match="column 'a' held numbers in the context and holds text .'x'."):
        _column([1.0, 2.0], query=[1.0, "x"])
