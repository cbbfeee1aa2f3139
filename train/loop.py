"""The training loop. It knows neither Ray nor MLflow: batches come in, records and checkpoints go out.

It runs num_steps + 1 times, so that the last evaluation and save take the normal path.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from model.network import NetworkInputs
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from train.optimization import OptimizerConfig, schedule
from train.regularisation import RegularisationConfig
from train.state import TrainState
from train.step import compute_dtype, training_step

_MAX_SKIPPED_IN_ROW = 10
_MAX_SKIPPED_SHARE = 0.01  # of the first 1,000 steps or of all steps, whichever is more


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how often."""

    num_steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 32
    """Tasks in one step over all workers together."""
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

    def __post_init__(self) -> None:
        """Refuses numbers of steps, tasks and checkpoints that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name in ("num_steps", "batch_size", "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"loop.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopHooks:
    """What the loop calls besides training; with several workers, only the first one's hooks do anything.

    Args:
        batch: this worker's share of the global batch of a step.
        validate: validation figures by name.
        record: takes one flat record with its "step".
        save: makes the state durable; gets the figures that `validate` returned.
        thin: leaves out some of that share's context at a step.
        should_stop: asked before every step; True ends the loop after a save.
    """

    batch: Callable[[int], TaskBatch]
    validate: Callable[[TrainState], dict[str, float]]
    record: Callable[[dict[str, Any]], None]
    save: Callable[[TrainState, dict[str, float]], None]
    thin: Callable[[NetworkInputs, int], NetworkInputs] = lambda inputs, step: inputs
    should_stop: Callable[[], bool] = lambda: False


def train(state: TrainState, config: LoopConfig, *, hooks: LoopHooks) -> None:
    """Trains `state` from where it stands to `config.num_steps`.

    Raises:
        Failure: DIVERGED after too many steps whose loss or gradients were not finite; INTERRUPTED on a stop.
    """
    window = _Window(state)
    started_at = state.step
    dtype = compute_dtype(next(state.network.parameters()).device)
    for step in range(state.step, config.num_steps + 1):
        last, stop = step == config.num_steps, hooks.should_stop()
        if last or stop or (step % config.checkpoint_every == 0 and step > started_at):
            figures = hooks.validate(state)
            hooks.record({"step": step, **{f"validation/{name}": value for name, value in figures.items()}})
            hooks.save(state, figures)
            window.restart(state)
        if last:
            return
        if stop:
            raise Failure(ExitCode.INTERRUPTED, f"stopped at step {step}; the same command goes on from there")
        factor = schedule(step, num_steps=config.num_steps, config=config.optimizer)
        state.network.train()
        result = training_step(
            state.network,
            state.optimizer,
            batch=hooks.batch(step),
            factor=factor,
            dtype=dtype,
            thin=lambda inputs, step=step: hooks.thin(inputs, step),
            smoothing=config.regularisation.label_smoothing,
        )
        state.step = step + 1
        state.tasks_seen += config.batch_size
        _count_skip(state, result.skipped, config)
        window.add(result.loss, result.gradient_norm)
        if state.step % config.log_every == 0:
            hooks.record({"step": state.step, "train/learning_rate_factor": factor, **window.close(state)})


def _count_skip(state: TrainState, skipped: bool, config: LoopConfig) -> None:
    state.skipped += skipped
    state.skipped_in_row = state.skipped_in_row + 1 if skipped else 0
    bound = max(_MAX_SKIPPED_IN_ROW, round(_MAX_SKIPPED_SHARE * max(1000, state.step)))
    if state.skipped_in_row >= _MAX_SKIPPED_IN_ROW or state.skipped > bound:
        rate = config.optimizer.matrix_lr
        raise Failure(
            ExitCode.DIVERGED,
            f"training diverged: {state.skipped} of {state.step} steps were not finite "
            f"({state.skipped_in_row} in a row): lower the learning rates (matrix_lr is {rate})",
        )


class _Window:
    """Averages between two records."""

    def __init__(self, state: TrainState) -> None:
        self.restart(state)

    def restart(self, state: TrainState) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._tasks, self._start = state.tasks_seen, time.perf_counter()

    def add(self, loss: float, norm: float) -> None:
        self._losses.append(loss)
        self._norms.append(norm)

    def close(self, state: TrainState) -> dict[str, float]:
        seconds = time.perf_counter() - self._start
        figures = {
            "train/loss": sum(self._losses) / len(self._losses),
            "train/gradient_norm": sum(self._norms) / len(self._norms),
            "train/tasks_per_second": (state.tasks_seen - self._tasks) / seconds,
            "train/tasks_seen": state.tasks_seen,
            "train/skipped": state.skipped,
        }
        self.restart(state)
        return figures
