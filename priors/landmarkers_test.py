"""Tests of landmarkers."""

from collections.abc import Callable

import numpy as np
import pytest

from priors.landmarkers import landmark_features
from priors.task import ColumnKind, Task, TaskKind

Rule = Callable[[np.ndarray], np.ndarray]


def task(rule: Rule, *, kind: TaskKind = TaskKind.CLASSIFICATION, rows: int = 240, columns: int = 4) -> Task:
    """Normal columns and a rule that gives scores (regression) or class ids."""
    x = np.random.default_rng(3).normal(size=(rows, columns)).astype(np.float32)
    y = rule(x).astype(np.float32)
    classes = len(np.unique(y)) if kind is TaskKind.CLASSIFICATION else 0
    return made(x, y, kind=kind, num_classes=classes)


def made(x: np.ndarray, y: np.ndarray, *, kind: TaskKind, num_classes: int) -> Task:
    """A task of number columns."""
    kinds, levels = np.full(x.shape[1], ColumnKind.NUMBER, np.int8), np.zeros(x.shape[1], np.int32)
    return Task(x=x, y=y, column_kinds=kinds, level_counts=levels, kind=kind, num_classes=num_classes, family="rule")


def noise(x: np.ndarray) -> np.ndarray:
    """Classes that nothing tells."""
    return np.random.default_rng(4).integers(0, 3, len(x))


def test_pure_noise_scores_like_chance() -> None:
    """2.1: landmarkers are held out: what cannot be learned is not scored."""
    found = landmark_features(task(noise), seed=0)
    for name in ("stump", "linear", "additive", "neighbours", "tree", "trees", "naive_bayes"):
        assert abs(found[name]) < 0.2, name
    assert found["accuracy_gain"] < 0.15


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_linear_rule_is_told_by_the_linear_learner(kind: TaskKind) -> None:
    is_class = kind is TaskKind.CLASSIFICATION
    found = landmark_features(
        task(lambda x: x @ [1, 1, -1, 1] > 0 if is_class else x @ [1, 1, -1, 1], kind=kind), seed=0
    )
    assert found["linear"] > 0.95
    assert found["linear"] > found["trees"] > found["stump"] + 0.2
    assert found["relevant_share"] == 1.0


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_bent_effect_is_told_by_the_additive_learner(kind: TaskKind) -> None:
    is_class = kind is TaskKind.CLASSIFICATION
    bend = task(lambda x: np.abs(x[:, 0]) > 0.7 if is_class else np.abs(x[:, 0]), kind=kind)
    found = landmark_features(bend, seed=0)
    assert found["additive"] > 0.6 > 0.3 > found["linear"]
    assert found["bend_gain"] > 0.35
    if is_class:
        assert found["naive_bayes"] > 0.7


def test_an_interaction_is_told_by_trees_alone() -> None:
    found = landmark_features(task(lambda x: x[:, 0] * x[:, 1] > 0, columns=2), seed=0)
    assert found["trees"] > 0.9
    assert max(found["additive"], found["linear"], found["naive_bayes"]) < 0.3
    assert found["interaction_gain"] > 0.6


def test_one_relevant_column_is_seen_as_such() -> None:
    found = landmark_features(task(lambda x: x[:, 2] > 0), seed=0)
    assert found["stump"] > 0.9
    assert found["one_column_part"] > 0.9
    assert found["relevant_spread"] == pytest.approx(0.25, abs=0.05)
    assert found["relevant_most"] > 0.5


def test_missing_cells_that_tell_are_seen() -> None:
    plain = task(lambda x: x[:, 0] > 0)
    x = plain.x.copy()
    x[plain.y > 0, 3] = np.nan
    assert landmark_features(plain, seed=0)["missing_tells"] == 0
    found = landmark_features(made(x, plain.y, kind=plain.kind, num_classes=2), seed=0)
    assert found["missing_tells"] > 0.9
    assert found["naive_bayes"] > 0.95


def test_scores_do_not_depend_on_units_of_columns_or_of_the_target() -> None:
    plain = task(lambda x: x[:, 0] + x[:, 1] ** 2, kind=TaskKind.REGRESSION)
    moved = made(plain.x * 1000 - 50, plain.y * 1e6 + 1e5, kind=plain.kind, num_classes=0)
    assert landmark_features(moved, seed=0) == pytest.approx(landmark_features(plain, seed=0), abs=0.02)


def test_infinite_missing_and_constant_columns_are_taken() -> None:
    plain = task(lambda x: x[:, 0] > 0)
    x = plain.x.copy()
    x[0, 1], x[1, 1], x[:, 2], x[:, 3] = np.inf, -np.inf, 7.0, np.nan
    found = landmark_features(made(x, plain.y, kind=plain.kind, num_classes=2), seed=0)
    assert all(np.isfinite(value) for value in found.values())
    assert found["trees"] > 0.9
