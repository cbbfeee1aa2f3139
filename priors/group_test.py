"""Tests of priors.group: a group's tasks and parts."""

import numpy as np

from priors.group import TaskGroup
from priors.task import TaskKind


def make_group() -> TaskGroup:
    """Three tasks of four rows and two features."""
    return TaskGroup(
        x=np.arange(24, dtype=np.float32).reshape(3, 4, 2),
        y=np.arange(12, dtype=np.float32).reshape(3, 4),
        column_kinds=np.arange(6, dtype=np.int8).reshape(3, 2),
        level_counts=np.arange(6, dtype=np.int32).reshape(3, 2),
        num_classes=np.array([2, 3, 4], np.int32),
        families=("a", "b", "c"),
        seeds=np.array([7, 8, 9]),
        parameters=('{"noise": 0.5}', "{}", "{}"),
        kind=TaskKind.CLASSIFICATION,
    )


def test_a_task_is_one_row_of_every_array() -> None:
    group = make_group()
    task = group.task(0)
    assert (len(group), group.rows, group.features) == (3, 4, 2)
    assert (task.family, task.seed, task.num_classes, task.parameters) == ("a", 7, 2, {"noise": 0.5})
    last = group.tasks()[2]
    np.testing.assert_array_equal(last.x, group.x[2])
    np.testing.assert_array_equal(last.y, group.y[2])
    np.testing.assert_array_equal(last.column_kinds, [4, 5])
    np.testing.assert_array_equal(last.level_counts, [4, 5])


def test_a_part_slices_every_field() -> None:
    part = make_group().part(1, 3)
    assert (len(part), part.families, part.kind) == (2, ("b", "c"), TaskKind.CLASSIFICATION)
    assert part.task(0).seed == 8 and part.task(1).num_classes == 4
    assert len(part.parameters) == 2 and part.level_counts.tolist() == [[2, 3], [4, 5]]
