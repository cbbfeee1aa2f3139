"""Tests of joint training: the gradient of a weighted sum, and cosines whose value is known."""

import math
import re

import numpy as np
import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.shared_backbone import SharedBackbone, is_shared, share_backbone
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure
from train.joint import (
    ALL,
    LossWeights,
    TaskGradient,
    compare,
    cosine,
    joint_step,
    set_gradients,
    task_gradient,
)
from train.muon import MuonAdamW
from train.optimizer_config import OptimizerConfig
from train.skips import SkipReason
from train.step import batch_losses
from train.toy import small_network, toy_batch

_C, _R = LabelKind.CLASSIFICATION, LabelKind.REGRESSION


def _shared() -> SharedBackbone:
    networks = [initial_network(small_network(kind), seed=seed) for seed, kind in enumerate(LabelKind)]
    return share_backbone(*networks)


def _halves(seed: int = 0) -> dict[LabelKind, list[TaskBatch]]:
    return {kind: [toy_batch(TaskKind(kind.value), seed=2 * seed + half) for half in range(2)] for kind in LabelKind}


def _gradients(shared: SharedBackbone) -> dict[LabelKind, TaskGradient]:
    return {
        kind: task_gradient(shared.network(kind), halves, dtype=torch.float32) for kind, halves in _halves().items()
    }


def _negated(task: TaskGradient) -> TaskGradient:
    def turned(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: -gradient for name, gradient in gradients.items()}

    halves = turned(task.halves[0]), turned(task.halves[1])
    return TaskGradient(loss=-task.loss, mean=turned(task.mean), halves=halves)


def _step(shared: SharedBackbone, optimizer: MuonAdamW, *, seed: int = 0, weights: LossWeights = LossWeights()) -> dict:
    step = joint_step(shared, optimizer, halves=_halves(seed), weights=weights, factor=1.0, dtype=torch.float32)
    return vars(step)


def test_a_task_has_cosine_one_with_itself_and_minus_one_with_its_negated_loss() -> None:
    """6.11: the cosine between the tasks' gradients, in every stage."""
    shared = _shared()
    task = _gradients(shared)[_C]
    for names in [*shared.stages().values(), list(shared.shared())]:
        assert compare({_C: task, _R: task}, names).cosine == pytest.approx(1, abs=1e-12)
        assert compare({_C: task, _R: _negated(task)}, names).cosine == pytest.approx(-1, abs=1e-12)


def test_cosines_are_those_of_vectors() -> None:
    assert cosine(torch.tensor([3.0, 4.0]).double(), torch.tensor([4.0, -3.0]).double()) == 0
    assert cosine(torch.tensor([3.0, 4.0]).double(), torch.tensor([1.0, 0.0]).double()) == pytest.approx(0.6)
    assert cosine(torch.zeros(2).double(), torch.ones(2).double()) == 0


def test_a_stage_compares_its_own_parameters_and_all_of_them_make_the_backbone() -> None:
    shared = _shared()
    tasks = _gradients(shared)
    parts = [compare(tasks, names) for names in shared.stages().values()]
    whole = compare(tasks, list(shared.shared()))
    assert sum(part.dot for part in parts) == pytest.approx(whole.dot, rel=1e-9)
    for kind in LabelKind:
        assert math.hypot(*(part.norms[kind] for part in parts)) == pytest.approx(whole.norms[kind], rel=1e-9)
        # |mean|² = (|a|² + |b|² + 2 a·b) / 4, here for the two halves a and b
        a, b = ([half[name] for name in shared.shared()] for half in tasks[kind].halves)
        squares = sum(float((g.double() ** 2).sum()) for g in [*a, *b])
        assert whole.norms[kind] ** 2 == pytest.approx((squares + 2 * whole.half_dots[kind]) / 4, rel=1e-5)
    assert len({part.cosine for part in parts}) == len(parts)


