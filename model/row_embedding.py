"""Stage 3, cells → row: the cells of a row exchange messages, then a few summary tokens read them into one vector.

The exchange runs through temporary tokens (they read the cells, the cells read them), so interactions between columns,
such as exclusive or, are formed before the row is compressed. Every operation stays inside one row.
"""

import torch
from torch import Tensor, nn

from model.attention import FeedForward, Norm, make_norm
from model.point_attention import Gathering, Scattering


class RowBlock(nn.Module):
    """One round of messages between the cells of each row."""

    def __init__(self, width: int, *, num_heads: int, num_tokens: int, norm: Norm) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(num_tokens, width))
        self.norm_source = make_norm(norm, width)
        self.gather = Gathering(width, num_heads=num_heads, num_points=num_tokens)
        self.norm_tokens = make_norm(norm, width)
        self.norm_cells = make_norm(norm, width)
        self.scatter = Scattering(width, num_heads=num_heads, num_points=num_tokens)
        self.norm_feed = make_norm(norm, width)
        self.feed_forward = FeedForward(width, factor=2)
        nn.init.xavier_uniform_(self.gather.output.weight)  # there is no residual path around the tokens

    def forward(self, cells: Tensor, *, bias: Tensor | None) -> Tensor:
        """Updates cells [B, T, C, E]; bias [B, 1, 1, 1, C] hides absent columns."""
        tokens = self.tokens.to(cells.dtype) + self.gather(self.tokens, self.norm_source(cells), bias=bias)
        cells = cells + self.scatter(self.norm_cells(cells), self.norm_tokens(tokens))
        return cells + self.feed_forward(self.norm_feed(cells))


class RowReadout(nn.Module):
    """Summary tokens read the cells of a row; side by side they are the row token [B, T, D]."""

    def __init__(self, width: int, *, num_heads: int, row_width: int, norm: Norm) -> None:
        super().__init__()
        self.summaries = nn.Parameter(torch.randn(row_width // width, width))
        self.norm_cells = make_norm(norm, width)
        self.read = Gathering(width, num_heads=num_heads, num_points=row_width // width)
        nn.init.xavier_uniform_(self.read.output.weight)  # the only path from cells to rows
        self.norm_row = make_norm(norm, row_width)
        self.mix = nn.Linear(row_width, row_width, bias=False)

    def forward(self, cells: Tensor, *, bias: Tensor | None) -> Tensor:
        """Reads cells [B, T, C, E] into rows [B, T, D]."""
        read = self.summaries.to(cells.dtype) + self.read(self.summaries, self.norm_cells(cells), bias=bias)
        return self.mix(self.norm_row(read.flatten(-2)))
