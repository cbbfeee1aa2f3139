"""Parts of tables of equal sizes, so that neither rows, columns nor classes tell real tables from synthetic ones.

Real tables decide: of each, several parts are taken, no larger than what the prior makes; then synthetic tasks of such
sizes are picked and cut to them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from priors.task import Task, TaskKind

_FEWEST_ROWS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """Args: the largest rows, columns and classes of a part (classes: 0 for regression)."""

    rows: int
    columns: int
    classes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartSize:
    """Args: rows and columns of one part."""

    rows: int
    columns: int


def limits_of(tasks: Sequence[Task]) -> SizeLimits:
    """The largest sizes among tasks."""
    return SizeLimits(
        rows=max(len(task.y) for task in tasks),
        columns=max(task.x.shape[1] for task in tasks),
        classes=max(task.num_classes for task in tasks),
    )


def part_of(task: Task, *, size: PartSize, max_classes: int, seed: int) -> Task | None:
    """Random rows and columns of a task, at most as many as `size` says, with at most `max_classes` classes.

    Classes of fewer than two rows in the part are left out, and class ids follow each other again.

    Returns:
        The part; None where fewer than 16 rows, or fewer than two classes or target values, would be left.
    """
    generator = np.random.default_rng([seed, 2])
    rows = np.arange(len(task.y))
    if task.kind is TaskKind.CLASSIFICATION and task.num_classes > max_classes:
        kept = generator.choice(task.num_classes, max_classes, replace=False)
        rows = rows[np.isin(task.y, kept)]
    rows = generator.permutation(rows)[: size.rows]
    columns = np.sort(generator.permutation(task.x.shape[1])[: size.columns])
    y, num_classes = task.y[rows], 0
    if task.kind is TaskKind.CLASSIFICATION:
        classes, sizes = np.unique(y, return_counts=True)
        rows = rows[np.isin(y, classes[sizes >= 2])]
        fresh, y = np.unique(task.y[rows], return_inverse=True)
        num_classes = len(fresh)
    if len(rows) < _FEWEST_ROWS or len(np.unique(y)) < 2:
        return None
    return dataclasses.replace(
        task,
        x=task.x[np.ix_(rows, columns)],
        y=y.astype(np.float32),
        column_kinds=task.column_kinds[columns],
        level_counts=task.level_counts[columns],
        num_classes=num_classes,
    )


def real_parts(tables: Sequence[Task], *, limits: SizeLimits, count: int, seed: int) -> tuple[list[Task], np.ndarray]:
    """`count` parts of each table: the first as large as it may be, the others with fewer columns.

    Returns:
        The parts, and for each the index of its table; parts that cannot be are left out.
    """
    parts, owners = [], []
    for index, table in enumerate(tables):
        generator = np.random.default_rng([seed, 3, index])
        most = min(table.x.shape[1], limits.columns)
        for number in range(count):
            columns = most if number == 0 else int(generator.integers((most + 1) // 2, most + 1))
            size = PartSize(rows=limits.rows, columns=columns)
            part = part_of(table, size=size, max_classes=limits.classes, seed=int(generator.integers(2**31)))
            if part is not None:
                parts.append(part)
                owners.append(index)
    return parts, np.array(owners, int)


def matching_parts(tasks: Sequence[Task], *, sizes: Sequence[PartSize], limits: SizeLimits, seed: int) -> list[Task]:
    """One part of a task for each of `sizes`: of the task that fits best and was not used yet.

    Tasks with as many columns are best, larger ones are cut; tasks with fewer are taken where nothing else is left, and
    the same counts for rows, which matter less.

    Returns:
        As many parts as `sizes`, or fewer where tasks run out.
    """
    generator = np.random.default_rng([seed, 4])
    pool = list(generator.permutation(len(tasks)))
    rows = np.log([len(tasks[i].y) for i in pool])
    columns = np.log([tasks[i].x.shape[1] for i in pool])
    free = np.ones(len(pool), bool)
    parts = []
    for size in sizes:
        wider, longer = columns - np.log(size.columns), rows - np.log(size.rows)
        cost = np.where(wider < 0, -3 * wider, wider) + np.where(longer < 0, -longer, 0.05 * longer)
        while free.any():
            best = int(np.where(free, cost, np.inf).argmin())
            free[best] = False
            task = tasks[pool[best]]
            part = part_of(task, size=size, max_classes=max(limits.classes, 2), seed=int(generator.integers(2**31)))
            if part is not None:
                parts.append(part)
                break
    return parts


def size_of(task: Task) -> PartSize:
    """Rows and columns of a task."""
    return PartSize(rows=len(task.y), columns=task.x.shape[1])
