"""Tests of priors.mixture: legal, repeatable, varied, learnable tasks at speed."""

import dataclasses
import hashlib
import json
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from priors.generation import held_out_episodes
from priors.group import TaskGroup
from priors.mixture import FAMILIES, VERSION, PriorConfig, draw_shape, sample_group
from priors.task import ColumnKind, Episode, TaskKind

# sha256 of the integer draws of one group. A change of the draws changes it: raise VERSION, then write both down here.
DRAWS = {"version": 6, "sha256": "3857d19bb23506e6"}


def check_group(group: TaskGroup, *, rows: int, features: int) -> None:
    """Everything that readers of a group may rely on."""
    count = len(group)
    assert group.x.shape == (count, rows, features) and group.x.dtype == np.float32
    assert group.y.shape == (count, rows) and group.y.dtype == np.float32
    assert group.column_kinds.shape == group.level_counts.shape == (count, features)
    assert (group.column_kinds.dtype, group.level_counts.dtype) == (np.int8, np.int32)
    assert group.num_classes.dtype == np.int32 and group.seeds.dtype == np.int64
    assert np.isfinite(group.y).all() and not np.isinf(group.x).any()
    coded = group.column_kinds != ColumnKind.NUMBER
    cells = np.moveaxis(group.x, 1, 2)[coded]
    known = ~np.isnan(cells)
    assert (cells[known] == cells[known].round()).all() and (cells[known] >= 0).all()
    assert (np.nanmax(np.where(known, cells, -1), axis=1, initial=-1) < group.level_counts[coded]).all()
    assert (group.level_counts[~coded] == 0).all()
    for task in group.tasks():
        if group.kind is TaskKind.CLASSIFICATION:
            sizes = np.bincount(task.y.astype(int))
            assert (task.y == task.y.astype(int)).all()
            assert len(sizes) == task.num_classes >= 2 and sizes.min() >= 2
        else:
            assert task.num_classes == 0 and task.y.std() > 0
        assert task.family in FAMILIES and {"noise", "missing", "relevant"} <= set(task.parameters)


