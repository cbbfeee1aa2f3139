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

from priors.draws import Draws
from priors.families import Family, FamilyWeights
from priors.generation import held_out_episodes
from priors.group import TaskGroup
from priors.mixture import VERSION, PriorConfig, checked, draw_group, draw_shape, sample_group
from priors.signal_filter import SignalFilterConfig, measure_signal
from priors.splits import as_episode
from priors.targets import TargetConfig
from priors.task import ColumnKind, Episode, TaskKind
from tools.failure import ExitCode, Failure

# sha256 of the integer draws of one group. A change of the draws changes it: raise VERSION, then write both down here.
DRAWS = {"version": 7, "sha256": "6754752d4092c6cc"}


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
            assert 2 <= task.num_classes <= 10 and len(sizes) <= task.num_classes
            if not Family(task.family).exact:
                assert len(sizes) == task.num_classes and sizes.min() >= 2
        else:
            assert task.num_classes == 0 and task.y.std() > 0
        assert Family(task.family).makes(group.kind)
        assert {"missing", "noise_share", "relevant"} <= set(task.parameters)
        assert 0 <= task.parameters["noise_share"] <= 1 and 0 <= task.parameters["relevant"] <= features
        assert Family(task.family).exact or "signal" in task.parameters


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


def test_families_are_mixed_by_weight_whatever_is_rejected_and_in_no_order() -> None:
    weights = FamilyWeights(**dict.fromkeys((family.value for family in Family), 0.0) | {"mlp_scm": 2, "forest": 1})
    config = PriorConfig(weights=weights)
    assert config.shares() == {Family.MLP_SCM: pytest.approx(2 / 3), Family.FOREST: pytest.approx(1 / 3)}
    draw = draw_group(config, seed=0, rows=64, features=3, count=600)
    group = draw.group
    assert group.families.count("mlp_scm") / 600 == pytest.approx(2 / 3, abs=0.06)
    assert sum(a != b for a, b in zip(group.families, group.families[1:], strict=False)) > 200
    assert [task.parameters["position"] for task in group.tasks()] == list(range(600))
    assert draw.rejected["mlp_scm"] > 10 and sum(draw.drawn.values()) >= 600 + sum(draw.rejected.values())
    without = dataclasses.replace(config, filter=SignalFilterConfig(enabled=False))
    free = draw_group(without, seed=0, rows=64, features=3, count=600)
    assert free.group.families == group.families and free.rejected == {"mlp_scm": 0, "forest": 0}
    assert "signal" not in free.group.tasks()[0].parameters


@pytest.mark.parametrize("family", list(Family))
def test_a_family_can_be_asked_for_alone(family: Family) -> None:
    kind = next(kind for kind in TaskKind if family.makes(kind))
    group = sample_group(PriorConfig(kind=kind, only=(family,)), seed=0, rows=32, features=3, count=8)
    assert set(group.families) == {family.value}


@pytest.mark.parametrize("kind", list(TaskKind))
def test_tasks_with_a_known_posterior_are_neither_filtered_nor_disturbed(kind: TaskKind) -> None:
    """5.I: a posterior is exact only where nothing was done to what the family drew."""
    exact = tuple(family for family in Family if family.exact and family.makes(kind))
    draw = draw_group(PriorConfig(kind=kind, only=exact), seed=0, rows=64, features=4, count=300)
    assert len(exact) == 2 and set(draw.rejected.values()) == {0} and sum(draw.drawn.values()) == 300
    assert np.isfinite(draw.group.x).all()
    assert all("signal" not in task.parameters for task in draw.group.tasks())
    if kind is TaskKind.CLASSIFICATION:
        ids = [np.unique(task.y) for task in draw.group.tasks()]
        assert any(len(found) < task.num_classes for found, task in zip(ids, draw.group.tasks(), strict=True))


def test_what_the_filter_lets_pass_has_more_signal_than_what_it_rejects() -> None:
    config = PriorConfig(filter=SignalFilterConfig(enabled=False))
    group = sample_group(config, seed=0, rows=96, features=6, count=160)
    found = measure_signal(
        Draws(0),
        SignalFilterConfig(),
        x=torch.from_numpy(group.x).transpose(1, 2),
        y=torch.from_numpy(group.y),
        column_kinds=torch.from_numpy(group.column_kinds),
        num_classes=torch.from_numpy(group.num_classes),
    )
    gains = np.array([gain(as_episode(task, share=0.5, seed=i)) for i, task in enumerate(group.tasks())])
    passed = found.passed.numpy()
    assert 0.03 < (~passed).mean() < 0.4
    assert gains[passed].mean() > 0.3 and gains[~passed].mean() < 0.1


