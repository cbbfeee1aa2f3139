"""Labels: what is missing or no label is refused in one line; targets of any unit are scaled exactly."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from model.table_labels import read_classes, read_targets
from tools.failure import BadInput, ExitCode

MISSING = [
    [0, None, 1],
    [0.0, math.nan, 1.0],
    ["a", None, "b"],
    ["a", math.nan, "b"],
    pd.Series(["a", None, "b"]),
    pd.Series([0, None, 1], dtype="Int64"),
    pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-02"])),
    np.array(["2024-01-01", "NaT", "2024-01-02"], "M8[s]"),
]


@pytest.mark.parametrize("y", MISSING)
def test_missing_labels_are_counted_and_refused(y: Any) -> None:
    for read in (read_classes, read_targets):
        with pytest.raises(BadInput, match="y lacks 1 of 3 labels: drop those rows") as caught:
            read(y, num_rows=3)
        assert caught.value.code is ExitCode.TABLE_LABELS


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([0, "a", 1], "types int, str: make them one type"),
        (np.array([0, b"a", "x"], object), "types bytes, int, str"),
        ([0, 1], r"shape \(2,\) and X has 3 rows: give one label a row"),
        ([[0], [1], [0]], r"shape \(3, 1\)"),
        ([[0], [1, 2], [0]], "different lengths|more than one label"),
        ([1j, 0j, 1j], "complex"),
        (np.array([1j, 0, 1]), "complex"),
        (3, r"shape \(\)"),
    ],
)
def test_labels_of_no_one_type_are_refused(y: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        read_classes(y, num_rows=3)
    assert caught.value.code is ExitCode.TABLE_LABELS


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (["a", "b", "c"], "must be numbers"),
        ([1.0, math.inf, -math.inf], "2 targets are not finite"),
        ([1j, 0j, 1j], "complex"),
        (np.array(["2024-01-01"] * 3, "M8[s]"), "must be numbers"),
        ([10**400, 1, 2], "must be numbers"),
    ],
)
def test_targets_that_are_no_finite_numbers_are_refused(y: Any, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        read_targets(y, num_rows=3)


def test_classes_are_sorted_and_keep_their_type() -> None:
    found = read_classes([True, False, True], num_rows=3)
    assert found.classes.tolist() == [False, True] and found.classes.dtype == bool and found.slots.tolist() == [1, 0, 1]
    assert read_classes([3, 1, 2], num_rows=3).classes.dtype == int
    found = read_classes(pd.Series(pd.Categorical(["b", "a", "b"])), num_rows=3)
    assert found.classes.tolist() == ["a", "b"] and found.slots.tolist() == [1, 0, 1]


@pytest.mark.parametrize("unit", [2.0**-900, 2.0**-300, 2.0**300, 2.0**900])
def test_targets_of_any_unit_are_scaled_alike(unit: float) -> None:
    """6.9: bit for bit, though squares of such targets over- and underflow."""
    y = np.random.default_rng(0).normal(size=20) + 3
    plain, moved = read_targets(y, num_rows=20), read_targets(y * unit, num_rows=20)
    assert np.array_equal(plain.scaled, moved.scaled)
    assert moved.scale == plain.scale * unit and moved.location == plain.location * unit
    assert abs(plain.scaled.mean()) < 1e-12 and plain.scaled.std() == pytest.approx(1, abs=1e-12)
    assert np.allclose(plain.scaled * plain.scale + plain.location, y, atol=1e-12)
