"""The row stage: cells of one row exchange messages and become one vector."""

import pytest
import torch
from torch import Tensor

from model.attention import Norm
from model.row_embedding import ReadoutConfig, RowBlock, RowReadout, RowSketch
from model.specimens import distance, redraw

TABLES, ROWS, COLUMNS, WIDTH, ROW_WIDTH = 2, 5, 4, 8, 16


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _readout(*, norm: Norm = Norm.LAYER, **config: int) -> RowReadout:
    sizes = ReadoutConfig(**config)
    return RowReadout(WIDTH, sizes, num_heads=2, row_width=ROW_WIDTH, max_features=9, norm=norm)


@pytest.fixture(params=["exchange", "summaries", "summaries and sketch"])
def stage(request: pytest.FixtureRequest) -> RowBlock | RowReadout:
    """Either part of the stage, with every parameter random."""
    if request.param == "exchange":
        stage = RowBlock(WIDTH, num_heads=2, num_tokens=3, norm=Norm.LAYER)
    else:
        stage = _readout(sketch_width=12 if "sketch" in request.param else 0)
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


@pytest.mark.parametrize("sketch_width", [0, 12])
def test_a_row_token_has_the_row_width_whatever_it_is_made_of(sketch_width: int) -> None:
    """[B, T, C, E] → [B, T, D]."""
    readout = _readout(num_summaries=5, sketch_width=sketch_width).double()
    assert readout.summaries.shape == (5, WIDTH) and readout.mix.in_features == 5 * WIDTH + sketch_width
    assert readout(_random(TABLES, ROWS, COLUMNS, WIDTH), bias=None).shape == (TABLES, ROWS, ROW_WIDTH)


def test_a_sketch_is_the_signed_sum_of_what_its_columns_say() -> None:
    """Σ_c s_c ⊙ (W · cell_c) / √C, term by term."""
    sketch, cells = RowSketch(WIDTH, sketch_width=6, max_features=9).double(), _random(TABLES, ROWS, COLUMNS, WIDTH)
    said = torch.stack([sketch.signs[place] * sketch.values(cells[:, :, place]) for place in range(COLUMNS)])
    assert distance(sketch(cells, bias=None), said.sum(0) / COLUMNS**0.5) < 1e-14
    assert set(sketch.signs.unique().tolist()) == {-1.0, 1.0}


def test_a_sketch_leaves_absent_columns_out_rather_than_multiplying_them_by_0() -> None:
    """5.7: whatever the padding holds, also where that times 0 is no number."""
    sketch, cells = RowSketch(WIDTH, sketch_width=6, max_features=9).double(), _random(TABLES, ROWS, COLUMNS, WIDTH)
    padded = torch.cat([cells, torch.full((TABLES, ROWS, 1, WIDTH), torch.inf)], dim=2)
    bias = torch.zeros(TABLES, 1, 1, 1, COLUMNS + 1)
    bias[..., COLUMNS] = -torch.inf
    assert distance(sketch(padded, bias=bias), sketch(cells, bias=None)) < 1e-14


def test_two_columns_that_swap_what_they_say_are_told_apart_by_the_sketch_alone() -> None:
    """Summaries are the same for both rows, so without a sketch a row token cannot differ."""
    cells = _random(1, 1, COLUMNS, WIDTH)
    swapped = cells[:, :, [1, 0, *range(2, COLUMNS)]]
    for sketch_width in (0, 12):
        readout = _readout(sketch_width=sketch_width).double()
        redraw(readout)
        moved = distance(readout(cells, bias=None), readout(swapped, bias=None))
        assert (moved > 0.01) == (sketch_width > 0)


def test_products_of_sketches_compare_column_with_column() -> None:
    """Alon, Matias and Szegedy 1996: the mean product over signs is the sum of the columns' products."""
    sketch = RowSketch(WIDTH, sketch_width=40_000, max_features=COLUMNS).double().requires_grad_(False)
    redraw(sketch, gain=1.0)
    left = _random(1, 1, COLUMNS, WIDTH)
    right = left.roll(1, dims=2)
    said = [sketch.values(part).squeeze() for part in (left, right)]
    expected = (said[0] * said[1]).sum(0).mean() / COLUMNS
    found = (sketch(left, bias=None) * sketch(right, bias=None)).mean()
    assert abs(float(found - expected)) < 0.05
    assert abs(float((said[0].sum(0) * said[1].sum(0)).mean() / COLUMNS - expected)) > 0.2


def test_a_fresh_exchange_is_the_identity() -> None:
    """1.3: residual branches start at zero."""
    block, cells = RowBlock(WIDTH, num_heads=2, num_tokens=3, norm=Norm.RMS), _random(1, 2, 3, WIDTH).float()
    assert torch.equal(block(cells, bias=None), cells)
