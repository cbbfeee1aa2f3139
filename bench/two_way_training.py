"""Training of the two-way transformer beside ours: the same batches, the same cores, the same wall-clock seconds.

Each worker computes its share of a batch and gradients are averaged, as in our training. The optimizer is AdamW over
all parameters. Its rate rises and falls as ours does, but over the seconds that it has instead of over steps, so that
it has come to rest when they are over, however fast a step is.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, distributed, nn

from eval.two_way_transformer import TwoWayConfig, TwoWayForm, TwoWayTransformer, two_way_loss, two_way_optimizer
from model.initialisation import initialised
from priors.task import TaskBatch
from tools import files
from train.feed import FeedPlan, open_feed
from train.gloo_world import run_world
from train.job import Place
from train.optimizer_config import OptimizerConfig, schedule
from train.stages import tasks_until
from train.step import Share, average_gradients, compute_dtype

_CURVE = "curve.jsonl"
_CLOCK = 1_000_000  # the schedule's steps over the whole time
_CLIP_NORM = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWayPlan:
    """What to train, and for how long.

    Args:
        form: how the transformer is written.
        size: its sizes.
        learning_rate: AdamW's peak.
        schedule: of the rate: warm-up, decay and final factor are read, rates are not.
        feed: the batches, the same as ours.
        seconds: of training, looks left out.
        num_looks: how many times the weights are kept, evenly over the time; the last time at its end.
        folder: where they go; it exists and is empty.
        workers: processes, one torch thread each.
        seed: of initialisation.
        now: the clock, in seconds.
    """

    form: TwoWayForm
    size: TwoWayConfig = TwoWayConfig()
    learning_rate: float = 1e-3
    schedule: OptimizerConfig = OptimizerConfig()
    feed: FeedPlan
    seconds: float
    num_looks: int
    folder: str
    workers: int = 1
    seed: int = 0
    now: Callable[[], float] = time.perf_counter


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWayLook:
    """Weights that were kept.

    Args:
        path: of the file.
        step: optimizer steps done.
        tasks: trained on.
        seconds: of training until then.
    """

    path: str
    step: int
    tasks: int
    seconds: float


def train_two_way(plan: TwoWayPlan) -> list[TwoWayLook]:
    """Trains, and returns what was kept, in order.

    Raises:
        Failure: what a worker refused, as damaged shards; WORKER_FAILED where one died.
    """
    run_world(_work, plan, size=plan.workers)
    return [TwoWayLook(**record) for record in files.read_json_lines(pathlib.Path(plan.folder) / _CURVE)]


def load_two_way(path: pathlib.Path) -> TwoWayTransformer:
    """A transformer whose weights were kept, in evaluation mode."""
    with safetensors.safe_open(path, framework="pt") as stored:
        description = json.loads(stored.metadata()["model"])
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    model = TwoWayTransformer(TwoWayForm(description["form"]), TwoWayConfig(**description["size"]))
    model.load_state_dict(weights)
    return model.eval()


def initial_two_way(plan: TwoWayPlan) -> TwoWayTransformer:
    """The transformer at initialisation: a pure function of form, sizes and seed."""
    return initialised(lambda: TwoWayTransformer(plan.form, plan.size), seed=plan.seed)


def _work(place: Place, plan: TwoWayPlan) -> None:
    """Runs on every worker; the first one keeps time and weights."""
    with open_feed(plan.feed, rank=place.rank, world_size=place.world_size) as feed:
        feed.expect(0)
        model = initial_two_way(plan).train()
        optimizer = two_way_optimizer(model, learning_rate=plan.learning_rate)
        keeper, clock, step = _Keeper(plan, model), _Clock(plan, place), 0
        while (share := clock.share()) < 1:
            for group in optimizer.param_groups:
                factor = schedule(int(share * _CLOCK), num_steps=_CLOCK, config=plan.schedule)
                group["lr"] = plan.learning_rate * factor
            two_way_step(model, optimizer, batch=feed.batch(step), dtype=_dtype(plan))
            step += 1
            if place.rank == 0:
                clock.skipped += keeper.keep(step, seconds=clock.seconds())
        if place.rank == 0:
            keeper.keep(step, seconds=clock.seconds(), last=True)


def _dtype(plan: TwoWayPlan) -> torch.dtype:
    return torch.float32 if plan.form is TwoWayForm.PUBLISHED else compute_dtype(torch.device("cpu"))


def two_way_step(
    model: TwoWayTransformer, optimizer: torch.optim.Optimizer, *, batch: TaskBatch, dtype: torch.dtype
) -> None:
    """One step on this worker's share of a batch; with several workers, gradients are averaged first."""
    optimizer.zero_grad()
    loss = two_way_loss(model, batch=batch, dtype=dtype)
    loss.backward()
    average_gradients(model, Share(loss=loss.detach(), tasks=len(batch.families)))
    nn.utils.clip_grad_norm_(model.parameters(), _CLIP_NORM)
    optimizer.step()


class _Clock:
    """Seconds of training so far; the first worker's clock is everybody's."""

    def __init__(self, plan: TwoWayPlan, place: Place) -> None:
        self._plan, self._joined = plan, place.world_size > 1
        self._start = plan.now()
        self.skipped = 0.0
        """Seconds that do not count."""

    def seconds(self) -> float:
        """By this worker's clock."""
        return self._plan.now() - self._start - self.skipped

    def share(self) -> float:
        """Of the time that there is, by the first worker's clock."""
        share = torch.tensor(self.seconds() / self._plan.seconds, dtype=torch.float64)
        if self._joined:
            distributed.broadcast(share, 0)
        return float(share)


class _Keeper:
    """Keeps weights when it is time, and writes down when that was."""

    def __init__(self, plan: TwoWayPlan, model: TwoWayTransformer) -> None:
        self._plan, self._model, self._kept = plan, model, 0
        self._folder = pathlib.Path(plan.folder)

    def keep(self, step: int, *, seconds: float, last: bool = False) -> float:
        """Keeps the weights if the next look is due; returns the seconds that this took."""
        start = self._plan.now()
        due = (self._kept + 1) * self._plan.seconds / self._plan.num_looks
        if last or (seconds >= due and self._kept + 1 < self._plan.num_looks):
            self._kept += 1
            path = self._folder / f"two-way-{step:08d}.safetensors"
            files.write_bytes(path, _packed(self._model, self._plan))
            tasks = tasks_until(self._plan.feed.stages, step)
            record = TwoWayLook(path=str(path), step=step, tasks=tasks, seconds=seconds)
            files.append_json_line(self._folder / _CURVE, dataclasses.asdict(record))
        return self._plan.now() - start


def _packed(model: TwoWayTransformer, plan: TwoWayPlan) -> bytes:
    tensors: dict[str, Tensor] = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    description: dict[str, Any] = {"form": plan.form.value, "size": dataclasses.asdict(plan.size)}
    return safetensors.torch.save(tensors, metadata={"model": json.dumps(description)})
