"""Stage 1, scalar → cell: what one value says, measured against the context rows of its own column (seed 5.11).

`CellFeatures` is the only place where table values are normalised, and it takes statistics from context rows alone.
NaN and ±inf are legal everywhere. A category is never a z-scored code: its features are a fixed signature of its code,
how often the context holds it, and whether the context has it at all. Signatures repeat after 256 codes.
"""

import dataclasses

import torch
from torch import Tensor, nn

from model.attention import Norm, make_norm
from tools.failure import BadInput, ExitCode

NUMBER, ORDINAL, CATEGORY = 0, 1, 2  # values of NetworkInputs.column_kinds; negative: padding
DEFAULT_OFFSETS = (0, 1, 3)  # no two columns meet twice, from seven columns on
_VALUE_FREQUENCIES = (0.5, 1.0, 2.0, 4.0)
_RANK_FREQUENCIES = (1.0, 2.0, 4.0, 8.0)
_SOFT_CLIP = 5.0
_SIGNATURE_WIDTH = 8
_NUM_SIGNATURES = 256
NUM_FEATURES = 2 + 3 + 3 + 1 + 2 * len(_VALUE_FREQUENCIES) + 2 * len(_RANK_FREQUENCIES) + _SIGNATURE_WIDTH


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextStatistics:
    """What normalisation knows of the columns: everything here comes from context rows.

    Args:
        mean: [B, 1, C] of the finite values; 0 for a column that has none.
        inverse_scale: [B, 1, C] one over the standard deviation; 0 for a column that is constant (to 1e-6 of its
            largest magnitude) or has no finite value.
        sorted_values: [B, C, N] ascending, +inf beyond the finite ones.
        num_finite: [B, C, 1] how many finite values the column has.
        num_rows: [B, 1, 1] how many context rows are real.
    """

    mean: Tensor
    inverse_scale: Tensor
    sorted_values: Tensor
    num_finite: Tensor
    num_rows: Tensor


def context_statistics(x_context: Tensor, context_mask: Tensor) -> ContextStatistics:
    """Measures x_context [B, N, C] over its real rows (context_mask [B, N])."""
    finite = torch.isfinite(x_context) & context_mask[:, :, None]
    count = finite.sum(1, keepdim=True)
    value = torch.where(finite, x_context, 0.0)
    # Squares of large values overflow fp32, so moments are taken after division by the largest magnitude.
    largest = value.abs().amax(1, keepdim=True).clamp_min(torch.finfo(value.dtype).tiny)
    scaled = value / largest
    mean = scaled.sum(1, keepdim=True) / count.clamp_min(1)
    variance = (torch.where(finite, scaled - mean, 0.0) ** 2).sum(1, keepdim=True) / count.clamp_min(1)
    spread = variance.sqrt()
    inverse = torch.where(spread > 1e-6, 1.0 / spread.clamp_min(1e-6), 0.0) / largest
    ordered = torch.where(finite, x_context, torch.inf).transpose(1, 2).contiguous().sort(-1).values
    return ContextStatistics(
        mean=mean * largest,
        inverse_scale=inverse.clamp_max(torch.finfo(value.dtype).max),
        sorted_values=ordered,
        num_finite=count.transpose(1, 2),
        num_rows=context_mask.sum(1)[:, None, None],
    )


