"""The table of symmetries: each number stands at its change, and only what was measured has a row."""

from typing import Any

from reports.symmetry import symmetry_of

SIZES: dict[str, Any] = {
    f"{change}/{number}/{statistic}": index * 10.0 + number + (0.5 if statistic == "max" else 0.0)
    for index, change in enumerate(("column_order", "class_slots", "context_order"))
    for number in (16, 2)
    for statistic in ("max", "mean")
}


def test_each_change_has_its_sizes_by_ascending_numbers_of_orders() -> None:
    """6.3: one pass beside averages; a mean, then the largest."""
    found = symmetry_of({"symmetry": SIZES}, kind="classification")
    assert found is not None and found.num_orders == [2, 16] and "total variation" in found.unit
    assert [change.sizes for change in found.changes] == [
        [(2.0, 2.5), (16.0, 16.5)],
        [(12.0, 12.5), (26.0, 26.5)],
        [(22.0, 22.5), (36.0, 36.5)],
    ]
    assert [change.name.split()[0] for change in found.changes] == ["columns", "classes", "context"]
    assert all(change.meaning for change in found.changes)


def test_a_change_that_was_not_measured_has_no_row() -> None:
    """Regression has no class slots; a run without the key has no table."""
    sizes = {key: size for key, size in SIZES.items() if not key.startswith("class_slots")}
    found = symmetry_of({"symmetry": sizes}, kind="regression")
    assert found is not None and len(found.changes) == 2 and "standard deviations" in found.unit
    assert symmetry_of({}, kind="regression") is None and symmetry_of({"symmetry": {}}, kind="regression") is None
