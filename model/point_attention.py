"""Attention between a few points and many rows, with no projection of the many where that is cheaper.

One side of an attention is a few points P [L, W], such as inducing points or tokens; the other is the rows X [S, W] of
a column or the cells of a row. With W_q, W_k, W_v, W_o of head h, points that read rows compute

    softmax(P W_qᵀ W_k Xᵀ / √D_h) X W_vᵀ W_oᵀ,

whose left factor P W_qᵀ W_k [L, W] can be made first, and whose right ones can wait until L rows are left of X. Rows
that read points compute

    softmax(X (P W_kᵀ W_q)ᵀ / √D_h) (P W_vᵀ W_oᵀ),

with both brackets [L, W]. Each is what `Attention` computes, with the same parameters, except for rounding. A row then
costs 2·H·L·W multiply-adds instead of 2·W² for its two projections and 2·L·W for the products with keys and values.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from model.attention import Attention, at_least_fp32, masked_softmax, merge_heads, split_heads
from tools.failure import BadInput, ExitCode


class _PointAttention(Attention):
    """What both directions share: the parameters of `Attention`, and which way is cheaper."""

    def __init__(self, width: int, *, num_heads: int, num_points: int) -> None:
        super().__init__(width, num_heads=num_heads)
        self.folds = num_heads * num_points < width + num_points

    def _by_head(self, weight: Tensor) -> Tensor:
        """[H·D_h, W] → [H, D_h, W]."""
        return weight.unflatten(0, (self.num_heads, -1))


class Gathering(_PointAttention):
    """A few points, the same for every table, read many rows."""

    def forward(self, points: Tensor, source: Tensor, *, bias: Tensor | None = None) -> Tensor:
        """What points [L, W] read of source [..., S, W]: [..., L, W].

        Args:
            points: of at most the number that was announced.
            source: is read.
            bias: [..., 1, 1, S], minus infinity where a row is hidden from every point, or None.

        Raises:
            BadInput: BAD_SHAPE for a bias that differs from head to head or from point to point.
        """
        if bias is not None and bias.shape[-3:-1] != (1, 1):
            raise BadInput(ExitCode.BAD_SHAPE, f"bias has shape {list(bias.shape)}: it must be [..., 1, 1, S]")
        points = points.to(source.dtype)
        if not self.folds:
            return super().forward(points.expand(*source.shape[:-2], -1, -1), source, bias=bias)
        key, value = (self._by_head(weight) for weight in self.key_value.weight.chunk(2))
        query = split_heads(self.query(points), self.num_heads)
        folded = _absorbed(query / math.sqrt(query.shape[-1]), key)
        logits = at_least_fp32(F.linear(source, folded))  # [..., S, H·L]: a softmax over few rows is fastest down them
        weights = masked_softmax(logits, None if bias is None else bias.squeeze(-3).mT, dim=-2).to(source.dtype)
        pooled = (weights.mT @ source).unflatten(-2, (self.num_heads, -1))
        return self.output(merge_heads(torch.einsum("...hlw,hdw->...hld", pooled, value)))


class Scattering(_PointAttention):
    """Many rows read a few points, which differ from table to table."""

    def remember(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """What `read` needs of points [..., L, W]: keys and values, [..., H, L, D_h], or folded [..., H·L, W]."""
        key, value = self.keys_values(points)
        if not self.folds:
            return key, value
        query, output = self._by_head(self.query.weight), self._by_head(self.output.weight.mT)
        return _absorbed(key / math.sqrt(key.shape[-1]), query), _absorbed(value, output)

    def read(self, x: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        """What rows x [..., S, W] read of remembered points: [..., S, W]; no point is hidden from any row."""
        if not self.folds:
            return super().read(x, memory)
        key, value = memory
        logits = at_least_fp32(key @ x.mT).unflatten(-2, (self.num_heads, -1))
        weights = torch.softmax(logits, dim=-2).flatten(-3, -2).to(x.dtype)
        return weights.mT @ value

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        """What rows x [..., S, W] read of points [..., L, W]."""
        return self.read(x, self.remember(source))


def _absorbed(heads: Tensor, weight: Tensor) -> Tensor:
    """[..., H·L, W] rows of each head [..., H, L, D_h] times its matrix [H, D_h, W]."""
    return torch.einsum("...hld,hdw->...hlw", heads, weight).flatten(-3, -2)
