"""Tests of the training loop."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from model.network import NetworkInputs
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure
from train.averaging import AveragingConfig, AveragingKind, make_average
from train.loop import LoopConfig, LoopHooks, train
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.state import TrainState
from train.toy import toy_batch, toy_state


class _Recorder:
    """Hooks that remember what the loop did."""

    def __init__(self, *, broken_steps: range = range(0), stop_at: int | None = None) -> None:
        self.batches: list[int] = []
        self.records: list[dict[str, Any]] = []
        self.saves: list[int] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.thinned = 0
        self._broken, self._stop_at = broken_steps, stop_at

    def hooks(self) -> LoopHooks:
        return LoopHooks(
            batch=self._batch,
            thin=self._thin,
            validate=lambda state: {"nll": float(state.step)},
            record=self.records.append,
            save=lambda state, figures: self.saves.append(state.step),
            event=lambda name, **facts: self.events.append((name, facts)),
            should_stop=lambda: self._stop_at is not None and len(self.batches) >= self._stop_at,
        )

    def _thin(self, inputs: NetworkInputs, step: int, first: int) -> NetworkInputs:
        assert first == 0
        assert step == self.batches[-1], "what is left out belongs to the batch of the same step"
        self.thinned += 1
        return inputs

    def _batch(self, step: int) -> TaskBatch:
        self.batches.append(step)
        batch = toy_batch(TaskKind.REGRESSION, seed=step)
        if step in self._broken:
            batch.y_query[:] = np.nan
        return batch


def test_last_validation_and_save_take_the_normal_path() -> None:
    recorder, state = _Recorder(), toy_state(TaskKind.REGRESSION)
    train(state, LoopConfig(num_steps=25, batch_size=4, log_every=10, checkpoint_every=10), hooks=recorder.hooks())
    assert recorder.batches == list(range(25)) and recorder.thinned == 25
    assert recorder.saves == [10, 20, 25]
    assert [r["step"] for r in recorder.records if "train/loss" in r] == [10, 20]
    assert [r["validation/nll"] for r in recorder.records if "validation/nll" in r] == [10.0, 20.0, 25.0]
    assert state.step == 25 and state.tasks_seen == 100


def test_a_resumed_loop_goes_on_where_the_state_stands() -> None:
    """T11: by step only; nothing is validated or saved twice at the point of resumption."""
    recorder, state = _Recorder(), toy_state(TaskKind.REGRESSION)
    state.step = 10
    train(state, LoopConfig(num_steps=13, batch_size=4, checkpoint_every=10), hooks=recorder.hooks())
    assert recorder.batches == [10, 11, 12]
    assert recorder.saves == [13]


def test_a_stop_saves_and_is_told_apart_from_an_end() -> None:
    """T6: a stop costs no step."""
    recorder, state = _Recorder(stop_at=7), toy_state(TaskKind.REGRESSION)
    with pytest.raises(Failure) as caught:
        train(state, LoopConfig(num_steps=50, batch_size=4), hooks=recorder.hooks())
    assert caught.value.code is ExitCode.INTERRUPTED
    assert recorder.saves == [7]


def _poison(state: TrainState) -> None:
    with torch.no_grad():
        state.network.icl.norm.weight.fill_(torch.inf)


def test_ten_broken_steps_in_a_row_end_the_run_unsaved() -> None:
    """T7: weights that are not finite are never saved."""
    recorder, state = _Recorder(), toy_state(TaskKind.REGRESSION)
    _poison(state)
    with pytest.raises(Failure) as caught:
        train(state, LoopConfig(num_steps=50, batch_size=4, checkpoint_every=100), hooks=recorder.hooks())
    assert caught.value.code is ExitCode.DIVERGED
    assert "10 in a row" in caught.value.message and "its loss was not finite: lower the" in caught.value.message
    assert recorder.events[-1] == ("diverged", {"step": 9, "reason": "loss", "detail": ""})
    assert len(recorder.batches) == 10 and recorder.saves == []


def test_broken_batches_are_counted_and_passed_over() -> None:
    """T7: two targets that are NaN cost two steps, and the records say so."""
    recorder, state = _Recorder(broken_steps=range(3, 5)), toy_state(TaskKind.REGRESSION)
    train(state, LoopConfig(num_steps=10, batch_size=4, log_every=10), hooks=recorder.hooks())
    assert state.skipped == 2 and state.skipped_in_row == 0
    assert state.optimizer.num_updates == 8
    (record,) = [record for record in recorder.records if "train/loss" in record]
    assert record["train/skipped"] == 2 and np.isfinite(record["train/loss"])
    names, facts = zip(*recorder.events, strict=True)
    assert names == ("step skipped",) * 2
    assert [(fact["step"], fact["skipped"], fact["in_row"]) for fact in facts] == [(3, 1, 1), (4, 2, 2)]
    assert facts[0]["reason"] == "data"
    assert facts[0]["detail"] == "label nan of query row 0 of a task of family toy"


def test_batches_that_are_all_broken_end_the_run_and_blame_the_data() -> None:
    """T7: what cannot be learned from is no fault of the learning rate."""
    recorder, state = _Recorder(broken_steps=range(50)), toy_state(TaskKind.REGRESSION)
    with pytest.raises(Failure, match="label nan of query row 0 .* look at the shards") as caught:
        train(state, LoopConfig(num_steps=50, batch_size=4, log_every=5), hooks=recorder.hooks())
    assert caught.value.code is ExitCode.DIVERGED and recorder.saves == []
    assert "train/loss" not in recorder.records[0], "there is no loss to record"


def test_weights_that_are_not_finite_are_not_saved_although_no_step_was_skipped() -> None:
    """T7: an update can overflow without any gradient having done so."""
    recorder, state = _Recorder(), toy_state(TaskKind.REGRESSION)
    hooks = dataclasses.replace(recorder.hooks(), record=lambda record: _poison(state))
    with pytest.raises(Failure, match="weights are not finite at step 1") as caught:
        train(state, LoopConfig(num_steps=50, batch_size=4, log_every=1, checkpoint_every=1), hooks=hooks)
    assert caught.value.code is ExitCode.DIVERGED and recorder.saves == []


def test_the_average_takes_in_every_update_and_no_skipped_step() -> None:
    """What is skipped moves no weights."""
    recorder, state = _Recorder(broken_steps=range(2, 4)), toy_state(TaskKind.REGRESSION)
    state.average = make_average(state.network, AveragingConfig(kind=AveragingKind.LATEST, points=9, every=1))
    train(state, LoopConfig(num_steps=6, batch_size=4), hooks=recorder.hooks())
    assert len({name.split("/")[0] for name in state.average.state_tensors()}) == 4


def test_two_averages_at_once_are_refused() -> None:
    schedule_free = OptimizerConfig(kind=OptimizerKind.SCHEDULE_FREE)
    with pytest.raises(Failure, match="^loop.averaging.kind is ema: give none: the schedule_free optimizer aver"):
        LoopConfig(optimizer=schedule_free, averaging=AveragingConfig(kind=AveragingKind.EMA))
    assert LoopConfig(optimizer=schedule_free).averaging.kind is AveragingKind.NONE


def test_an_average_that_is_not_finite_is_not_saved() -> None:
    """T7: although the weights that are trained are."""
    recorder, state = _Recorder(), toy_state(TaskKind.REGRESSION)
    state.average = make_average(state.network, AveragingConfig(kind=AveragingKind.EMA))
    next(iter(state.average.weights().values())).fill_(torch.nan)
    with pytest.raises(Failure, match="weights are not finite at step 2") as caught:
        train(state, LoopConfig(num_steps=2, batch_size=4), hooks=recorder.hooks())
    assert caught.value.code is ExitCode.DIVERGED and recorder.saves == []


def test_a_share_is_thinned_part_by_part() -> None:
    """Each part is told its place in the share."""
    recorder, state, places = _Recorder(), toy_state(TaskKind.REGRESSION), []
    hooks = dataclasses.replace(recorder.hooks(), thin=lambda inputs, step, first: places.append(first) or inputs)
    train(state, LoopConfig(num_steps=1, batch_size=4, accumulation=3), hooks=hooks)
    assert places == [0, 1, 2]


@pytest.mark.parametrize("field", ["num_steps", "batch_size", "accumulation", "log_every", "keep_checkpoints"])
def test_a_loop_without_steps_or_records_is_refused(field: str) -> None:
    """One line names field, value and what is allowed."""
    assert getattr(LoopConfig(**{field: 1}), field) == 1
    for value in (0, -2):
        with pytest.raises(Failure, match=f"^loop.{field} is {value}: give 1 or more$") as caught:
            LoopConfig(**{field: value})
        assert caught.value.code is ExitCode.BAD_FLAG
