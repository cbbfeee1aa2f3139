"""Splits: which rows of a task are context and which are query, and which classes each side holds. Free of torch."""

import dataclasses
import enum
from collections.abc import Iterator

import numpy as np

from priors.task import Episode, Task
from tools.failure import BadInput, ExitCode


class ClassCover(enum.StrEnum):
    """Which sides of a split are to hold every class, as far as there is room."""

    CONTEXT = "context"  # every class can be learned; a rare one may never be asked for
    BOTH = "both"  # context and query hold the same classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How training cuts tasks into context and query."""

    min_share: float = 0.3
    """Smallest share of rows that are context."""
    max_share: float = 0.9
    """Largest."""
    classes: ClassCover = ClassCover.CONTEXT
    """Which sides hold every class: the context, or both."""

    def __post_init__(self) -> None:
        if not 0 < self.min_share <= self.max_share < 1:
            what = f"context shares min-share {self.min_share}, max-share {self.max_share} are impossible"
            raise BadInput(ExitCode.BAD_FLAG, f"{what}: give 0 < min-share ≤ max-share < 1")


def swaps(y: np.ndarray, *, cut: int, cover: ClassCover = ClassCover.CONTEXT) -> np.ndarray:
    """Row exchanges that bring every class of y [R] into the context [:cut], as far as there is room.

    Args:
        y: class ids.
        cut: context rows.
        cover: BOTH brings every class of two rows or more into the query [cut:] too.

    Returns:
        [s, 2] int64 pairs (context row, query row), no row in two of them; empty where nothing is to be done.
    """
    labels = y.astype(np.int64)
    sides = np.arange(cut), np.arange(cut, len(labels))
    used: set[int] = set()
    pairs = list(_fill(labels, to=sides[0][::-1], source=sides[1], keep=0, used=used))
    if cover is ClassCover.BOTH:
        now = labels.copy()
        for a, b in pairs:
            now[a], now[b] = labels[b], labels[a]
        pairs += [(b, a) for a, b in _fill(now, to=sides[1], source=sides[0], keep=1, used=used)]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _fill(
    labels: np.ndarray, *, to: np.ndarray, source: np.ndarray, keep: int, used: set[int]
) -> Iterator[tuple[int, int]]:
    """Pairs (row of `to`, row of `source`) whose exchange brings absent classes into `to`; no row is used twice.

    `to` gives up rows of classes that it holds twice; `source` keeps at least `keep` rows of a class.
    """
    size = int(labels.max()) + 1
    counts, left = (np.bincount(labels[rows], minlength=size) for rows in (to, source))
    for label in np.flatnonzero((counts == 0) & (left > keep)):
        found = [row for row in source[labels[source] == label] if row not in used]
        spare = [row for row in to if counts[labels[row]] > 1 and row not in used]
        if found and spare:
            used |= {spare[0], found[0]}
            counts[labels[spare[0]]] -= 1
            yield int(spare[0]), int(found[0])


def as_episode(task: Task, *, share: float, seed: int) -> Episode:
    """Cuts a task into context and query: rows permuted, every class in the context where it has room.

    Args:
        task: the whole table; not changed.
        share: share of the rows that are context.
        seed: the seed of the permutation.
    """
    order = np.random.default_rng(np.random.SeedSequence([seed, 3])).permutation(len(task.y))
    cut = min(max(round(share * len(order)), 1), len(order) - 1)
    if task.num_classes:
        for a, b in swaps(task.y[order], cut=cut):
            order[a], order[b] = order[b], order[a]
    return Episode(task=dataclasses.replace(task, x=task.x[order], y=task.y[order]), num_context=cut)
