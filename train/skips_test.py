"""Tests of skipped steps: how they are counted, how many are too many, and what is said then."""

import dataclasses
import math

import pytest

from tools.failure import ExitCode
from train.skips import SkipReason, count_skip, divergence, not_finite


@dataclasses.dataclass(kw_only=True)
class _Counts:
    step: int = 0
    skipped: int = 0
    skipped_in_row: int = 0


def _said(counts: _Counts, reason: SkipReason = SkipReason.LOSS, **options: int) -> str | None:
    failure = divergence(counts, reason, detail="label nan", flag="--some.optimizer", **options)
    assert failure is None or failure.code is ExitCode.DIVERGED
    return failure.message if failure else None


def test_the_loss_is_blamed_before_the_gradient() -> None:
    assert not_finite(loss=1.0, gradient_norm=2.0) is None
    assert not_finite(loss=math.nan, gradient_norm=math.nan) is SkipReason.LOSS
    assert not_finite(loss=1.0, gradient_norm=math.inf) is SkipReason.GRADIENT


def test_a_step_that_was_made_ends_a_row_and_is_not_counted() -> None:
    counts, seen = _Counts(), []
    for reason in (SkipReason.DATA, SkipReason.LOSS, None, SkipReason.GRADIENT):
        count_skip(counts, reason)
        seen.append((counts.skipped, counts.skipped_in_row))
    assert seen == [(1, 1), (2, 2), (2, 0), (3, 1)]


@pytest.mark.parametrize(
    ("step", "skipped", "in_row", "ends"),
    [
        (50, 9, 9, False),
        (50, 10, 10, True),
        (500, 10, 1, False),
        (500, 11, 1, True),  # of the first 1,000 steps one in a hundred
        (3000, 30, 1, False),
        (3000, 31, 1, True),
    ],
)
def test_ten_in_a_row_or_more_than_one_in_a_hundred_are_too_many(
    step: int, skipped: int, in_row: int, ends: bool
) -> None:
    assert (_said(_Counts(step=step, skipped=skipped, skipped_in_row=in_row)) is not None) is ends


def test_a_short_training_bears_fewer_in_a_row() -> None:
    counts = _Counts(step=3, skipped=3, skipped_in_row=3)
    assert _said(counts) is None
    assert _said(counts, most_in_row=3) is not None


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (SkipReason.LOSS, "its loss was not finite: lower the learning rates (--some.optimizer.matrix-lr, vector-lr)"),
        (SkipReason.DATA, "of its data (label nan): look at the shards (//priors:verify)"),
    ],
)
def test_numbers_cause_and_mend_are_said(reason: SkipReason, cause: str) -> None:
    said = _said(_Counts(step=12, skipped=10, skipped_in_row=10), reason)
    assert said == f"training diverged: 10 of 12 steps were skipped (10 in a row); the last, because {cause}"
