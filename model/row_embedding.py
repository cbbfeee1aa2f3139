"""Stage 3, cells → row: the cells of a row exchange messages, then summaries and a sketch of them become one vector.

The exchange runs through temporary tokens (they read the cells, the cells read them), so interactions between columns,
such as exclusive or, are formed before the row is compressed. Every operation stays inside one row.
"""

import dataclasses
import math

import torch
from torch import Tensor, nn

from model.attention import FeedForward, Norm, make_norm
from model.point_attention import Gathering, Scattering
from tools.failure import ExitCode, Failure


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadoutConfig:
    """How the cells of a row become its token."""

    num_summaries: int = 4
    """Summary tokens that read the cells."""
    sketch_width: int = 0
    """Entries of the sketch, which keeps columns apart by their place (0: no sketch)."""

    def __post_init__(self) -> None:
        """Refuses numbers of parts that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        if self.num_summaries < 1:
            raise Failure(ExitCode.BAD_FLAG, f"readout.num_summaries is {self.num_summaries}: give 1 or more")
        if self.sketch_width < 0:
            raise Failure(ExitCode.BAD_FLAG, f"readout.sketch_width is {self.sketch_width}: give 0 or more")


class RowSketch(nn.Module):
    """Σ_c s_c ⊙ (W · cell_c): what each column of a row says, multiplied by fixed random signs of the column's place.

    A sum over columns without signs is the same when two columns swap what they say. With them, products of two rows'
    sketches compare column with column, up to noise that falls with the width (sketching the second moment: Alon,
    Matias and Szegedy 1996). A place means nothing by itself: training permutes columns.
    """

    signs: Tensor

    def __init__(self, width: int, *, sketch_width: int, max_features: int) -> None:
        super().__init__()
        self.values = nn.Linear(width, sketch_width, bias=False)
        nn.init.normal_(self.values.weight, std=width**-0.5)
        generator = torch.Generator().manual_seed(0)
        signs = 2.0 * torch.randint(0, 2, (max_features, sketch_width), generator=generator) - 1.0
        self.register_buffer("signs", signs)

    def forward(self, cells: Tensor, *, bias: Tensor | None) -> Tensor:
        """Sums cells [B, T, C, E] to [B, T, S], at the scale of one column; bias [B, 1, 1, 1, C] hides absent columns.

        It is one product of all cells of a row with a [C·E, S] matrix, so [B, T, C, S] is never made.
        """
        num_columns = cells.shape[-2]
        matrix = self.values.weight.mT * self.signs[:num_columns, None, :]
        if bias is None:
            return cells.flatten(-2) @ (matrix / math.sqrt(num_columns)).flatten(0, 1).to(cells.dtype)
        real = bias.isfinite().flatten(1)  # [B, C]
        shown = torch.where(real[:, None, :, None], cells, 0.0)
        said = shown.flatten(-2) @ matrix.flatten(0, 1).to(cells.dtype)
        scale = real.sum(1).clamp_min(1).double().rsqrt()
        return said * scale.to(said.dtype)[:, None, None]


class RowReadout(nn.Module):
    """Summary tokens read the cells of a row; side by side with its sketch they are mixed into the row token."""

    def __init__(
        self, width: int, config: ReadoutConfig, *, num_heads: int, row_width: int, max_features: int, norm: Norm
    ) -> None:
        super().__init__()
        self.summaries = nn.Parameter(torch.randn(config.num_summaries, width))
        self.norm_cells = make_norm(norm, width)
        self.read = Gathering(width, num_heads=num_heads, num_points=config.num_summaries)
        nn.init.xavier_uniform_(self.read.output.weight)  # the only path from cells to rows
        self.sketch = None
        if config.sketch_width:
            self.sketch = RowSketch(width, sketch_width=config.sketch_width, max_features=max_features)
        parts_width = config.num_summaries * width + config.sketch_width
        self.norm_row = make_norm(norm, parts_width)
        self.mix = nn.Linear(parts_width, row_width, bias=False)

    def forward(self, cells: Tensor, *, bias: Tensor | None) -> Tensor:
        """Reads cells [B, T, C, E] into rows [B, T, D]; bias [B, 1, 1, 1, C] hides absent columns."""
        cells = self.norm_cells(cells)
        read = (self.summaries.to(cells.dtype) + self.read(self.summaries, cells, bias=bias)).flatten(-2)
        if self.sketch is not None:
            read = torch.cat([read, self.sketch(cells, bias=bias).to(read.dtype)], dim=-1)
        return self.mix(self.norm_row(read))