class CellFeatures(nn.Module):
    """Normalisation: [B, T, C] raw values → [B, T, C, F] fixed features. It has no parameters and takes no gradient."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        signatures = torch.randn(_NUM_SIGNATURES, _SIGNATURE_WIDTH, generator=generator)
        self.register_buffer("signatures", signatures)

    @torch.no_grad()
    def forward(self, x: Tensor, column_kinds: Tensor, statistics: ContextStatistics) -> Tensor:
        """Measures x [B, T, C] (context, query or both) against the context statistics."""
        finite = torch.isfinite(x)
        value = torch.where(finite, x, statistics.mean)
        varies = statistics.inverse_scale > 0  # the difference may overflow to infinity, and infinity · 0 is NaN
        z = torch.where(varies, _soft_clip((value - statistics.mean) * statistics.inverse_scale), 0.0)
        rank, share = _midrank(value, statistics)
        category = (column_kinds == CATEGORY)[:, None, :] & finite
        number = finite & ~category
        z, rank = z * number, rank * number
        waves = _waves(z, number, frequencies=_VALUE_FREQUENCIES) + _waves(rank, number, frequencies=_RANK_FREQUENCIES)
        ordinal = (column_kinds == ORDINAL)[:, None, :].expand_as(x)
        flags = [x.isnan(), x == torch.inf, x == -torch.inf, category, ordinal]
        unseen = category & (share == 0)
        plain = torch.stack([z, rank, *waves, *flags, unseen, share * category], dim=-1)
        codes = torch.where(category, x, 0.0).floor().remainder(_NUM_SIGNATURES).long()
        return torch.cat([plain, self.signatures[codes] * category[..., None]], dim=-1)


def _waves(x: Tensor, number: Tensor, *, frequencies: tuple[float, ...]) -> list[Tensor]:
    """Sine and cosine of π·f·x where a number stands; amplitudes fall as 1/f: smooth effects are learned first."""
    angles = [(torch.pi * frequency * x, frequency / frequencies[0]) for frequency in frequencies]
    return [wave(angle) * number / relative for angle, relative in angles for wave in (torch.sin, torch.cos)]


def _soft_clip(z: Tensor) -> Tensor:
    return _SOFT_CLIP * torch.tanh(z / _SOFT_CLIP)


def _midrank(value: Tensor, statistics: ContextStatistics) -> tuple[Tensor, Tensor]:
    """Mid-rank among the context in [-1, 1], and the share of context values that are equal; both [B, T, C].

    Both are 0 in a column of which the context holds no finite value.
    """
    wanted = value.transpose(1, 2).contiguous()
    low = torch.searchsorted(statistics.sorted_values, wanted, right=False)
    high = torch.searchsorted(statistics.sorted_values, wanted, right=True)
    count = statistics.num_finite
    low, high = torch.minimum(low, count), torch.minimum(high, count)
    rank = torch.where(count > 0, (low + high) / count.clamp_min(1) - 1.0, 0.0)
    count = count.clamp_min(1)
    share = (high - low) / count
    return rank.transpose(1, 2), share.transpose(1, 2)


class CellEmbedding(nn.Module):
    """Features of a column and of its group → cells [B, T, C, E]: column j reads j + offset, around the table.

    The group lets one cell carry an interaction and tells columns of equal distribution apart; predictions therefore
    depend a little on column order, which training randomises and the estimator averages over. With offsets (0,) a cell
    reads its own column alone, and column order does not matter. In a table of few columns offsets meet: with one
    column each of them is the column itself.
    """

    def __init__(self, width: int, *, norm: Norm, offsets: tuple[int, ...] = DEFAULT_OFFSETS) -> None:
        """Makes cells of `width`.

        Raises:
            BadInput (a ValueError): BAD_FLAG for offsets that lack 0, repeat themselves or are negative.
        """
        super().__init__()
        _check_offsets(offsets)
        self.width = width
        self.offsets = tuple(offsets)
        self.projection = nn.Linear(NUM_FEATURES, len(offsets) * width, bias=False)
        self.norm = make_norm(norm, width)

    def forward(self, features: Tensor, num_columns: Tensor | None) -> Tensor:
        """Embeds features [B, T, C, F].

        Args:
            features: what `CellFeatures` returns.
            num_columns: [B] real columns a table (padding stands at the end), or None when no table is padded.
        """
        parts = self.projection(features).unflatten(-1, (len(self.offsets), self.width)).unbind(-2)
        first, *others = (_shift(part, offset, num_columns) for part, offset in zip(parts, self.offsets, strict=True))
        return self.norm(sum(others, start=first))


def _check_offsets(offsets: tuple[int, ...]) -> None:
    if 0 not in offsets:
        problem, mend = "lacks 0", "add 0, the cell's own column"
    elif min(offsets) < 0:
        problem, mend = "has a negative offset", "count to the right, around the table"
    elif len(set(offsets)) < len(offsets):
        problem, mend = "names an offset twice", "name each once"
    else:
        return
    raise BadInput(ExitCode.BAD_FLAG, f"cell.feature_offsets {tuple(offsets)} {problem}: {mend}")


def _shift(cell: Tensor, offset: int, num_columns: Tensor | None) -> Tensor:
    """Column j takes what column (j + offset) mod C holds, with each table's own C."""
    if offset == 0:
        return cell
    if num_columns is None:
        return cell.roll(-offset, dims=2)
    columns = torch.arange(cell.shape[2], device=cell.device)
    own = num_columns[:, None]
    source = torch.where(columns < own, (columns + offset) % own.clamp_min(1), columns)
    return cell.gather(2, source[:, None, :, None].expand_as(cell))
