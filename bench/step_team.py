"""Processes that make training steps together under the clock: our steps, and the two-way transformer's.

Each computes its share of the batch, gradients are averaged over gloo, and each applies the update. All tables are of
one size, without padding, half of their rows context.
"""

import dataclasses
import enum
import functools
import multiprocessing
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.two_way_training import two_way_step
from eval.two_way_transformer import TwoWayForm, TwoWayTransformer, two_way_optimizer
from model import presets
from model.initialisation import initial_network, initialised
from model.label_injection import LabelKind
from model.network import Network
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure
from tools.parent import follow_parent
from train.optimizer_config import OptimizerConfig
from train.optimizers import make_optimizer
from train.step import training_step

_FACTOR = 0.01  # of the peak learning rates: weights must move, not blow up on tables without sense
_END_SECONDS = 10.0  # what a process that failed needs to end
_MATRIX = 2048  # of the products that tell the machine's rate


class StepModel(enum.StrEnum):
    """Whose step."""

    TINY = "tiny"
    SMALL = "small"
    PUBLISHED = "published"
    MODERN = "modern"
    TUNED = "tuned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan:
    """A model and how it computes.

    Args:
        model: which.
        kind: of its tasks; the two-way transformers only classify.
        dtype: "bfloat16" (under autocast) or "float32".
    """

    model: StepModel
    kind: TaskKind = TaskKind.CLASSIFICATION
    dtype: str = "bfloat16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCase:
    """One batch.

    Args:
        rows: of each table, half of them context.
        features: columns, all numeric.
        batch: tasks of a step, those of all processes together.
    """

    rows: int
    features: int
    batch: int


