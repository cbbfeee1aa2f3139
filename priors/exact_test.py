"""Families with a known posterior: pure functions of the seed, well-formed groups, nothing done after the draw."""

import dataclasses

import numpy as np
import pytest

from priors.exact import FAMILIES_OF_KIND, ExactConfig, ExactFamily, kind_of, sample_exact_group
from priors.group import TaskGroup
from priors.task import ColumnKind, TaskKind

EVERY = list(ExactFamily)


def _group(family: ExactFamily, *, seed: int = 3, features: int = 4) -> TaskGroup:
    return sample_exact_group(ExactConfig(), family, seed=seed, rows=40, features=features, count=16)


@pytest.mark.parametrize("family", EVERY)
def test_equal_seeds_give_equal_bytes_and_other_seeds_other_tasks(family: ExactFamily) -> None:
    first, again, other = _group(family), _group(family), _group(family, seed=4)
    for field in dataclasses.fields(TaskGroup):
        one, two = getattr(first, field.name), getattr(again, field.name)
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes() and np.shape(one) == np.shape(two)
    assert first.parameters == again.parameters and first.families == (family.value,) * 16
    assert not np.array_equal(first.x, other.x) and not np.array_equal(first.y, other.y)


@pytest.mark.parametrize("family", EVERY)
def test_a_group_holds_what_other_families_groups_hold(family: ExactFamily) -> None:
    group = _group(family)
    assert (group.x.dtype, group.y.dtype, group.column_kinds.dtype) == (np.float32, np.float32, np.int8)
    assert group.x.shape == (16, 40, 4) and np.isfinite(group.x).all() and np.isfinite(group.y).all()
    assert group.kind is kind_of(family) and family in FAMILIES_OF_KIND[group.kind]
    if group.kind is TaskKind.REGRESSION:
        assert (group.num_classes == 0).all() and (group.level_counts == 0).all()
        assert (group.column_kinds == ColumnKind.NUMBER).all()
    else:
        assert (group.y < group.num_classes[:, None]).all() and (group.y == group.y.round()).all()
        assert (group.x < group.level_counts[:, None]).all() and (group.x >= 0).all()
        assert set(group.num_classes.tolist()) == set(range(2, int(group.num_classes.max()) + 1))
    task = group.task(5)
    assert task.parameters["position"] == 5 and len(task.parameters) >= 2


def test_tasks_stay_within_a_models_limits() -> None:
    small = ExactConfig().within(max_features=3, max_classes=2)
    assert small.features == (1, 2) and small.coded_features == (2, 3)
    for family in FAMILIES_OF_KIND[TaskKind.CLASSIFICATION]:
        group = sample_exact_group(small, family, seed=0, rows=9, features=3, count=20)
        assert set(group.num_classes.tolist()) == {2}
    assert ExactConfig().within(max_features=100, max_classes=10) == ExactConfig()
    assert ExactConfig().within(max_features=1, max_classes=10).coded_features == (1,)


def test_tasks_of_one_group_differ_and_families_do_not_share_draws() -> None:
    linear, process = _group(ExactFamily.LINEAR_GAUSSIAN), _group(ExactFamily.GAUSSIAN_PROCESS)
    assert not np.array_equal(linear.x, process.x)
    assert len({task.tobytes() for task in linear.x}) == 16