@pytest.mark.parametrize("count", [1, 8, 64])
def test_the_filter_prefers_no_part_of_a_family_and_places_tell_nothing(count: int) -> None:
    """A lot is cut to size after the filter: what a family puts last must not be lost more often."""
    config = PriorConfig(kind=TaskKind.REGRESSION, only=(Family.MLP_SCM,))
    shape = {"rows": 32, "features": 4, "count": count}
    hidden, places = [], []
    for seed in range(400 // count + 4):
        for place, task in enumerate(sample_group(config, seed=seed, **shape).tasks()):
            hidden.append(task.parameters["mode"] == 1)
            places.append(place)
    assert 0.34 < np.mean(hidden) < 0.66
    if count > 1:
        assert abs(np.corrcoef(places, hidden)[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (PriorConfig(targets=TargetConfig(max_classes=65)), ("--targets.max-classes 65", "--min-rows 64")),
        (PriorConfig(targets=TargetConfig(max_classes=1)), ("--targets.max-classes 1",)),
        (PriorConfig(min_features=0), ("--min-features 0",)),
        (PriorConfig(max_features=1), ("--max-features 1", "--min-features 2")),
        (PriorConfig(min_rows=8), ("--min-rows 8", "16")),
        (PriorConfig(min_rows=90, max_rows=95), ("--max-rows 95", "--min-rows 90")),
        (PriorConfig(row_step=0), ("--row-step 0",)),
        (PriorConfig(weights=FamilyWeights(rules=-0.5)), ("--weights.rules -0.5",)),
        (PriorConfig(only=(Family.HETEROSCEDASTIC,)), ("--only heteroscedastic", "classification")),
        (PriorConfig(weights=FamilyWeights(**{family.value: 0.0 for family in Family})), ("--weights", "above 0")),
    ],
)
def test_impossible_priors_are_refused_by_flag_and_value(config: PriorConfig, words: tuple[str, ...]) -> None:
    with pytest.raises(Failure) as caught:
        checked(config)
    assert caught.value.code == ExitCode.BAD_FLAG
    assert all(word in caught.value.message for word in words), caught.value.message


def test_shapes_are_multiples_of_the_step_and_small_tables_are_common() -> None:
    config = PriorConfig(min_rows=64, max_rows=250, row_step=32, min_features=2, max_features=24)
    shapes = [draw_shape(config, seed=seed) for seed in range(2000)]
    assert {shape.rows for shape in shapes} == set(range(64, 250, 32))
    features = np.array([shape.features for shape in shapes])
    assert set(features) == set(range(2, 25))
    assert 6 <= np.median(features) <= 8  # √(2 · 25) − ½


def test_every_mechanism_of_the_configuration_turns_up() -> None:
    tasks = [
        task
        for seed in range(6)
        for task in sample_group(PriorConfig(), seed=seed, rows=64, features=8, count=64).tasks()
    ]
    assert {task.parameters["mode"] for task in tasks if task.family == "mlp_scm"} == {0, 1, 2}
    rules = sample_group(PriorConfig(only=(Family.RULES,)), seed=0, rows=64, features=4, count=64).tasks()
    assert {task.parameters["rule"] for task in rules} == {0, 1, 2, 3, 4}
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


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, kind) for family in Family for kind in TaskKind if family.makes(kind) and not family.exact],
)
def test_most_tasks_can_be_learned_and_some_hardly(family: Family, kind: TaskKind) -> None:
    shape = {"min_rows": 256, "max_rows": 256, "min_features": 3, "max_features": 16}
    config = PriorConfig(kind=kind, only=(family,), **shape)
    gains = [gain(episode) for episode in held_out_episodes(config, seed=0, count=40)]
    assert np.median(gains) > 0.15 and np.mean(np.array(gains) > 0.05) > 0.6
    assert np.min(gains) < 0.4 and np.max(gains) > 0.5


@pytest.mark.parametrize("kind", list(TaskKind))
def test_tasks_are_drawn_faster_than_training_reads_them(kind: TaskKind) -> None:
    config = dataclasses.replace(PriorConfig(), kind=kind)
    best = np.inf
    for seed in range(6):
        start = time.perf_counter()
        sample_group(config, seed=seed, rows=128, features=10, count=64)
        best = min(best, time.perf_counter() - start)
    assert 64 / best > 400  # about 2,500 on an idle core