class StepTeam:
    """Processes that make steps together. A context manager: leaving ends them.

    Args:
        processes: how many.
        threads: of torch in each.
    """

    def __init__(self, *, processes: int, threads: int) -> None:
        self.processes, self.threads = processes, threads

    def __enter__(self) -> "StepTeam":
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        meeting = pathlib.Path(self._folder.name) / "meeting"
        self._members, self._pipes = [], []
        for rank in range(self.processes):
            ours, theirs = context.Pipe()
            arguments = (theirs, meeting, (rank, self.processes, self.threads))
            member = context.Process(target=_serve, args=arguments, daemon=True)
            member.start()
            theirs.close()
            self._members.append(member)
            self._pipes.append(ours)
        return self

    def __exit__(self, *unused: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for member in self._members:
            member.join(10.0)
            member.kill()
        self._folder.cleanup()

    def tasks_per_second(self, plan: StepPlan, case: StepCase, *, steps: int = 1) -> float:
        """The rate of `steps` steps; a model is made when it is first asked for.

        Raises:
            Failure: WORKER_FAILED where a process ended.
        """
        self._ask(plan, case, steps=0)  # model and batch are made
        start = time.perf_counter()
        self._ask(plan, case, steps=steps)
        return steps * case.batch / (time.perf_counter() - start)

    def _ask(self, plan: StepPlan, case: StepCase, *, steps: int) -> None:
        """Returns when all have made the steps."""
        try:
            for pipe in self._pipes:
                pipe.send((plan, case, steps))
            for pipe in self._pipes:
                pipe.recv()
        except (EOFError, ConnectionError) as error:
            ready = wait([member.sentinel for member in self._members], timeout=_END_SECONDS)
            ended = [rank for rank, member in enumerate(self._members) if member.sentinel in ready]
            for rank in ended:
                self._members[rank].join()  # its status stands a moment after its sentinel
            said = ", ".join(f"{rank} (status {self._members[rank].exitcode})" for rank in ended)
            what = f"a step of {plan.model} on {case.batch} tables of {case.rows} rows and {case.features} columns"
            text = f"{what}: of {self.processes} processes, these ended: {said}"
            raise Failure(ExitCode.WORKER_FAILED, text) from error


def num_parameters(model: StepModel, kind: TaskKind = TaskKind.CLASSIFICATION) -> int:
    """How many parameters a model has."""
    return sum(parameter.numel() for parameter in _made(model, kind).parameters())


def flops_per_task(model: StepModel, case: StepCase, *, kind: TaskKind = TaskKind.CLASSIFICATION) -> float:
    """Floating-point operations of matrix products that one more task costs a step, counted as they run.

    What a step costs without tasks, the optimizer's products, is not among them.
    """
    network, counts = _made(model, kind), []
    for tasks in (1, 2):
        batch = speed_batch(dataclasses.replace(case, batch=tasks), kind)
        with FlopCounterMode(display=False) as counter:
            _step(network, batch, dtype=torch.float32)()
        counts.append(counter.get_total_flops())
    return float(counts[1] - counts[0])


def product_flops_per_second(*, threads: int, seconds: float = 0.3) -> float:
    """The rate at which this process multiplies large bf16 matrices."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    left = torch.ones(_MATRIX, _MATRIX, dtype=torch.bfloat16)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end or not best:
        start = time.perf_counter()
        left @ left
        best = max(best, 2 * _MATRIX**3 / (time.perf_counter() - start))
    torch.set_num_threads(before)
    return best


def speed_batch(case: StepCase, kind: TaskKind) -> TaskBatch:
    """Tables of normal numbers; the target is a noisy function of the first column."""
    generator, cut = np.random.default_rng(0), case.rows // 2
    x = generator.standard_normal((case.batch, case.rows, case.features), dtype=np.float32)
    y = x[..., 0] + 0.3 * generator.standard_normal(x.shape[:2], dtype=np.float32)
    classes = 2 if kind is TaskKind.CLASSIFICATION else 0
    y = (y > 0).astype(np.float32) if classes else y
    return TaskBatch(
        x_context=x[:, :cut],
        y_context=y[:, :cut],
        x_query=x[:, cut:],
        y_query=y[:, cut:],
        context_mask=np.ones((case.batch, cut), bool),
        query_mask=np.ones((case.batch, case.rows - cut), bool),
        column_kinds=np.zeros((case.batch, case.features), np.int8),
        num_classes=np.full(case.batch, classes, np.int32),
        kind=kind,
        families=("speed",) * case.batch,
    )


def _serve(pipe: Connection, meeting: pathlib.Path, place: tuple[int, int, int]) -> None:
    """One member: answers every request when its steps are done, until the pipe is closed."""
    rank, size, threads = place
    follow_parent()
    torch.set_num_threads(threads)
    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    steps_of: dict[Any, Callable[[], object]] = {}
    for plan, case, count in _requests(pipe):
        if (plan, case) not in steps_of:
            share = speed_batch(case, plan.kind).part(rank * case.batch // size, (rank + 1) * case.batch // size)
            steps_of[plan, case] = _step(_made(plan.model, plan.kind), share, dtype=getattr(torch, plan.dtype))
        for _ in range(count):
            steps_of[plan, case]()
        pipe.send(None)


def _requests(pipe: Connection) -> Iterable[tuple[StepPlan, StepCase, int]]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return


def _made(model: StepModel, kind: TaskKind) -> nn.Module:
    """A fresh model; its numbers do not matter."""
    if model in (StepModel.TINY, StepModel.SMALL):
        return initial_network(getattr(presets, model.value)(LabelKind(kind.value)), seed=0)
    return initialised(lambda: TwoWayTransformer(TwoWayForm(model.value)), seed=0)


def _step(model: nn.Module, batch: TaskBatch, *, dtype: torch.dtype) -> Callable[[], object]:
    """A step on this batch."""
    if isinstance(model, Network):
        optimizer = make_optimizer(model, OptimizerConfig())
        return functools.partial(training_step, model, optimizer, batch=batch, factor=_FACTOR, dtype=dtype)
    optimizer = two_way_optimizer(model, learning_rate=1e-3 * _FACTOR)
    return functools.partial(two_way_step, model, optimizer, batch=batch, dtype=dtype)
