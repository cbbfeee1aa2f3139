"""Specimens of families: which are kept, and what planes are like."""

import dataclasses

import numpy as np
import pytest

from priors.families import Family
from priors.mixture import PriorConfig, sample_group
from priors.specimens import draw_planes, most_telling, noted
from priors.task import ColumnKind, Task, TaskKind
from tools.failure import BadInput, ExitCode

_CONFIG = PriorConfig(only=(Family.RULES, Family.FOREST))


def test_the_first_task_of_a_family_in_each_group_is_kept_and_groups_pass_unchanged() -> None:
    groups = [sample_group(_CONFIG, seed=seed, rows=64, features=3, count=12) for seed in range(4)]
    specimens: dict[str, list[Task]] = {}
    assert list(noted(groups, specimens=specimens, per_family=3)) == groups
    assert set(specimens) == {"rules", "forest"}
    for family, kept in specimens.items():
        assert [task.seed for task in kept] == [0, 1, 2] and all(task.family == family for task in kept)
        first = groups[1].families.index(family)
        assert np.array_equal(kept[1].x, groups[1].x[first], equal_nan=True)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_planes_are_numbers_without_gaps_or_noise_and_all_of_one_family(kind: TaskKind) -> None:
    config = dataclasses.replace(_CONFIG, kind=kind)
    tasks = draw_planes(config, family="forest", seed=1, count=20)
    assert (
        len(tasks) == 20 and {task.family for task in tasks} == {"forest"} and {task.kind for task in tasks} == {kind}
    )
    for task in tasks:
        assert task.x.shape[1] == 2 and len(task.x) > 1000 and not np.isnan(task.x).any()
        assert set(task.column_kinds.tolist()) == {ColumnKind.NUMBER}
        assert task.parameters["missing"] == 0
    noise = [task.parameters["noise_share"] for task in tasks]
    assert np.mean(np.array(noise) < 1e-3) > 0.7  # a target that would be constant is replaced by another


def test_the_same_seed_draws_the_same_planes_and_families_have_streams_of_their_own() -> None:
    first, again, other = (draw_planes(_CONFIG, family="forest", seed=seed, count=2) for seed in (1, 1, 2))
    assert np.array_equal(first[0].x, again[0].x) and not np.array_equal(first[0].x, other[0].x)
    assert draw_planes(_CONFIG, family="rules", seed=1, count=1)[0].seed != first[0].seed


def test_the_most_telling_plane_needs_both_features_and_then_has_no_class_of_nearly_all_rows() -> None:
    first = draw_planes(_CONFIG, family="forest", seed=1, count=1)[0]

    def task(**facts: float) -> Task:
        return dataclasses.replace(first, parameters=facts)

    one, lopsided, good = (
        task(relevant=1, largest_class=0.5),
        task(relevant=2, largest_class=0.95),
        task(relevant=2, largest_class=0.6),
    )
    assert most_telling([one, lopsided, good, task(relevant=2, largest_class=0.4)]) is good
    assert most_telling([one, lopsided]) is lopsided
    assert most_telling([task(relevant=1, largest_class=0.9), one]) is one
    regression = task(relevant=2)
    assert most_telling([task(relevant=1), regression]) is regression and most_telling([task()]).parameters == {}


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(BadInput, match=r"'woods'.*forest") as caught:
        draw_planes(_CONFIG, family="woods", seed=0, count=1)
    assert caught.value.code is ExitCode.BAD_FLAG
