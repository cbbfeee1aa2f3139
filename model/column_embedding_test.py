"""The column stage: queries read the context through inducing points, and nothing reads a query."""

import pytest
import torch
from torch import Tensor

from model.attention import Norm
from model.column_embedding import ColumnBlock
from model.specimens import distance, redraw

TABLES, COLUMNS, CONTEXT, QUERIES, WIDTH = 2, 3, 6, 4, 8


@pytest.fixture
def block() -> ColumnBlock:
    """A block whose every parameter is random."""
    block = ColumnBlock(WIDTH, num_heads=2, num_inducing=4, norm=Norm.LAYER)
    redraw(block)
    return block.double()


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _cells() -> Tensor:
    return _random(TABLES, COLUMNS, CONTEXT + QUERIES, WIDTH)


def _moved_rows(block: ColumnBlock, *, row: int) -> list[int]:
    """Which rows of a column change when one does."""
    cells = _cells()
    changed = cells.clone()
    changed[:, :, row].neg_()  # a shift of all entries would be lost in the norm
    outputs = [block(x, None, num_context=CONTEXT, bias=None) for x in (cells, changed)]
    return ((outputs[0] - outputs[1]).abs().amax((0, 1, 3)) > 1e-9).nonzero()[:, 0].tolist()


def test_a_query_row_reaches_nothing_but_itself(block: ColumnBlock) -> None:
    """5.5: query→query and context→query are closed in this stage too."""
    for row in range(CONTEXT, CONTEXT + QUERIES):
        assert _moved_rows(block, row=row) == [row]


def test_a_context_row_reaches_every_row(block: ColumnBlock) -> None:
    """5.5: context→context and query→context are open; row 0 and the last context row both count."""
    for row in (0, CONTEXT - 1):
        assert _moved_rows(block, row=row) == list(range(CONTEXT + QUERIES))


def test_columns_do_not_mix(block: ColumnBlock) -> None:
    """Attention runs along each column."""
    cells = _cells()
    alone = block(cells[:, 1:2], None, num_context=CONTEXT, bias=None)
    assert distance(alone, block(cells, None, num_context=CONTEXT, bias=None)[:, 1:2]) < 1e-14


def test_context_order_does_not_matter(block: ColumnBlock) -> None:
    """1.4: rows carry no position."""
    cells = _cells()
    order = torch.tensor([4, 0, 5, 2, 1, 3, *range(CONTEXT, CONTEXT + QUERIES)])
    expected = block(cells, None, num_context=CONTEXT, bias=None)[:, :, order]
    assert distance(block(cells[:, :, order], None, num_context=CONTEXT, bias=None), expected) < 1e-13


def test_padded_context_rows_are_not_read(block: ColumnBlock) -> None:
    """5.7: a table with two padded context rows equals the table alone."""
    cells = _cells()
    spare = 100.0 * _random(TABLES, COLUMNS, 2, WIDTH, seed=1)
    padded = torch.cat([cells[:, :, :CONTEXT], spare, cells[:, :, CONTEXT:]], dim=2)
    bias = torch.zeros(TABLES, 1, 1, 1, CONTEXT + 2)
    bias[..., CONTEXT:] = -torch.inf
    found = block(padded, None, num_context=CONTEXT + 2, bias=bias)
    expected = block(cells, None, num_context=CONTEXT, bias=None)
    assert distance(found[:, :, :CONTEXT], expected[:, :, :CONTEXT]) < 1e-13
    assert distance(found[:, :, CONTEXT + 2 :], expected[:, :, CONTEXT:]) < 1e-13


def test_labels_reach_what_the_inducing_points_read(block: ColumnBlock) -> None:
    """5.11: target-aware column embeddings: a context label moves every row through the inducing points."""
    cells, labels = _cells(), _random(TABLES, 1, CONTEXT, WIDTH, seed=2)
    plain = block(cells, None, num_context=CONTEXT, bias=None)
    aware = block(cells, labels, num_context=CONTEXT, bias=None)
    assert float((plain - aware).detach().abs().amax((1, 3)).min()) > 1e-6
    none = block(cells, torch.zeros_like(labels), num_context=CONTEXT, bias=None)
    assert torch.equal(none, plain)


def test_a_fresh_block_is_the_identity() -> None:
    """1.3: residual branches start at zero."""
    block = ColumnBlock(WIDTH, num_heads=2, num_inducing=4, norm=Norm.RMS)
    cells = _cells().float()
    assert torch.equal(block(cells, None, num_context=CONTEXT, bias=None), cells)
