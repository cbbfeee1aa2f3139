"""Outcomes of rules: functions from the bins of a few columns to a class, each task with its own.

A rule is drawn first and applied afterwards, so that it can be asked about rows that are not in the table.
"""

from collections.abc import Callable

import torch

from priors.draws import Draws

Outcome = Callable[[torch.Tensor], torch.Tensor]
"""From bins [n, D, M] int64, 0 … 3, to classes [n, M] int64."""

_TERMS = 8


def parity(draws: Draws, bins: torch.Tensor, *, max_classes: int) -> Outcome:
    """XOR of the first two or three drivers, or of as many as are not 0 everywhere."""
    del max_classes
    three = draws.happens((len(bins), 1), share=0.4)
    return lambda b: (b[:, 0] + b[:, 1] + b[:, 2] * three) % 2


def lookup(draws: Draws, bins: torch.Tensor, *, max_classes: int) -> Outcome:
    """A table over two or three drivers with random entries."""
    three = draws.happens((len(bins), 1), share=0.5)
    classes = draws.counts((len(bins), 1), low=2, high=max_classes)
    entries = (draws.uniform((len(bins), 64)) * classes).long()
    return lambda b: entries.gather(1, b[:, 0] + 4 * b[:, 1] + 16 * b[:, 2] * three)


def count(draws: Draws, bins: torch.Tensor, *, max_classes: int) -> Outcome:
    """How many of three to nine drivers are in their upper bins, cut at one or two places."""
    del max_classes
    number = draws.integers((len(bins), 1), low=3, high=bins.shape[1])
    used = (draws.arange(bins.shape[1]) < number).unsqueeze(-1)
    totals = ((bins > 0) & used).sum(1)
    row = draws.integers((len(bins), 1), low=0, high=bins.shape[-1] - 1)
    first = totals.gather(1, row).minimum(totals.amax(-1, keepdim=True) - 1)  # both sides have rows
    second = first + draws.integers((len(bins), 1), low=1, high=2)
    two = draws.happens((len(bins), 1), share=0.4)

    def apply(b: torch.Tensor) -> torch.Tensor:
        total = ((b > 0) & used).sum(1)
        return (total > first).long() + ((total > second) & two)

    return apply


def nested(draws: Draws, bins: torch.Tensor, *, max_classes: int) -> Outcome:
    """Two intermediate grades, each a cut sum of two or three drivers, decide the result together."""
    del max_classes
    size = len(bins)
    sign = draws.integers((size, 6, 1), low=0, high=1) * 2 - 1
    sign[:, 2::3] *= draws.integers((size, 2, 1), low=0, high=1)  # the third driver of a grade is not always used
    sums = (bins[:, :6] * sign).view(size, 2, 3, -1).sum(2).float()
    spread = draws.tensor([-1.0, 0.5]) * draws.uniform((size, 2, 2), low=0.3, high=1)
    borders = (sums.mean(-1, keepdim=True) + spread).unsqueeze(-1)
    low, high = draws.arange(3).view(3, 1), draws.arange(3)
    joint = torch.where(draws.happens((size, 1, 1), share=0.5), low.minimum(high), (low + high) // 2)
    free = draws.integers((size, 3, 3), low=0, high=2)
    entries = torch.where(draws.happens((size, 1, 1), share=0.3), free, joint).view(size, 9)

    def apply(b: torch.Tensor) -> torch.Tensor:
        total = (b[:, :6] * sign).view(size, 2, 3, -1).sum(2)
        grades = (total.unsqueeze(2) > borders).sum(2)
        return entries.gather(1, grades[:, 0] * 3 + grades[:, 1])

    return apply


def alternatives(draws: Draws, bins: torch.Tensor, *, max_classes: int) -> Outcome:
    """True where any of two to eight conjunctions of two or three tests holds; each asks for what some row has."""
    del max_classes
    size, drivers, rows = bins.shape
    columns = draws.uniform((size, _TERMS, drivers)).argsort(-1)[:, :, :3].reshape(size, -1, 1)
    sample = draws.integers((size, _TERMS, 1), low=0, high=rows - 1).expand(-1, -1, 3).reshape(size, 1, -1)
    wanted = bins.gather(1, columns.expand(-1, -1, rows)).gather(2, sample.transpose(1, 2))
    any_value = torch.zeros((size, _TERMS, 3, 1), dtype=torch.bool, device=bins.device)
    any_value[:, :, 2] = draws.happens((size, _TERMS, 1), share=0.4)
    terms = (draws.arange(_TERMS) < draws.integers((size, 1), low=2, high=_TERMS)).unsqueeze(-1)

    def apply(b: torch.Tensor) -> torch.Tensor:
        tested = b.gather(1, columns.expand(-1, -1, b.shape[-1])) == wanted
        holds = tested.view(size, _TERMS, 3, -1) | any_value
        return (holds[:, :, 0] & holds[:, :, 1] & holds[:, :, 2] & terms).any(1).long()

    return apply


OUTCOMES = (parity, lookup, count, nested, alternatives)
