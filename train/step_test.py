"""Tests of one training step."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from eval.records import network_inputs
from model.label_injection import LabelKind
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind
from priors.task import TaskBatch, TaskKind
from train.optimizer_config import OptimizerConfig
from train.state import TrainState, fresh_state
from train.step import query_losses, training_step
from train.toy import small_network, toy_batch, toy_state


def _step(state: TrainState, batch: TaskBatch) -> float:
    result = training_step(state.network, state.optimizer, batch=batch, factor=1.0, dtype=torch.float32)
    return result.loss


@pytest.mark.parametrize("kind", list(TaskKind))
def test_steps_lower_the_loss_on_a_batch(kind: TaskKind) -> None:
    state, batch = toy_state(kind), toy_batch(kind)
    losses = [_step(state, batch) for _ in range(60)]
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("head", list(RegressionHeadKind))
def test_every_regression_head_learns_and_a_far_target_costs_a_bounded_loss(head: RegressionHeadKind) -> None:
    """6.8 to 6.10: squared error, NLL and pinball loss go through the same step."""
    config = dataclasses.replace(small_network(LabelKind.REGRESSION), regression=RegressionHeadConfig(kind=head))
    state = fresh_state(config, OptimizerConfig(), seed=0, device=torch.device("cpu"), identity={})
    batch = toy_batch(TaskKind.REGRESSION)
    losses = [_step(state, batch) for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0] and losses[-1] < losses[0] - 0.05
    batch.y_query[:] = 1e12
    assert float(_losses(state, batch).max()) < 1000


def test_loss_of_classes_that_know_nothing_is_log_k() -> None:
    """1.5: cross-entropy is the NLL, in nats."""
    state, batch = toy_state(TaskKind.CLASSIFICATION), toy_batch(TaskKind.CLASSIFICATION)
    for parameter in state.network.head.query.parameters():
        torch.nn.init.zeros_(parameter)  # uniform read weights: p is the class share of the context
    share = batch.y_context.mean(1)[:, None]
    wanted = -np.log(np.where(batch.y_query == 1, share, 1 - share)).mean()
    assert math.isclose(_step(state, batch), wanted, rel_tol=1e-5)


def test_queries_of_a_class_that_the_context_lacks_cost_nothing_and_move_nothing() -> None:
    """6.5: absent classes are masked in the loss."""
    state, batch = toy_state(TaskKind.CLASSIFICATION), toy_batch(TaskKind.CLASSIFICATION, lacks_class=True)
    before = [parameter.detach().clone() for parameter in state.network.head.parameters()]
    result = training_step(state.network, state.optimizer, batch=batch, factor=1.0, dtype=torch.float32)
    assert result.loss == 0.0 and result.gradient_norm == 0.0 and not result.skipped
    after = list(state.network.head.parameters())
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(before, after, strict=True))


def test_regression_loss_does_not_depend_on_the_unit_of_the_target() -> None:
    state, batch = toy_state(TaskKind.REGRESSION), toy_batch(TaskKind.REGRESSION)
    inputs_loss = _losses(state, batch)
    for array in (batch.y_context, batch.y_query):
        array *= 1000
        array -= 7
    torch.testing.assert_close(_losses(state, batch), inputs_loss, rtol=1e-3, atol=1e-3)


def _losses(state: TrainState, batch: TaskBatch) -> torch.Tensor:
    with torch.no_grad():
        prediction = state.network(network_inputs(batch))
    return query_losses(prediction, torch.from_numpy(batch.y_query))


def test_a_target_beyond_every_bucket_has_a_bounded_loss() -> None:
    state, batch = toy_state(TaskKind.REGRESSION), toy_batch(TaskKind.REGRESSION)
    batch.y_query[:] = 1e12
    assert float(_losses(state, batch).max()) < 1000


@pytest.mark.parametrize("where", ["labels", "weights"])
def test_a_step_that_is_not_finite_changes_nothing(where: str) -> None:
    """T7: skipped and reported, weights and moments as before."""
    state, batch = toy_state(TaskKind.REGRESSION), toy_batch(TaskKind.REGRESSION)
    if where == "labels":
        batch.y_query[0, 0] = np.nan
    else:
        next(state.network.head.parameters()).grad = None
        with torch.no_grad():
            state.network.icl.norm.bias[0] = torch.inf
    before = {name: tensor.clone() for name, tensor in state.network.state_dict().items()}
    result = training_step(state.network, state.optimizer, batch=batch, factor=1.0, dtype=torch.float32)
    assert result.skipped
    assert state.optimizer.num_updates == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in state.network.state_dict().items())


def test_the_query_label_reaches_the_loss_and_nothing_else() -> None:
    """5.8: the loss is computed outside; predictions are equal whatever the answers are."""
    state, batch = toy_state(TaskKind.CLASSIFICATION), toy_batch(TaskKind.CLASSIFICATION)
    with torch.no_grad():
        first = state.network(network_inputs(batch)).log_p
        batch.y_query[:] = 1 - batch.y_query
        second = state.network(network_inputs(batch)).log_p
    assert torch.equal(first, second)
