"""Levels of quantiles: which are allowed, and the loss whose minimiser is the quantile at a level."""

import torch
from torch import Tensor

from tools.failure import BadInput, ExitCode


def check_levels(name: str, levels: Tensor) -> None:
    """Refuses levels that are not inside (0, 1).

    Raises:
        BadInput (a ValueError): BAD_LEVEL, with the first level that is wrong.
    """
    wrong = ~((levels > 0) & (levels < 1))  # NaN too
    if wrong.any():
        raise BadInput(ExitCode.BAD_LEVEL, f"{name} holds {float(levels[wrong][0]):g}: give levels inside (0, 1)")


def tail_level(level: float) -> float:
    """(1 − level) / 2: the mass on each side of a central interval that holds `level`.

    Raises:
        BadInput: BAD_LEVEL for a level outside (0, 1).
    """
    check_levels("level", torch.tensor(level, dtype=torch.float64))
    return (1 - level) / 2


def pinball_losses(quantiles: Tensor, y: Tensor, *, levels: Tensor) -> Tensor:
    """max(τ(y − q), (τ − 1)(y − q)) [B, M, S] (Koenker & Bassett 1978).

    Args:
        quantiles: q [B, M, S].
        y: [B, M], in the unit of q.
        levels: τ [S].
    """
    error = y[..., None] - quantiles
    return torch.maximum(levels * error, (levels - 1) * error)
