"""Several workers in real processes: uneven shares, a stop and a fault of one of them, and what all do about it."""

import pathlib
from typing import Any

import numpy as np
import pytest
import torch

from priors.batches import share_of
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure
from train.gloo_world import run_world
from train.job import Place
from train.loop import LoopConfig, LoopHooks, train
from train.step import StepOptions, training_step
from train.toy import toy_batch, toy_state


def _share(batch: TaskBatch, place: Place) -> TaskBatch:
    own = share_of(len(batch.families), rank=place.rank, world_size=place.world_size)
    return batch.part(own.start, own.stop)


def _gradients(place: Place, accumulation: int) -> dict[str, Any]:
    """Loss and gradient of one step on four tables of very different losses."""
    state, batch = toy_state(TaskKind.REGRESSION), toy_batch(TaskKind.REGRESSION)
    batch.y_query[0] *= 1.1
    batch.y_query[3] *= 0.7
    options = StepOptions(accumulation=accumulation)
    share = _share(batch, place)
    result = training_step(
        state.network, state.optimizer, batch=share, factor=1e-9, dtype=torch.float32, options=options
    )
    flat = torch.cat([parameter.grad.flatten() for parameter in state.network.parameters()])
    return {"loss": result.loss, "norm": result.gradient_norm, "gradient": flat.tolist()}


@pytest.mark.parametrize(("workers", "accumulation"), [(1, 2), (1, 3), (1, 9), (3, 1), (3, 2), (4, 1)])
def test_shares_and_parts_of_any_size_give_the_gradient_of_the_whole_batch(workers: int, accumulation: int) -> None:
    """T3: the mean is over tasks, whoever had them."""
    whole, found = _gradients(Place(), 1), run_world(_gradients, accumulation, size=workers)
    for member in found:
        assert member["loss"] == pytest.approx(whole["loss"], rel=1e-5)
        assert member["norm"] == pytest.approx(whole["norm"], rel=1e-4)
        np.testing.assert_allclose(member["gradient"], whole["gradient"], atol=2e-6)
        assert member["gradient"] == found[0]["gradient"]


def _run(place: Place, case: str, folder: str) -> dict[str, Any]:
    """Ten steps during which rank 1 is struck in step 3 as `case` says."""
    state, events, saves = toy_state(TaskKind.CLASSIFICATION), [], []
    asked = iter(range(100))

    def batch(step: int) -> TaskBatch:
        found = _share(toy_batch(TaskKind.CLASSIFICATION, seed=step), place)
        if step == 3 and place.rank == 1:
            _strike(found, case)
        return found

    def broken(gradient: torch.Tensor) -> torch.Tensor:
        strikes = case == "gradient" and place.rank == 1 and state.step == 3
        return torch.full_like(gradient, torch.nan) if strikes else gradient

    next(state.network.head.parameters()).register_hook(broken)
    hooks = LoopHooks(
        batch=batch,
        validate=lambda state: {},
        record=lambda record: None,
        save=lambda state, figures: saves.append(state.step),
        event=lambda name, **facts: events.append([name, facts["step"], facts.get("reason")]),
        should_stop=lambda: next(asked) == 3 and place.rank == 1 and case == "stop",
    )
    code = None
    try:
        train(state, LoopConfig(num_steps=10, batch_size=4), hooks=hooks)
    except Failure as failure:
        code = int(failure.code)
    weights = torch.cat([parameter.detach().flatten() for parameter in state.network.parameters()])
    return {"code": code, "events": events, "saves": saves, "weights": weights.tolist(), "step": state.step}


def _strike(batch: TaskBatch, case: str) -> None:
    if case == "query label":
        batch.y_query[0, 2] = np.nan
    if case == "context label":
        batch.y_context[-1, 1] = np.inf
    if case == "label beyond the classes":
        batch.y_query[0, 0] = 7
    if case == "column kind":
        batch.column_kinds[:] = 5  # which the network refuses
    if case == "features":
        batch.x_context[:] = np.nan


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("query label", "data"),
        ("context label", "data"),
        ("label beyond the classes", "data"),
        ("column kind", "data"),
        ("gradient", "gradient"),
    ],
)
def test_what_is_wrong_in_one_worker_skips_the_step_on_all(case: str, reason: str, tmp_path: pathlib.Path) -> None:
    """T7: no worker raises alone or waits, and all hold the same finite weights after it."""
    one, other = run_world(_run, case, str(tmp_path))
    assert one == other
    assert one["events"] == [["step skipped", 3, reason]]
    assert one["code"] is None and one["saves"] == [10] and np.isfinite(one["weights"]).all()


def test_features_that_are_missing_are_no_fault(tmp_path: pathlib.Path) -> None:
    """T7: NaN in a feature means a missing value."""
    for member in run_world(_run, "features", str(tmp_path)):
        assert member["events"] == [] and member["step"] == 10 and np.isfinite(member["weights"]).all()


def test_a_stop_that_one_worker_saw_ends_all_after_the_same_step(tmp_path: pathlib.Path) -> None:
    """T6: saved, and no step is lost."""
    one, other = run_world(_run, "stop", str(tmp_path))
    assert one == other
    assert one["code"] == ExitCode.INTERRUPTED and one["saves"] == [4]
    assert one["events"] == [["training stopped", 4, None]]