def test_the_weighted_loss_is_the_weighted_sum_and_so_is_its_gradient() -> None:
    """1.7: weighted losses; the gradient is the one that autograd gives for 0.25 L_c + 3 L_r."""
    shared = _shared()
    weights = LossWeights(classification=0.25, regression=3.0)
    set_gradients(shared, _gradients(shared), weights=weights)
    found = {name: parameter.grad for name, parameter in shared.named_parameters()}
    losses = {}
    for kind, halves in _halves().items():
        network = shared.network(kind)
        parts = [batch_losses(network, half).mean() for half in halves]
        losses[kind] = sum(parts) / 2
    total = 0.25 * losses[_C] + 3 * losses[_R]
    wanted = torch.autograd.grad(total, list(shared.parameters()), allow_unused=True)
    for (name, _), gradient in zip(shared.named_parameters(), wanted, strict=True):
        wanted_gradient = torch.zeros_like(found[name]) if gradient is None else gradient
        assert torch.allclose(found[name], wanted_gradient, rtol=1e-4, atol=1e-6), name
    step = _step(shared, MuonAdamW(shared, OptimizerConfig()), weights=weights)
    assert step["loss"] == pytest.approx(float(total.detach()), rel=1e-5)
    assert step["losses"] == pytest.approx({kind: float(loss.detach()) for kind, loss in losses.items()}, rel=1e-5)


def test_a_step_reports_every_stage_and_the_whole_backbone() -> None:
    shared = _shared()
    step = _step(shared, MuonAdamW(shared, OptimizerConfig()))
    assert list(step["stages"]) == [*shared.stages(), ALL]
    assert step["reason"] is None


def test_the_same_seed_gives_the_same_bytes_and_one_more_step_does_not() -> None:
    def trained(steps: int) -> dict[str, torch.Tensor]:
        shared = _shared()
        optimizer = MuonAdamW(shared, OptimizerConfig())
        for seed in range(steps):
            _step(shared, optimizer, seed=seed)
        return shared.state_dict()

    one, again, longer = trained(3), trained(3), trained(4)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], longer[name]) for name in one)


def test_joint_steps_lower_both_losses() -> None:
    shared = _shared()
    optimizer = MuonAdamW(shared, OptimizerConfig(matrix_lr=3e-3, vector_lr=1e-3))
    steps = [_step(shared, optimizer, seed=seed)["losses"] for seed in range(60)]
    for kind in LabelKind:
        early, late = (np.mean([step[kind] for step in part]) for part in (steps[:10], steps[-10:]))
        assert late < early, kind


def test_a_step_whose_loss_is_not_finite_changes_nothing() -> None:
    shared = _shared()
    before = {name: parameter.detach().clone() for name, parameter in shared.named_parameters()}
    halves = _halves()
    halves[_R][1].y_query[0, 0] = np.nan
    optimizer = MuonAdamW(shared, OptimizerConfig())
    step = joint_step(shared, optimizer, halves=halves, weights=LossWeights(), factor=1.0, dtype=torch.float32)
    assert step.reason is SkipReason.LOSS
    assert all(torch.equal(parameter, before[name]) for name, parameter in shared.named_parameters())


def test_label_encoders_and_heads_take_their_own_tasks_gradient_alone() -> None:
    shared = _shared()
    tasks = _gradients(shared)
    set_gradients(shared, tasks, weights=LossWeights(classification=2.0))
    for kind, weight in ((_C, 2.0), (_R, 1.0)):
        for name, parameter in shared.network(kind).named_parameters():
            own = torch.equal(parameter.grad, weight * tasks[kind].mean[name])
            other = tasks[_R if kind is _C else _C].mean.get(name)
            assert own == (not is_shared(name) or not other.any()), name


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_trains_no_task_is_refused(weight: float) -> None:
    with pytest.raises(Failure, match=re.escape(f"weights.regression is {weight}: give")) as refusal:
        LossWeights(regression=weight)
    assert refusal.value.code is ExitCode.BAD_FLAG
