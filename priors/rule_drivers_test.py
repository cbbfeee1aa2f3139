"""Tests of priors.rule_drivers: bins are as full as can be, fair columns are exactly fair, probes change one thing."""

import pytest
import torch

from priors.columns import Columns
from priors.draws import Draws
from priors.rule_drivers import NUM_DRIVERS, bins_of, draw_drivers, make_fair, probes_of
from priors.task import ColumnKind

ROWS = 120


def table_of(cells: torch.Tensor, *, kind: ColumnKind = ColumnKind.NUMBER, levels: int = 0) -> Columns:
    """A table of columns [B, C, R] of one kind."""
    size = cells.shape[:2]
    return Columns(
        values=cells.clone(),
        signal=cells.clone(),
        kinds=torch.full(size, int(kind), dtype=torch.int8),
        levels=torch.full(size, levels),
    )


def fair(kind: ColumnKind, *, levels: int = 0, rows: int = ROWS) -> tuple[Columns, torch.Tensor]:
    """Tables of four columns, and the sides of their columns 2 and 0, which were written anew."""
    table = table_of(torch.zeros((50, 4, rows)), kind=kind, levels=levels)
    columns = torch.tensor([[2, 0]]).expand(50, -1)
    return table, make_fair(Draws(1), table, tasks=torch.arange(50), columns=columns)


@pytest.mark.parametrize("features", [1, 4, 9, 30])
def test_drivers_are_distinct_columns_that_repeat_in_order_where_there_are_few(features: int) -> None:
    drivers = draw_drivers(Draws(0), count=40, features=features)
    assert drivers.shape == (40, NUM_DRIVERS)
    for task in drivers.tolist():
        assert len(set(task[:features])) == min(features, NUM_DRIVERS)
        assert all(task[i] == task[i % features] for i in range(NUM_DRIVERS))
    assert features == 1 or len({tuple(task) for task in drivers.tolist()}) > 10


def test_numbers_are_cut_into_equal_bins_that_rise_with_them() -> None:
    cells = Draws(0).normal((30, 5, ROWS))
    number = torch.tensor([2, 3, 4]).repeat(10)
    bins = bins_of(table_of(cells), drivers=torch.tensor([[4, 1]]).expand(30, -1), number=number)
    for task, wanted in enumerate(number.tolist()):
        for place, column in enumerate((4, 1)):
            own = bins[task, place][cells[task, column].argsort()]
            assert own.bincount().tolist() == [ROWS // wanted] * wanted and (own.diff() >= 0).all()


def test_equal_numbers_share_a_bin_and_a_column_of_two_values_has_two() -> None:
    cells = (Draws(0).uniform((40, 1, ROWS)) > 0.9).float()
    bins = bins_of(table_of(cells), drivers=torch.zeros((40, 1), dtype=torch.int64), number=torch.full((40,), 2))
    assert torch.equal(bins, cells.long())


def test_codes_are_cut_between_levels_in_their_order() -> None:
    codes = Draws(0).integers((40, 1, ROWS), low=0, high=6).float()
    table = table_of(codes, kind=ColumnKind.ORDINAL, levels=7)
    bins = bins_of(table, drivers=torch.zeros((40, 1), dtype=torch.int64), number=torch.full((40,), 3))
    for code, part in zip(codes[:, 0], bins[:, 0], strict=True):
        of_level = [part[code == level].unique().tolist() for level in range(7)]
        assert all(len(found) == 1 for found in of_level) and of_level == sorted(of_level)
        assert set(part.tolist()) == {0, 1, 2} and part.bincount().max() < 0.65 * ROWS


@pytest.mark.parametrize("rows", [ROWS, ROWS + 1])
def test_fair_columns_have_exactly_half_of_the_rows_on_either_side(rows: int) -> None:
    table, sides = fair(ColumnKind.NUMBER, rows=rows)
    assert (sides.sum(-1) == (rows + 1) // 2).all()
    assert not table.values[:, [1, 3]].any() and table.values[:, [2, 0]].std(-1).min() > 0
    assert torch.equal(table.signal[:, 2] > 0, sides[:, 0] == 1) and torch.equal(
        table.signal[:, 0] > 0, sides[:, 1] == 1
    )


def test_fair_numbers_lie_below_or_above_a_border() -> None:
    table, sides = fair(ColumnKind.NUMBER)
    for values, side in zip(table.values[:, [2, 0]].flatten(0, 1), sides.flatten(0, 1), strict=True):
        low, high = values[side == 0], values[side == 1]
        assert low.max() < high.min() or high.max() < low.min()


@pytest.mark.parametrize("kind", [ColumnKind.ORDINAL, ColumnKind.CATEGORY])
def test_levels_of_fair_codes_belong_to_one_side(kind: ColumnKind) -> None:
    """Of ordinals: a lower and an upper part, or every other level."""
    table, sides = fair(kind, levels=5)
    ways = set()
    for values, side in zip(table.values[:, [2, 0]].flatten(0, 1), sides.flatten(0, 1), strict=True):
        low, high = set(values[side == 0].tolist()), set(values[side == 1].tolist())
        assert not low & high and low | high <= set(range(5)) and (len(low), len(high)) <= (3, 2)
        ways.add((tuple(sorted(low)), tuple(sorted(high))))
    full = {way for way in ways if len(way[0]) == 3 and len(way[1]) == 2}
    ordered = {((0, 1, 2), (3, 4)), ((0, 2, 4), (1, 3))}
    assert full == ordered if kind is ColumnKind.ORDINAL else len(full) > 5


def test_columns_of_many_levels_have_at_most_twelve_once_they_are_fair() -> None:
    table, _ = fair(ColumnKind.CATEGORY, levels=40)
    assert table.levels[:, [2, 0]].unique().tolist() == [12] and table.levels[:, [1, 3]].unique().tolist() == [40]
    assert table.values.max() <= 11


def test_probes_change_one_driver_and_its_repeats_to_another_bin() -> None:
    bins = Draws(0).integers((20, 3, 50), low=0, high=3).repeat(1, 3, 1)
    probes = probes_of(bins, distinct=3, most=16)
    assert probes.rows == 16 and probes.bins.shape == (20, 9, 48)
    before = bins[:, :, :16]
    for driver, part in enumerate(probes.bins.split(16, dim=-1)):
        differs = part != before
        own = torch.arange(9) % 3 == driver
        assert not differs[:, ~own].any() and differs[:, own].float().mean() > 0.9
        assert torch.equal(part[:, own], part[:, own][:, :1].expand(-1, 3, -1))


def test_there_are_no_more_probes_than_rows() -> None:
    assert probes_of(torch.zeros((2, 9, 5), dtype=torch.int64), distinct=4, most=16).rows == 5
