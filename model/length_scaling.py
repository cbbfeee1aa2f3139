"""Query scaling by context length, so that attention over many rows keeps its mass together.

A softmax over n keys spreads as n grows. QASSMax (TabICL v2, TabPFN-3) multiplies queries by learned factors of log n:
q ← q · base(log n) · (1 + tanh(modulation(q))). The whole factor is computed in fp32 (or fp64), whatever precision the
weights are stored in, and cast once: log n in half precision, or tanh in it, is where long contexts break.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import at_least_fp32, mlp
from model.precision import full_precision

_HIDDEN = 64


class QASSMax(nn.Module):
    """Query-aware scalable softmax. A fresh one leaves queries as they are."""

    def __init__(self, *, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.base = mlp(1, _HIDDEN, num_heads * head_width)
        self.modulation = mlp(head_width, _HIDDEN, head_width)
        for last, value in ((self.base[-1], 1.0), (self.modulation[-1], 0.0)):
            nn.init.zeros_(last.weight)
            nn.init.constant_(last.bias, value)

    def forward(self, query: Tensor, count: Tensor) -> Tensor:
        """Scales query [B, H, L, D_h] for tables of count [B or 1] context rows."""
        with full_precision(query.device):
            wide = at_least_fp32(query).to(at_least_fp32(self.base[0].weight).dtype)
            length = count.clamp_min(1).to(wide.dtype).log()[:, None]
            base = _wide(self.base, length).unflatten(-1, (query.shape[-3], query.shape[-1]))[:, :, None]
            return (wide * base * (1 + torch.tanh(_wide(self.modulation, wide)))).to(query.dtype)


def _wide(layers: nn.Sequential, x: Tensor) -> Tensor:
    """The layers' value of x [..., W] with weights of at least fp32."""
    first, activation, last = layers
    hidden = activation(F.linear(x, at_least_fp32(first.weight), at_least_fp32(first.bias)))
    return F.linear(hidden, at_least_fp32(last.weight), at_least_fp32(last.bias))
