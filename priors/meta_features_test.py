"""Tests of the meta-features of a table."""

import numpy as np

from priors.meta_features import GROUPS, meta_features, target_features
from priors.mixture import PriorConfig, sample_group
from priors.task import ColumnKind, Task, TaskKind


def test_tasks_of_one_kind_have_the_same_finite_features() -> None:
    """2.1: both domains are described by the same code, P(y|x) landmarkers included."""
    for kind in TaskKind:
        tasks = sample_group(PriorConfig(kind=kind), seed=5, rows=64, features=4, count=3).tasks()
        tasks += sample_group(PriorConfig(kind=kind), seed=5, rows=96, features=9, count=3).tasks()
        found = [meta_features(task) for task in tasks]
        assert len({vector.names for vector in found}) == 1
        assert {name.partition(".")[0] for name in found[0].names} == set(GROUPS)
        assert np.isfinite([vector.values for vector in found]).all()


def test_declaring_a_category_matters_to_no_group_but_the_landmarkers() -> None:
    task = sample_group(PriorConfig(), seed=6, rows=64, features=6, count=1).task(0)
    changed = Task(**{**task.__dict__, "column_kinds": np.full(6, ColumnKind.NUMBER, np.int8)})
    for name, before, after in zip(
        meta_features(task).names, meta_features(task).values, meta_features(changed).values, strict=True
    ):
        assert name.startswith("landmarkers.") or before == after, name


def test_the_target_is_described_by_its_classes() -> None:
    y = np.repeat([0.0, 1.0, 2.0], [60, 30, 10]).astype(np.float32)
    plain = {"column_kinds": np.zeros(1, np.int8), "level_counts": np.zeros(1, np.int32), "family": "rule"}
    task = Task(x=np.zeros((100, 1), np.float32), y=y, kind=TaskKind.CLASSIFICATION, num_classes=3, **plain)
    found = target_features(task)
    shares = np.array([0.6, 0.3, 0.1])
    assert np.isclose(found["class_entropy"], -(shares * np.log(shares)).sum() / np.log(3))
    assert np.allclose([found["largest_class"], found["smallest_class"]], [0.6, 0.3])
