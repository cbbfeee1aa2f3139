"""One model's training on one worker: data, network, loop and files. It does not know who started the workers."""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import torch

from model import checkpoint
from model.network import NetworkConfig
from priors.fresh_tasks import FreshConfig
from priors.generation import held_out_episodes
from priors.mixture import PriorConfig
from priors.recipe import Recipe
from priors.splits import SplitConfig
from tools import config as configs
from tools import files
from tools.failure import ExitCode, Failure
from train.feed import Feed, FeedPlan, open_feed
from train.loop import LoopConfig, LoopHooks, train
from train.regularisation import thinned
from train.state import TrainState, fresh_state, read_validation, restore_state, save_state
from train.step import compute_dtype
from train.validation import loss_name, same_shape_batches, validation_figures

VALIDATION_SEED = 1  # of the held-out tasks that choose the checkpoint; those that report have other seeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to train, on what, and where to put it.

    Args:
        network: the network's config.
        loop: steps, batch size, optimizer.
        seed: of initialisation and batch order.
        shards: folder of the training shards; not looked at where `fresh` is given.
        prior: from which the validation tasks are drawn (seeds that no shard set uses).
        num_validation_tasks: how many.
        folder: `runs/<name>/<kind>`.
        fresh: what the training tasks are drawn from beside the training, instead of read.
        drawing: how they are drawn.
        split: how training tasks are cut into context and query.
        threads: torch threads of a worker.
    """

    network: NetworkConfig
    loop: LoopConfig
    seed: int
    shards: str
    prior: PriorConfig
    folder: str
    fresh: Recipe | None = None
    drawing: FreshConfig = FreshConfig()
    num_validation_tasks: int = 128
    split: SplitConfig = SplitConfig()
    threads: int = 1

    @property
    def checkpoints(self) -> pathlib.Path:
        """Where checkpoints lie."""
        return pathlib.Path(self.folder) / "checkpoints"

    @property
    def metrics(self) -> pathlib.Path:
        """The metrics file, one JSON record a line."""
        return pathlib.Path(self.folder) / "metrics.jsonl"

    def feed_plan(self) -> FeedPlan:
        """Which batches it trains on."""
        return FeedPlan(
            shards=self.shards,
            fresh=self.fresh,
            drawing=self.drawing,
            batch_size=self.loop.batch_size,
            seed=self.seed,
            split=self.split,
            num_steps=self.loop.num_steps,
        )

    def is_complete(self) -> bool:
        """Whether the last step's checkpoint exists."""
        newest = checkpoint.newest_verified(self.checkpoints)
        return newest is not None and checkpoint.step_of(newest) >= self.loop.num_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Which worker this is, and on what it computes."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")


def run_job(job: TrainingJob, place: Place, *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Trains from the newest verified checkpoint, or from scratch, to the last step.

    Raises:
        Failure: damaged shards, another run's checkpoints, divergence, an unwritable folder, a stop.
    """
    torch.set_num_threads(job.threads)
    with open_feed(job.feed_plan(), rank=place.rank, world_size=place.world_size) as feed:
        _run(job, place, feed=feed, should_stop=should_stop)


def _run(job: TrainingJob, place: Place, *, feed: Feed, should_stop: Callable[[], bool]) -> None:
    """Trains on the batches of `feed`."""
    identity = {"config": configs.digest((job.network, job.loop, job.seed, job.split)), "data": feed.digest}
    state = fresh_state(job.network, job.loop.optimizer, seed=job.seed, device=place.device, identity=identity)
    dtype = str(compute_dtype(place.device)).removeprefix("torch.")
    state.numerics = {"dtype": dtype, "num_workers": place.world_size, "device": place.device.type}
    if restore_state(job.checkpoints, state) and state.step >= job.loop.num_steps:
        return
    feed.expect(state.step)
    writer = _Writer(job, state, feed=feed) if place.rank == 0 else None
    hooks = LoopHooks(
        batch=feed.batch,
        thin=lambda inputs, step: thinned(
            inputs,
            job.loop.regularisation,
            seed=job.seed,
            step=step,
            first_task=place.rank * job.loop.batch_size // place.world_size,
        ),
        validate=writer.validate if writer else lambda state: {},
        record=writer.record if writer else lambda record: None,
        save=writer.save if writer else lambda state, figures: None,
        should_stop=should_stop,
    )
    train(state, job.loop, hooks=hooks)


class _Writer:
    """What the first worker does for all: validation, records and checkpoints."""

    def __init__(self, job: TrainingJob, state: TrainState, *, feed: Feed) -> None:
        self._job, self._feed = job, feed
        self._counted = state.tasks_seen  # up to the last record: the window over which its rate is
        self._batches = same_shape_batches(
            held_out_episodes(job.prior, seed=VALIDATION_SEED, count=job.num_validation_tasks)
        )
        _cut_records(job.metrics, state.step)

    def validate(self, state: TrainState) -> dict[str, float]:
        return validation_figures(state.network, self._batches)

    def record(self, record: dict[str, Any]) -> None:
        if "train/tasks_per_second" in record:
            seconds = (record["train/tasks_seen"] - self._counted) / record["train/tasks_per_second"]
            record = record | {"train/waiting_share": self._feed.seconds_waited() / seconds}
            self._counted = record["train/tasks_seen"]
        files.append_json_line(self._job.metrics, record)

    def save(self, state: TrainState, figures: dict[str, float]) -> None:
        save_state(self._job.checkpoints, state, validation=figures)
        best = note_best(self._job)
        checkpoint.prune(self._job.checkpoints, keep=self._job.loop.keep_checkpoints, protected={best})
        self._feed.seconds_waited()
        self._counted = state.tasks_seen


def note_best(job: TrainingJob) -> int:
    """Writes `best.json`, {"step", "nll" or "loss"}, of the checkpoint with the lowest one; returns its step.

    It is read off the checkpoints themselves, so it is right after a kill at any point and after damage to one.

    Raises:
        Failure: NOT_FOUND when there is no checkpoint.
    """
    name = loss_name(job.network)
    scored = [(read_validation(folder)[name], checkpoint.step_of(folder)) for folder in verified(job.checkpoints)]
    if not scored:
        raise Failure(ExitCode.NOT_FOUND, f"{job.checkpoints} holds no whole checkpoint: train first")
    loss, step = min(scored)
    files.write_json(pathlib.Path(job.folder) / "best.json", {"step": step, name: loss})
    return step


def verified(checkpoints: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoint folders whose every hash holds, in ascending order of step."""
    return [folder for folder in checkpoint.step_folders(checkpoints) if checkpoint.is_whole(folder)]


def _cut_records(path: pathlib.Path, step: int) -> None:
    """Drops what a run recorded after the checkpoint from which it goes on."""
    kept = [record for record in files.read_json_lines(path) if record["step"] <= step and step > 0]
    files.write_bytes(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
