"""Steps whose update is left out: why, how many of them a training bears, and what is said when there are more (T7)."""

import enum
import math
from typing import Protocol

from tools.failure import ExitCode, Failure

MAX_IN_ROW = 10
"""As many skipped steps one after the other end a training."""
_MAX_SHARE = 0.01  # of the first 1,000 steps or of all steps, whichever is more


class SkipReason(enum.StrEnum):
    """Why an update was left out."""

    DATA = "data"  # a batch that no network can learn from: labels that are none, or what the network refuses
    LOSS = "loss"  # not finite
    GRADIENT = "gradient"  # not finite, although the loss is


class StepCounts(Protocol):
    """Steps done, how many of them were skipped, and how many of the latest."""

    step: int
    skipped: int
    skipped_in_row: int


def not_finite(*, loss: float, gradient_norm: float) -> SkipReason | None:
    """Why a step with these figures makes no update; None where it makes one."""
    if not math.isfinite(loss):
        return SkipReason.LOSS
    return None if math.isfinite(gradient_norm) else SkipReason.GRADIENT


def count_skip(counts: StepCounts, reason: SkipReason | None) -> None:
    """Counts the latest step, which `counts.step` has in it."""
    counts.skipped += reason is not None
    counts.skipped_in_row = counts.skipped_in_row + 1 if reason is not None else 0


def divergence(
    counts: StepCounts, reason: SkipReason, *, detail: str, flag: str, most_in_row: int = MAX_IN_ROW
) -> Failure | None:
    """What ends a training that skipped too many steps: DIVERGED; None where it goes on.

    Args:
        counts: with the latest step, which was skipped.
        reason: why it was.
        detail: what was wrong with its data, in words.
        flag: of the optimizer's fields, as users write it: `--optimizer`.
        most_in_row: as many steps one after the other are too many.
    """
    bound = max(MAX_IN_ROW, round(_MAX_SHARE * max(1000, counts.step)))
    if counts.skipped_in_row < most_in_row and counts.skipped <= bound:
        return None
    count = f"{counts.skipped} of {counts.step} steps were skipped ({counts.skipped_in_row} in a row)"
    cause = f"its {reason} was not finite: {lower_rates(flag)}"
    if reason is SkipReason.DATA:
        what = detail or "another worker's share of the batch could not be trained on"
        cause = f"of its data ({what}): look at the shards (//priors:verify)"
    return Failure(ExitCode.DIVERGED, f"training diverged: {count}; the last, because {cause}")


def lower_rates(flag: str) -> str:
    """What mends figures that are not finite."""
    return f"lower the learning rates ({flag}.matrix-lr, vector-lr)"
