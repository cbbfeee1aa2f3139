"""Stage 2, cell → column-aware cell: induced set attention along each column.

A few learned inducing points read the context rows of a column (with their labels where the stage is target-aware), and
all rows read the inducing points (Lee et al. 2019, Set Transformer, equation 9). Cost is linear in the number of rows,
and a query row can reach nothing but context rows.
"""

import torch
from torch import Tensor, nn

from model.attention import FeedForward, Norm, make_norm
from model.point_attention import Gathering, Scattering


class ColumnBlock(nn.Module):
    """One round of induced attention over the rows of each column."""

    def __init__(self, width: int, *, num_heads: int, num_inducing: int, norm: Norm) -> None:
        super().__init__()
        self.inducing_points = nn.Parameter(torch.randn(num_inducing, width))
        self.norm_source = make_norm(norm, width)
        self.gather = Gathering(width, num_heads=num_heads, num_points=num_inducing)
        self.norm_inducing = make_norm(norm, width)
        self.norm_rows = make_norm(norm, width)
        self.scatter = Scattering(width, num_heads=num_heads, num_points=num_inducing)
        self.norm_feed = make_norm(norm, width)
        self.feed_forward = FeedForward(width, factor=2)
        nn.init.xavier_uniform_(self.gather.output.weight)  # there is no residual path around the inducing points

    def forward(self, cells: Tensor, labels: Tensor | None, *, num_context: int, bias: Tensor | None) -> Tensor:
        """Updates cells [B, C, T, E], whose first num_context rows are context.

        Args:
            cells: context rows, then query rows.
            labels: [B, 1, N, E] label embeddings of context rows added to what the inducing points read, or None.
            num_context: N.
            bias: [B, 1, 1, 1, N] with minus infinity on padded context rows, or None.
        """
        memory = self.remember(cells[:, :, :num_context], labels, bias=bias)
        return self.read(cells, memory)

    def remember(self, cells: Tensor, labels: Tensor | None, *, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """What rows read of the inducing points after these read context cells [B, C, N, E]."""
        source = cells if labels is None else cells + labels
        read = self.gather(self.inducing_points, self.norm_source(source), bias=bias)
        return self.scatter.remember(self.norm_inducing(self.inducing_points.to(cells.dtype) + read))

    def read(self, cells: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        """Updates cells [B, C, L, E] of any rows from what `remember` kept."""
        cells = cells + self.scatter.read(self.norm_rows(cells), memory)
        return cells + self.feed_forward(self.norm_feed(cells))
