"""The training loop. It knows neither Ray nor MLflow: batches come in, records and checkpoints go out.

It runs num_steps + 1 times, so that the last evaluation and save take the normal path.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch

from model.network import NetworkInputs
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from train.averaging import AveragingConfig, AveragingKind
from train.events import RunEvent
from train.optimizer_config import OptimizerConfig, OptimizerKind, schedule
from train.regularisation import RegularisationConfig
from train.skips import count_skip, divergence, lower_rates
from train.state import TrainState
from train.step import StepOptions, StepResult, compute_dtype, training_step

_OPTIMIZER = "--<kind>.loop.optimizer"
_AT_LEAST_ONE = ("num_steps", "batch_size", "accumulation", "log_every", "checkpoint_every", "keep_checkpoints")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how often."""

    num_steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 32
    """Tasks in one step over all workers together."""
    accumulation: int = 1
    """Parts into which each worker cuts its share of a batch, one after the other: less memory, the same gradient."""
    log_every: int = 10
    """Steps between two records."""
    checkpoint_every: int = 250
    """Steps between two validations with checkpoints."""
    keep_checkpoints: int = 2
    """Newest checkpoints that stay, beside the best."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer and schedule."""
    regularisation: RegularisationConfig = RegularisationConfig()
    """What is left out of the context, and smoothed."""
    averaging: AveragingConfig = AveragingConfig()
    """Which mean of the latest weights is deployed."""

    def __post_init__(self) -> None:
        """Refuses numbers of steps, tasks and checkpoints that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"loop.{name} is {getattr(self, name)}: give 1 or more")
        averaging, optimizer = self.averaging.kind, self.optimizer.kind
        if optimizer is OptimizerKind.SCHEDULE_FREE and averaging is not AveragingKind.NONE:
            mend = f"give {AveragingKind.NONE}: the {optimizer} optimizer averages by itself"
            raise Failure(ExitCode.BAD_FLAG, f"loop.averaging.kind is {averaging}: {mend}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopHooks:
    """What the loop calls besides training; with several workers, only the first one's hooks write anything.

    Args:
        batch: this worker's share of the global batch of a step.
        validate: validation figures by name.
        record: takes one flat record with its "step".
        save: makes the state durable; gets the figures that `validate` returned.
        thin: leaves out some of the context of a part of that share, given the step and the place of the part's first
            task in the share.
        accumulation: parts of a share at a step, where stages of a curriculum differ in it.
        event: takes the `RunEvent` that happened and facts about it, the step among them.
        should_stop: asked in every step, on every worker; True of any one ends the loop on all after that step and a
            save.
    """

    batch: Callable[[int], TaskBatch]
    validate: Callable[[TrainState], dict[str, float]]
    record: Callable[[dict[str, Any]], None]
    save: Callable[[TrainState, dict[str, float]], None]
    thin: Callable[[NetworkInputs, int, int], NetworkInputs] = lambda inputs, step, first: inputs
    accumulation: Callable[[int], int] | None = None
    event: Callable[..., None] = lambda name, **facts: None
    should_stop: Callable[[], bool] = lambda: False


def train(state: TrainState, config: LoopConfig, *, hooks: LoopHooks) -> None:
    """Trains `state` from where it stands to `config.num_steps`.

    Raises:
        Failure: DIVERGED after too many steps that were skipped; INTERRUPTED on a stop. Both on all workers alike.
    """
    window, stop, started_at = _Window(state), False, state.step
    dtype = compute_dtype(next(state.network.parameters()).device)
    for step in range(state.step, config.num_steps + 1):
        last = step == config.num_steps
        if last or stop or (step % config.checkpoint_every == 0 and step > started_at):
            _check_weights(state, event=hooks.event)
            figures = hooks.validate(state)
            hooks.record({"step": step, **{f"validation/{name}": value for name, value in figures.items()}})
            hooks.save(state, figures)
            window.restart(state)
        if last:
            return
        if stop:
            hooks.event(RunEvent.TRAINING_STOPPED, step=step)
            raise Failure(ExitCode.INTERRUPTED, f"stopped at step {step}; the same command goes on from there")
        factor = schedule(step, num_steps=config.num_steps, config=config.optimizer)
        result = _step(state, config, factor=factor, dtype=dtype, hooks=hooks)
        stop = result.stop
        state.step = step + 1
        state.tasks_seen += result.tasks
        if state.average is not None and not result.skipped:
            state.average.update(state.optimizer.num_updates)
        _count_skip(state, result, event=hooks.event)
        window.add(result)
        if state.step % config.log_every == 0:
            hooks.record({"step": state.step, "train/learning_rate_factor": factor, **window.close(state)})


def _step(state: TrainState, config: LoopConfig, *, factor: float, dtype: torch.dtype, hooks: LoopHooks) -> StepResult:
    state.network.train()
    parts = config.accumulation if hooks.accumulation is None else hooks.accumulation(state.step)
    return training_step(
        state.network,
        state.optimizer,
        batch=hooks.batch(state.step),
        factor=factor,
        dtype=dtype,
        options=StepOptions(smoothing=config.regularisation.label_smoothing, accumulation=parts),
        thin=lambda inputs, first: hooks.thin(inputs, state.step, first),
        should_stop=hooks.should_stop,
    )


def _count_skip(state: TrainState, result: StepResult, *, event: Callable[..., None]) -> None:
    """Counts and tells; `state.step` already stands behind the step."""
    count_skip(state, result.reason)
    if result.reason is None:
        return
    facts = {"step": state.step - 1, "reason": result.reason.value, "detail": result.detail}
    event(RunEvent.STEP_SKIPPED, **facts, skipped=state.skipped, in_row=state.skipped_in_row)
    failure = divergence(state, result.reason, detail=result.detail, flag=_OPTIMIZER)
    if failure is not None:
        event(RunEvent.DIVERGED, **facts)
        raise failure


def _check_weights(state: TrainState, *, event: Callable[..., None]) -> None:
    """Refuses, on every worker alike, to make weights durable that are none."""
    weights = [*state.network.named_parameters(), *(state.averaged_weights() or {}).items()]
    wrong = [name for name, tensor in weights if not tensor.isfinite().all()]
    if wrong:
        event(RunEvent.DIVERGED, step=state.step, reason="weights", detail=wrong[0])
        what = f"weights are not finite at step {state.step} (the first is {wrong[0]})"
        raise Failure(ExitCode.DIVERGED, f"training diverged: {what}: {lower_rates(_OPTIMIZER)}")


class _Window:
    """Averages between two records."""

    def __init__(self, state: TrainState) -> None:
        self.restart(state)

    def restart(self, state: TrainState) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._tasks, self._start = state.tasks_seen, time.perf_counter()

    def add(self, result: StepResult) -> None:
        """Counts a step; what a skipped one computed is no part of the averages."""
        if not result.skipped:
            self._losses.append(result.loss)
            self._norms.append(result.gradient_norm)

    def close(self, state: TrainState) -> dict[str, float]:
        seconds = time.perf_counter() - self._start
        averages = {"train/loss": self._losses, "train/gradient_norm": self._norms}
        figures = {name: sum(values) / len(values) for name, values in averages.items() if values}
        figures |= {
            "train/tasks_per_second": (state.tasks_seen - self._tasks) / seconds,
            "train/tasks_seen": state.tasks_seen,
            "train/skipped": state.skipped,
        }
        self.restart(state)
        return figures
