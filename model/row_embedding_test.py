"""The row stage: cells of one row exchange messages and become one vector."""

import pytest
import torch
from torch import Tensor

from model.attention import Norm
from model.row_embedding import RowBlock, RowReadout
from model.specimens import distance, redraw

TABLES, ROWS, COLUMNS, WIDTH, ROW_WIDTH = 2, 5, 4, 8, 16


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(params=["exchange", "readout"])
def stage(request: pytest.FixtureRequest) -> RowBlock | RowReadout:
    """Either part of the stage, with every parameter random."""
    if request.param == "exchange":
        stage = RowBlock(WIDTH, num_heads=2, num_tokens=3, norm=Norm.LAYER)
    else:
        stage = RowReadout(WIDTH, num_heads=2, row_width=ROW_WIDTH, norm=Norm.LAYER)
    redraw(stage)
    return stage.double()


def test_every_operation_stays_inside_one_row(stage: RowBlock | RowReadout) -> None:
    """5.5: no row sees another before the ICL stage's mask rules."""
    cells = _random(TABLES, ROWS, COLUMNS, WIDTH)
    assert distance(stage(cells, bias=None)[:, 2:3], stage(cells[:, 2:3], bias=None)) < 1e-14


def test_absent_columns_are_not_read(stage: RowBlock | RowReadout) -> None:
    """5.7: a table with padded columns equals the table alone."""
    cells = _random(TABLES, ROWS, COLUMNS, WIDTH)
    padded = torch.cat([cells, 100 * _random(TABLES, ROWS, 2, WIDTH, seed=1)], dim=2)
    bias = torch.zeros(TABLES, 1, 1, 1, COLUMNS + 2)
    bias[..., COLUMNS:] = -torch.inf
    found, expected = stage(padded, bias=bias), stage(cells, bias=None)
    found = found[:, :, :COLUMNS] if isinstance(stage, RowBlock) else found
    assert distance(found, expected) < 1e-13


def test_the_cells_of_a_row_reach_each_other_before_they_are_compressed() -> None:
    """5.11: cell → column → row token; an interaction of two columns needs this exchange."""
    block = RowBlock(WIDTH, num_heads=2, num_tokens=3, norm=Norm.LAYER).double()
    redraw(block)
    cells = _random(1, 1, COLUMNS, WIDTH)
    changed = cells.clone()
    changed[:, :, 1].neg_()  # a shift of all entries would be lost in the norm
    moved = (block(cells, bias=None) - block(changed, bias=None)).detach().abs().amax(-1)
    assert float(moved.min()) > 1e-6


def test_a_row_token_has_the_width_of_its_summaries_side_by_side() -> None:
    """[B, T, C, E] → [B, T, D]."""
    readout = RowReadout(WIDTH, num_heads=2, row_width=ROW_WIDTH, norm=Norm.LAYER).double()
    assert readout.summaries.shape == (ROW_WIDTH // WIDTH, WIDTH)
    assert readout(_random(TABLES, ROWS, COLUMNS, WIDTH), bias=None).shape == (TABLES, ROWS, ROW_WIDTH)


def test_a_fresh_exchange_is_the_identity() -> None:
    """1.3: residual branches start at zero."""
    block, cells = RowBlock(WIDTH, num_heads=2, num_tokens=3, norm=Norm.RMS), _random(1, 2, 3, WIDTH).float()
    assert torch.equal(block(cells, bias=None), cells)
