"""Scaled dot-product attention, multi-head projections and the feed-forward layer that every stage shares.

Shapes: L query positions, S key positions, H heads, D_h head width, W model width; leading dimensions are free.
"""

import enum
import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Above this many logits per call the fused kernel is used, which never holds them all at once.
_EXPLICIT_LOGITS = 1 << 26
# The fused kernels put the batch on a CUDA grid axis of at most this size.
_FUSED_BATCH = (1 << 16) - 1


class Norm(enum.StrEnum):
    """Which normalisation the pre-norm blocks use."""

    LAYER = "layer"
    RMS = "rms"


class RMSNorm(nn.RMSNorm):
    """RMSNorm whose statistics are never taken in bf16."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., W] → [..., W] in the precision of x."""
        return F.rms_norm(at_least_fp32(x), self.normalized_shape, self.weight, self.eps).to(x.dtype)


def make_norm(kind: Norm, width: int) -> nn.Module:
    """A normalisation layer over the last dimension (seed 1.3)."""
    return nn.LayerNorm(width) if kind is Norm.LAYER else RMSNorm(width, eps=1e-6)


def at_least_fp32(x: Tensor) -> Tensor:
    """x in fp32, or as it is where it is wider: softmaxes, statistics and losses are never taken in bf16."""
    return x.float() if x.dtype.itemsize < 4 else x


def scaled_logits(query: Tensor, key: Tensor, *, temperature: float = 1.0) -> Tensor:
    """q·k / (√D_h · temperature) [..., L, S]: of variance 1 for independent unit-variance entries (seed 1.1)."""
    return (query * (1.0 / (math.sqrt(query.shape[-1]) * temperature))) @ key.transpose(-1, -2)


def attention_weights(query: Tensor, key: Tensor, *, bias: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """softmax(q·k / (√D_h · temperature) + bias) over the keys (Vaswani et al. 2017, equation 1, at temperature 1).

    Args:
        query: [..., L, D_h].
        key: [..., S, D_h].
        bias: broadcastable to [..., L, S]; 0 where a key is visible and minus infinity where it is not.
        temperature: divides the logits; small is sharp.

    Returns:
        [..., L, S]; a forbidden key has weight exactly 0, so a row that sees no key at all has weights of 0.
    """
    return masked_softmax(scaled_logits(query, key, temperature=temperature), bias)


def masked_softmax(logits: Tensor, bias: Tensor | None, *, dim: int = -1) -> Tensor:
    """softmax(logits + bias) over the keys, which lie along `dim`; 0 where every key is hidden."""
    if bias is None:
        return torch.softmax(logits, dim=dim)
    bias, blind = _open_blind_rows(bias, dim=dim)
    return torch.softmax(logits + bias.to(logits.dtype), dim=dim).masked_fill(blind, 0.0)


# style: query, key and value are of equal standing
def attend(query: Tensor, key: Tensor, value: Tensor, *, bias: Tensor | None = None) -> Tensor:
    """Attention output [..., H, L, D_h] of query [..., H, L, D_h], key and value [..., G, S, D_h].

    With G < H, H/G query heads in a row share a key/value head (Ainslie et al. 2023, grouped-query attention); `bias`
    must then be the same for every query row.
    """
    groups, heads = key.shape[-3], query.shape[-3]
    if groups != heads:
        folded = query.unflatten(-3, (groups, heads // groups)).flatten(-3, -2)
        read = attend(folded, key, value, bias=bias)
        return read.unflatten(-2, (heads // groups, query.shape[-2])).flatten(-4, -3)
    if query.shape[:-1].numel() * key.shape[-2] > _EXPLICIT_LOGITS or query.is_cuda:
        return _attend_fused(query, key, value, bias=bias)
    return attention_weights(query, key, bias=bias) @ value


def _attend_fused(query: Tensor, key: Tensor, value: Tensor, *, bias: Tensor | None) -> Tensor:
    """`attend` by the fused kernels, which want four dimensions: the leading ones are folded into one."""
    leading = query.shape[:-3]
    blind = None
    if bias is not None:
        bias, blind = _open_blind_rows(bias)
        bias = bias.to(query.dtype).expand(*leading, *bias.shape[-3:]).reshape(-1, *bias.shape[-3:])
    parts = [part.reshape(-1, *part.shape[-3:]) for part in (query, key, value)]
    if len(parts[0]) <= _FUSED_BATCH:
        output = F.scaled_dot_product_attention(*parts, attn_mask=bias)
    else:
        chunks = zip(*(part.split(_FUSED_BATCH) for part in parts), strict=True)
        masks = itertools.repeat(None) if bias is None else bias.split(_FUSED_BATCH)
        rows = [F.scaled_dot_product_attention(*chunk, attn_mask=mask) for chunk, mask in zip(chunks, masks)]
        output = torch.cat(rows)
    output = output.unflatten(0, leading)
    return output if blind is None else output.masked_fill(blind, 0.0)


def _open_blind_rows(bias: Tensor, *, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Rows of `bias` that hide every key (tables that are all padding) opened, and where they are, of size 1 in `dim`.

    A softmax over nothing is NaN, and so is its gradient even where the result is thrown away. Callers set the opened
    rows to 0 afterwards, so no forbidden key is ever read.
    """
    blind = bias.isneginf().all(dim, keepdim=True)
    return bias.masked_fill(blind, 0.0), blind


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[..., L, H·D_h] → [..., H, L, D_h]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def merge_heads(x: Tensor) -> Tensor:
    """[..., H, L, D_h] → [..., L, H·D_h]."""
    return x.transpose(-2, -3).flatten(-2)


def key_bias(mask: Tensor | None) -> Tensor | None:
    """Turns a mask of real rows [B, S] into an additive bias [B, 1, 1, S], or None when all rows are real."""
    if mask is None:
        return None
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)[:, None, None, :]


class Attention(nn.Module):
    """Multi-head attention without biases; its output projection starts at zero, so a fresh block is the identity."""

    def __init__(self, width: int, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        for projection in (self.query, self.key_value):
            nn.init.normal_(projection.weight, std=width**-0.5)  # logits of unit variance: heads differ from the start
        nn.init.zeros_(self.output.weight)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [..., H, S, D_h] of rows [..., S, W]."""
        key, value = self.key_value(x).chunk(2, dim=-1)
        return split_heads(key, self.num_heads), split_heads(value, self.num_heads)

    def read(self, x: Tensor, memory: tuple[Tensor, Tensor], *, bias: Tensor | None = None) -> Tensor:
        """Lets x [..., L, W] read keys and values [..., H, S, D_h]."""
        query = split_heads(self.query(x), self.num_heads)
        return self.output(merge_heads(attend(query, *memory, bias=bias)))

    def forward(self, x: Tensor, source: Tensor, *, bias: Tensor | None = None) -> Tensor:
        """Lets x [..., L, W] read source [..., S, W]."""
        return self.read(x, self.keys_values(source), bias=bias)


class FeedForward(nn.Module):
    """Position-wise two-layer perceptron with GELU; its second layer starts at zero."""

    def __init__(self, width: int, *, factor: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, factor * width, bias=False)
        self.output = nn.Linear(factor * width, width, bias=False)
        nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[..., W] → [..., W]."""
        return self.output(F.gelu(self.inner(x)))


# style: three widths in the order in which the data meets them
def mlp(width_in: int, width_hidden: int, width_out: int) -> nn.Sequential:
    """Linear → GELU → Linear, with biases: label encoders and output heads."""
    activation: Any = nn.GELU()
    return nn.Sequential(nn.Linear(width_in, width_hidden), activation, nn.Linear(width_hidden, width_out))