@given(
    seed=st.integers(0, 2**63 - 1),
    rows=st.sampled_from([16, 32, 100]),
    features=st.integers(1, 12),
    kind=st.sampled_from(list(TaskKind)),
)
@settings(max_examples=25, deadline=None)
def test_every_group_is_legal(seed: int, rows: int, features: int, kind: TaskKind) -> None:
    config = PriorConfig(kind=kind)
    check_group(sample_group(config, seed=seed, rows=rows, features=features, count=8), rows=rows, features=features)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_group_is_a_pure_function_of_its_arguments(kind: TaskKind) -> None:
    """D2: equal arguments, equal bytes, whatever the global random state."""
    config = PriorConfig(kind=kind)
    torch.manual_seed(1)
    first = sample_group(config, seed=5, rows=64, features=4, count=16)
    torch.manual_seed(2)
    second = sample_group(config, seed=5, rows=64, features=4, count=16)
    other = sample_group(config, seed=6, rows=64, features=4, count=16)
    for name in ("x", "y", "column_kinds", "level_counts", "num_classes"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert (first.families, first.parameters) == (second.families, second.parameters)
    assert first.x.tobytes() != other.x.tobytes()


def test_the_version_of_the_draws_is_raised_when_they_change() -> None:
    group = sample_group(PriorConfig(), seed=11, rows=64, features=6, count=64)
    data = group.column_kinds.tobytes() + group.level_counts.tobytes() + " ".join(group.families).encode()
    depths = [[json.loads(text).get(name) for name in ("depth", "relevant", "rule")] for text in group.parameters]
    data += json.dumps(depths).encode()
    assert {"version": VERSION, "sha256": hashlib.sha256(data).hexdigest()[:16]} == DRAWS


def test_families_are_mixed_by_weight_and_in_no_order() -> None:
    group = sample_group(PriorConfig(), seed=0, rows=32, features=3, count=600)
    shares = {name: group.families.count(name) / 600 for name in FAMILIES}
    assert shares == pytest.approx({"structural": 0.55, "forest": 0.3, "rules": 0.15}, abs=0.06)
    changes = sum(a != b for a, b in zip(group.families, group.families[1:], strict=False))
    assert changes > 250
    assert [task.parameters["position"] for task in group.tasks()] == list(range(600))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_can_be_asked_for_alone(name: str) -> None:
    weights = {f"{family}_weight": float(family == name) for family in FAMILIES}
    group = sample_group(PriorConfig(**weights), seed=0, rows=32, features=3, count=8)
    assert set(group.families) == {name}


def test_shapes_are_multiples_of_the_step_and_small_tables_are_common() -> None:
    config = PriorConfig(min_rows=64, max_rows=250, row_step=32, min_features=2, max_features=24)
    shapes = [draw_shape(config, seed=seed) for seed in range(2000)]
    assert {shape.rows for shape in shapes} == set(range(64, 250, 32))
    features = np.array([shape.features for shape in shapes])
    assert set(features) == set(range(2, 25))
    assert 7 <= np.median(features) <= 9


def test_every_mechanism_of_the_configuration_turns_up() -> None:
    tasks = [
        task
        for seed in range(6)
        for task in sample_group(PriorConfig(), seed=seed, rows=64, features=8, count=64).tasks()
    ]
    assert {task.parameters["mode"] for task in tasks if task.family == "structural"} == {0, 1, 2}
    assert {task.parameters["rule"] for task in tasks if task.family == "rules"} == {0, 1, 2, 3, 4}
    assert 8 <= max(task.num_classes for task in tasks) <= 10
    assert max(task.parameters["missing"] for task in tasks) > 0.1
    assert {int(kind) for task in tasks for kind in task.column_kinds} == {0, 1, 2}


def gain(episode: Episode) -> float:
    """How much of the error of a constant prediction extra trees remove: 0 is none, 1 is all."""
    task, cut = episode.task, episode.num_context
    x = np.nan_to_num(task.x, nan=-1e4)
    if task.kind is TaskKind.REGRESSION:
        found = ExtraTreesRegressor(30, min_samples_leaf=2, random_state=0).fit(x[:cut], task.y[:cut]).predict(x[cut:])
        return 1 - np.square(found - task.y[cut:]).mean() / np.square(task.y[:cut].mean() - task.y[cut:]).mean()
    found = ExtraTreesClassifier(30, min_samples_leaf=2, random_state=0).fit(x[:cut], task.y[:cut]).predict(x[cut:])
    constant = np.bincount(task.y[:cut].astype(int)).argmax()
    right = (found == task.y[cut:]).mean() - (constant == task.y[cut:]).mean()
    return right / max((constant != task.y[cut:]).mean(), 1e-9)


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("name", FAMILIES)
def test_most_tasks_can_be_learned_and_some_hardly(name: str, kind: TaskKind) -> None:
    weights = {f"{family}_weight": float(family == name) for family in FAMILIES}
    config = PriorConfig(kind=kind, min_rows=256, max_rows=256, min_features=3, max_features=16, **weights)
    gains = [gain(episode) for episode in held_out_episodes(config, seed=0, count=40)]
    assert np.median(gains) > 0.15 and np.mean(np.array(gains) > 0.05) > 0.6
    assert np.min(gains) < 0.1 and np.max(gains) > 0.5


@pytest.mark.parametrize("kind", list(TaskKind))
def test_tasks_are_drawn_faster_than_training_reads_them(kind: TaskKind) -> None:
    config = dataclasses.replace(PriorConfig(), kind=kind)
    best = np.inf
    for seed in range(6):
        start = time.perf_counter()
        sample_group(config, seed=seed, rows=128, features=10, count=64)
        best = min(best, time.perf_counter() - start)
    assert 64 / best > 400  # about 2,500 on an idle core
