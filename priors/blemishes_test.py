"""Tests of priors.blemishes: outliers, and cells that go missing in four ways."""

import dataclasses

import pytest
import torch

from priors.blemishes import blemish
from priors.columns import ColumnConfig, Columns
from priors.draws import Draws
from priors.task import ColumnKind

NONE = ColumnConfig(outlier_share=0.0, missing_share=0.0)
HOLED = dataclasses.replace(NONE, missing_share=1.0, block_share=0.0, max_missing=0.3)


def table(*, count: int = 300, features: int = 6, rows: int = 400, kind: ColumnKind = ColumnKind.NUMBER) -> Columns:
    """Independent normal columns, shown as they are."""
    values = Draws(1).normal((count, features, rows))
    kinds = torch.full((count, features), int(kind), dtype=torch.int8)
    return Columns(values=values, signal=values.clone(), kinds=kinds, levels=torch.zeros((count, features)).long())


def relations(columns: Columns, missing: torch.Tensor) -> torch.Tensor:
    """[B, C, C] correlation of the gaps of each column (first axis) with the signal of each column."""
    gaps = missing.float()
    gaps = gaps - gaps.mean(-1, keepdim=True)
    gaps = gaps / gaps.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)
    return gaps @ columns.signal.transpose(1, 2) / gaps.shape[-1]


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    columns = table()
    assert torch.equal(blemish(Draws(0), columns, config=NONE), columns.values)


def test_cells_go_missing_at_random_by_their_value_or_by_another_column() -> None:
    """The gaps of a column are related to its own value, to one other column, or to none."""
    columns = table(rows=1000)
    values = blemish(Draws(0), columns, config=HOLED)
    missing = values.isnan()
    rate = missing.float().mean(-1)
    assert torch.equal(values[~missing], columns.values[~missing])
    strong = (relations(columns, missing).abs() > 0.2)[rate > 0.04]
    own = torch.arange(6).expand(300, 6)[rate > 0.04].unsqueeze(-1) == torch.arange(6)
    by_value, by_another = (strong & own).any(-1), (strong & ~own).any(-1)
    assert (by_value & by_another).float().mean() < 0.01 and strong.sum(-1).max() == 1
    assert 0.2 < by_value.float().mean() < 0.45 and 0.12 < by_another.float().mean() < 0.3
    assert (~strong.any(-1)).float().mean() > 0.4


def test_gaps_at_random_are_related_to_nothing() -> None:
    """The largest relation of columns without a strong one is what independent gaps have."""
    columns = table(rows=2000, features=4)
    missing = blemish(Draws(0), columns, config=HOLED).isnan()
    largest = relations(columns, missing).abs().amax(-1)[missing.float().mean(-1) > 0.04]
    chance = 1 / 2000**0.5
    assert (largest < 3.5 * chance).float().mean() > 0.4
    between = ((largest > 4 * chance) & (largest < 0.2)).float().mean()
    assert between < 0.1


def test_rates_of_gaps_differ_between_tasks_and_columns_without_gaps_remain() -> None:
    missing = blemish(Draws(0), table(), config=HOLED).isnan().float().mean(-1)
    assert 0.02 < missing.mean() < 0.15 and missing.max() < 0.65 and 0.15 < (missing == 0).float().mean() < 0.6
    some = blemish(Draws(0), table(), config=dataclasses.replace(HOLED, missing_share=0.3)).isnan()
    assert some.flatten(1).any(-1).float().mean() == pytest.approx(0.3, abs=0.08)


def test_in_blocks_several_columns_are_missing_on_the_same_rows() -> None:
    shared = []
    for share in (0.0, 1.0):
        missing = blemish(Draws(0), table(), config=dataclasses.replace(HOLED, block_share=share)).isnan()
        holed = missing.float().mean(-1) > 0.01
        pairs = 0
        same = 0
        for task, columns in zip(missing, holed, strict=True):
            gaps = task[columns]
            alike = (gaps.unsqueeze(0) == gaps.unsqueeze(1)).all(-1)
            same += int(alike.sum()) - len(gaps)
            pairs += len(gaps) * (len(gaps) - 1)
        shared.append(same / pairs)
    assert shared[0] < 0.01 and shared[1] == 1.0


def test_blocks_go_missing_at_random_or_by_one_column() -> None:
    columns = table(rows=1000)
    missing = blemish(Draws(0), columns, config=dataclasses.replace(HOLED, block_share=1.0)).isnan()
    strong = (relations(columns, missing).abs() > 0.2)[missing.float().mean(-1) > 0.04]
    assert strong.sum(-1).max() == 1 and 0.2 < strong.any(-1).float().mean() < 0.7


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_outliers_lie_far_out_in_few_cells_of_number_columns(share: float) -> None:
    columns = table(count=100)
    columns.kinds[:, 1::2] = int(ColumnKind.CATEGORY)
    values = blemish(Draws(1), columns, config=dataclasses.replace(NONE, outlier_share=share))
    moved = values != columns.values
    assert (moved.float().mean() > 0.001) == (share == 1.0) and moved.float().mean() < 0.02
    assert not moved[:, 1::2].any()
    if share:
        assert (values - columns.values)[moved].abs().median() > 3
