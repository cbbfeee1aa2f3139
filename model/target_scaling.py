"""How regression targets are scaled: by their context's mean and standard deviation, never by query targets (6.12).

t = (y − location) / scale. Heads predict on the axis of t; a density there becomes one per unit of y by dividing it by
the scale (the Jacobian of the scaling), so that an NLL in the unit of y is the NLL on the scaled axis plus log(scale).
"""

import torch
from torch import Tensor

SPREAD_FLOOR = 1e-7
"""Targets whose standard deviation is below this share of their mean are constant: fp32 cannot tell them apart."""

TARGET_LIMIT = 24.0
"""Scaled targets beyond ± this are winsorised in every prediction's `losses`, unless buckets reach further.

`losses` is what training minimises, and the figure by which validation chooses a checkpoint. Scores (NLL, CRPS, errors,
coverage) take the targets as they are.
"""


def target_statistics(y_context: Tensor, context_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Location and scale [B, 1] (fp64) of y_context [B, N] over its real rows: mean and standard deviation.

    A constant target (see `SPREAD_FLOOR`) has scale 1, or the floor where that is more (targets beyond 1e7): rounding
    is never blown up to a spread of 1. A table without real rows has location 0 and scale 1.
    """
    count = context_mask.sum(1, keepdim=True).clamp_min(1)
    value = torch.where(context_mask, y_context, 0.0).double()
    location = value.sum(1, keepdim=True) / count
    spread = (torch.where(context_mask, value - location, 0.0) ** 2).sum(1, keepdim=True).div(count).sqrt()
    floor = (SPREAD_FLOOR * location.abs()).clamp_min(1e-39)  # below what fp32 holds
    return location, torch.where(spread > floor, spread, floor.clamp_min(1.0))


def winsorised(y: Tensor, *, location: Tensor, scale: Tensor, limit: Tensor | float = TARGET_LIMIT) -> Tensor:
    """What `losses` compare with: y [B, M] on the scaled axis, clipped to ± limit."""
    return ((y - location) / scale).clamp(-limit, limit)
