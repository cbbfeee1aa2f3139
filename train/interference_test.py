"""Tests of what is said about interference: arms, paired losses, intervals, and cosines whose value is known."""

from typing import Any

import numpy as np
import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import Network
from priors.task import TaskBatch, TaskKind
from train.interference import (
    Arms,
    interval,
    loss_table,
    num_arm_steps,
    stage_table,
    task_losses,
    task_table,
    train_arms,
)
from train.joint import LossWeights
from train.joint_loop import ArmBudget
from train.optimizer_config import OptimizerConfig
from train.toy import small_network, toy_batch

_C, _R = LabelKind.CLASSIFICATION, LabelKind.REGRESSION
_BUDGET = ArmBudget(num_steps=6, first_batch=0, optimizer=OptimizerConfig(matrix_lr=3e-3, vector_lr=1e-3))


class _ToyPlan:
    """Batches of four toy tables, by index."""

    def __init__(self, kind: LabelKind) -> None:
        self._kind = TaskKind(kind.value)

    def batch(self, index: int, *, rank: int = 0, world_size: int = 1) -> TaskBatch:
        whole = toy_batch(self._kind, seed=index)
        part = len(whole.families) // world_size
        return whole.part(rank * part, (rank + 1) * part)


def _singles() -> dict[LabelKind, Network]:
    return {kind: initial_network(small_network(kind), seed=seed) for seed, kind in enumerate(LabelKind)}


def _arms(singles: dict[LabelKind, Network], records: list[dict[str, Any]], backbone: LabelKind = _C) -> Arms:
    plans = {kind: _ToyPlan(kind) for kind in LabelKind}
    return train_arms(singles, plans, budget=_BUDGET, weights=LossWeights(), backbone=backbone, record=records.append)


@pytest.fixture(scope="module")
def singles() -> dict[LabelKind, Network]:
    return _singles()


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return []


@pytest.fixture(scope="module")
def arms(singles: dict[LabelKind, Network], records: list[dict[str, Any]]) -> Arms:
    return _arms(singles, records)


def _batches() -> dict[LabelKind, list[TaskBatch]]:
    return {kind: [toy_batch(TaskKind(kind.value), seed=seed) for seed in (90, 91)] for kind in LabelKind}


def test_every_arm_makes_as_many_steps(arms: Arms, records: list[dict[str, Any]]) -> None:
    """6.12: the same number of steps for joint and single-task networks."""
    steps = {arm: [r["step"] for r in records if r["arm"] == arm] for arm in {r["arm"] for r in records}}
    assert set(steps) == {"joint", "alone/classification", "alone/regression", "single/regression"} == set(arms.seconds)
    assert all(found == list(range(1, 7)) for found in steps.values())
    assert len(records) == num_arm_steps(6)


def test_arms_start_at_the_single_task_weights_and_leave_them_as_they_are(
    arms: Arms, singles: dict[LabelKind, Network], records: list[dict[str, Any]]
) -> None:
    """1.7: started from single-task weights: before the first step the predictions are those of the single network."""
    fresh = _singles()
    for kind in LabelKind:
        given, before = singles[kind].state_dict(), fresh[kind].state_dict()
        assert all(torch.equal(given[name], tensor) for name, tensor in before.items())
    batches = _batches()[_C]
    assert np.array_equal(task_losses(arms.start.network(_C), batches), task_losses(singles[_C], batches))
    assert arms.alone[_C] is arms.single[_C] and arms.alone[_R] is not arms.single[_R]
    first = {record["arm"]: record for record in records if record["step"] == 1}
    begun = first["joint"]["train/regression/loss"]
    assert first["alone/regression"]["train/loss"] == pytest.approx(begun, rel=1e-4)
    assert first["single/regression"]["train/loss"] != pytest.approx(begun, rel=1e-4)


def test_the_backbone_of_either_task_can_be_the_start(singles: dict[LabelKind, Network]) -> None:
    arms = _arms(singles, [], backbone=_R)
    batches = _batches()[_R]
    assert np.array_equal(task_losses(arms.start.network(_R), batches), task_losses(singles[_R], batches))
    assert arms.alone[_R] is arms.single[_R] and arms.alone[_C] is not arms.single[_C]


def test_losses_are_paired_task_by_task(arms: Arms, singles: dict[LabelKind, Network]) -> None:
    """1.7: against both single-task baselines."""
    table = loss_table(arms, singles, held_out=_batches())
    for kind in LabelKind:
        found = table[kind.value]
        joint, single = (task_losses(n, _batches()[kind]) for n in (arms.joint.network(kind), arms.single[kind]))
        assert found["num_tasks"] == 8 == len(joint)
        assert found["mean"]["joint"] == pytest.approx(joint.mean())
        gap = found["joint_minus_single"]
        assert gap["mean"] == pytest.approx((joint - single).mean()) and gap["low"] <= gap["mean"] <= gap["high"]
        assert found["mean"]["single"] != found["mean"]["single_before"]
    assert table["regression"]["mean"]["start"] != table["regression"]["mean"]["single_before"]
    assert table["classification"]["joint_minus_alone"] == table["classification"]["joint_minus_single"]


