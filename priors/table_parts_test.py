"""Tests of parts of tables."""

import numpy as np
import pytest

from priors.table_parts import PartSize, SizeLimits, limits_of, matching_parts, part_of, real_parts, size_of
from priors.task import ColumnKind, Task, TaskKind


def task(*, rows: int = 100, columns: int = 8, classes: int = 3, family: str = "rule") -> Task:
    """Column j of row i holds 1000·i + j, so that a part tells what it was taken from; classes by turns."""
    x = (1000 * np.arange(rows)[:, None] + np.arange(columns)).astype(np.float32)
    y = np.arange(rows) % classes if classes else np.arange(rows)
    return Task(
        x=x,
        y=y.astype(np.float32),
        column_kinds=np.arange(columns, dtype=np.int8) % 3,
        level_counts=np.arange(columns, dtype=np.int32),
        kind=TaskKind.CLASSIFICATION if classes else TaskKind.REGRESSION,
        num_classes=classes,
        family=family,
    )


def test_a_part_holds_whole_rows_and_columns_with_their_kinds_and_labels() -> None:
    whole = task()
    part = part_of(whole, size=PartSize(rows=40, columns=3), max_classes=10, seed=0)
    assert part is not None
    assert size_of(part) == PartSize(rows=40, columns=3)
    columns, rows = (part.x[0] % 1000).astype(int), (part.x[:, 0] // 1000).astype(int)
    assert (part.x == whole.x[np.ix_(rows, columns)]).all()
    assert (part.column_kinds == whole.column_kinds[columns]).all()
    assert (part.level_counts == whole.level_counts[columns]).all()
    assert (part.y == whole.y[rows]).all()
    assert len(set(rows)) == 40


def test_classes_beyond_the_limit_and_single_rows_are_left_out() -> None:
    many = part_of(task(classes=20), size=PartSize(rows=100, columns=8), max_classes=4, seed=1)
    assert many is not None
    assert (many.num_classes, sorted(set(many.y))) == (4, [0, 1, 2, 3])
    assert len(many.y) == 20
    rare = task()
    rare.y[:] = 0
    rare.y[:50], rare.y[99] = 1, 2
    part = part_of(rare, size=PartSize(rows=100, columns=8), max_classes=10, seed=1)
    assert part is not None
    assert (part.num_classes, len(part.y)) == (2, 99)


def test_there_is_no_part_without_two_classes_or_values() -> None:
    single = task()
    single.y[:] = 1
    flat = task(classes=0)
    flat.y[:] = 5
    for whole in (single, flat, task(rows=12)):
        assert part_of(whole, size=PartSize(rows=50, columns=2), max_classes=10, seed=0) is None


def test_real_tables_give_several_parts_no_larger_than_the_priors_tasks() -> None:
    """2.1: size separates nothing."""
    tables = [task(rows=500, columns=40), task(rows=60, columns=5)]
    parts, owners = real_parts(tables, limits=SizeLimits(rows=128, columns=16, classes=10), count=4, seed=0)
    assert owners.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [len(part.y) for part in parts] == [128] * 4 + [60] * 4
    assert [parts[0].x.shape[1], parts[4].x.shape[1]] == [16, 5]
    assert all(8 <= part.x.shape[1] <= 16 for part in parts[:4])
    assert len({part.x[0, 0] for part in parts[:4]}) > 1


def test_synthetic_tasks_get_the_sizes_of_the_real_parts() -> None:
    """2.1: size separates nothing."""
    pool = [task(rows=rows, columns=columns) for rows in (64, 128) for columns in (2, 4, 8, 16)]
    sizes = [PartSize(rows=100, columns=8), PartSize(rows=60, columns=3), PartSize(rows=64, columns=16)]
    found = matching_parts(pool, sizes=sizes, limits=limits_of(pool), seed=0)
    assert [size_of(part) for part in found] == sizes


def test_no_task_is_used_twice_and_the_nearest_stand_in_when_tasks_run_out() -> None:
    pool = [task(columns=4), task(columns=6)]
    found = matching_parts(pool, sizes=[PartSize(rows=50, columns=6)] * 3, limits=limits_of(pool), seed=0)
    assert [part.x.shape for part in found] == [(50, 6), (50, 4)]


@pytest.mark.parametrize("seed", [0, 1])
def test_equal_seeds_give_equal_parts(seed: int) -> None:
    size = PartSize(rows=30, columns=4)
    a, b, c = (part_of(task(), size=size, max_classes=10, seed=s) for s in (seed, seed, seed + 1))
    assert a is not None and b is not None and c is not None
    assert (a.x == b.x).all() and not (a.x == c.x).all()
    assert set(a.column_kinds) <= {int(kind) for kind in ColumnKind}