def _record(step: int, generator: np.random.Generator, *, truth: float) -> dict[str, float]:
    """One stage whose tasks have expected gradients of length 1 at cosine `truth`, under noise in 200 dimensions."""
    width = 200
    means = np.zeros((2, width))
    means[0, 0], means[1, 0], means[1, 1] = 1, truth, np.sqrt(1 - truth**2)
    halves = means[:, None] + generator.normal(size=(2, 2, width)) * 0.2
    halves[1] *= 3  # lengths do not matter
    left, right = halves.mean(1)
    found = {"step": step, "train/skipped": False, "dot/s": left @ right}
    found["cosine/s"] = found["dot/s"] / np.linalg.norm(left) / np.linalg.norm(right)
    for kind, (a, b), mean in zip(LabelKind, halves, (left, right), strict=True):
        found[f"half_dot/{kind}/s"] = a @ b
        found[f"half_cosine/{kind}/s"] = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        found[f"gradient_norm/{kind}/s"] = np.linalg.norm(mean)
    return found


@pytest.mark.parametrize("truth", [0.8, -0.6])
def test_noise_pulls_cosines_to_zero_and_the_halves_show_by_how_much(truth: float) -> None:
    """6.11: gradient interference. The expected cosine is found under noise that hides most of it."""
    generator = np.random.default_rng(0)
    stage = stage_table([_record(step, generator, truth=truth) for step in range(200)])["s"]
    assert abs(stage["cosine"]["mean"]) < 0.3 * abs(truth)
    assert stage["expected_cosine"]["mean"] == pytest.approx(truth, abs=0.06)
    assert stage["expected_cosine"]["low"] < truth < stage["expected_cosine"]["high"]
    assert stage["negative_share"] == pytest.approx(float(truth < 0), abs=0.1)
    assert all(0.05 < half["mean"] < 0.25 for half in stage["half_cosine"].values())


def test_without_agreement_of_a_task_with_itself_no_expected_cosine_is_given() -> None:
    record = _record(1, np.random.default_rng(0), truth=0.5) | {"half_dot/regression/s": -1.0}
    assert stage_table([record] * 4)["s"]["expected_cosine"] == {"mean": None, "low": None, "high": None}


def test_tasks_are_recorded_with_kind_scale_padding_and_weight(arms: Arms, records: list[dict[str, Any]]) -> None:
    """6.11: loss scale, task kind, output padding, and the weights of the losses."""
    networks = {kind: arms.joint.network(kind) for kind in LabelKind}
    table = task_table(arms.records, networks, weights=LossWeights(regression=0.5))
    joint = [record for record in records if record["arm"] == "joint"]
    for kind in LabelKind:
        found, losses = table[kind.value], [record[f"train/{kind}/loss"] for record in joint]
        assert found["task_kind"] == kind.value and found["loss_weight"] == (1.0 if kind is _C else 0.5)
        assert found["loss_scale"]["first_tenth"] == pytest.approx(losses[0])
        assert found["loss_scale"]["last_tenth"] == pytest.approx(losses[-1])
        assert found["loss_scale"]["gradient_norm"] > 0
        assert found["output_padding"]["padded_outputs"] == 0 == found["output_padding"]["padded_queries"]


def _skipped(record: dict[str, Any]) -> dict[str, Any]:
    """A step of the same kind whose figures are none."""
    return {name: np.nan for name in record} | {"arm": "joint", "train/skipped": True}


def test_a_skipped_step_is_in_no_table(arms: Arms) -> None:
    """6.11: what is recorded says something of steps that were made."""
    networks = {kind: arms.joint.network(kind) for kind in LabelKind}
    mixed = [_skipped(arms.records[0]), *arms.records, _skipped(arms.records[0])]
    assert stage_table(mixed) == stage_table(arms.records)
    tables = [task_table(records, networks, weights=LossWeights()) for records in (mixed, arms.records)]
    assert tables[0] == tables[1]


def test_an_interval_of_a_series_is_wider_where_neighbours_are_alike() -> None:
    series = np.repeat(np.random.default_rng(1).normal(size=20), 10)
    loose, tight = interval(series, num_blocks=20), interval(series)
    assert loose["mean"] == tight["mean"] == pytest.approx(series.mean())
    assert loose["high"] - loose["low"] > 2 * (tight["high"] - tight["low"])
    assert interval(np.array([2.0])) == {"mean": 2.0, "low": 2.0, "high": 2.0}
