"""What a training job is: one model, its tasks, its loop, and where its files lie."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import torch

from model import checkpoint
from model.network import NetworkConfig
from priors.fresh_tasks import FreshConfig
from priors.mixture import PriorConfig
from priors.recipe import Recipe
from priors.splits import SplitConfig
from tools import config as configs
from tools import files
from tools.failure import ExitCode, Failure
from train.compilation import Compilation
from train.events import EVENTS, EventLog
from train.feed import FeedPlan
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.stages import TrainingStage, place_of, tasks_until
from train.state import differences
from train.validation import loss_name, validation_digest

VALIDATION = "data.validation"
"""The field of an identity that names the validation tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to train, on what, and where to put it.

    Args:
        network: the network's config.
        loop: steps, batch size, optimizer.
        seed: of initialisation and batch order.
        shards: folder of the training shards; not looked at where `fresh` is given.
        prior: from which the validation tasks are drawn (seeds that no shard set uses), the same in all stages.
        num_validation_tasks: how many.
        folder: `runs/<name>/<kind>`.
        fresh: what the training tasks are drawn from beside the training, instead of read.
        drawing: how they are drawn.
        split: how training tasks are cut into context and query.
        later: further stages of a curriculum, each with tasks of its own; what is above is the first one's.
        accept_changes: whether checkpoints of another config or other data may be gone on from.
        watch: what is looked at besides.
        tables: folder of further real tables to look at; None for the bundled ones alone.
        threads: torch threads of a worker.
        compilation: whether blocks of the network are compiled.
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
    later: tuple[TrainingStage, ...] = ()
    accept_changes: bool = False
    watch: WatchConfig = WatchConfig()
    tables: str | None = None
    threads: int = 1
    compilation: Compilation = Compilation.AUTO

    @property
    def checkpoints(self) -> pathlib.Path:
        """Where checkpoints lie."""
        return pathlib.Path(self.folder) / "checkpoints"

    @property
    def metrics(self) -> pathlib.Path:
        """The metrics file, one JSON record a line."""
        return pathlib.Path(self.folder) / "metrics.jsonl"

    def events(self) -> EventLog:
        """What happens to the run of which this job is a part."""
        return EventLog(pathlib.Path(self.folder).parent / EVENTS)

    def feed_plan(self) -> FeedPlan:
        """Which batches it trains on."""
        return FeedPlan(stages=self.stages, drawing=self.drawing, seed=self.seed, num_steps=self.loop.num_steps)

    @property
    def stages(self) -> tuple[TrainingStage, ...]:
        """All stages in order."""
        first = TrainingStage(
            first_step=0,
            shards=self.shards,
            fresh=self.fresh,
            split=self.split,
            batch_size=self.loop.batch_size,
            accumulation=self.loop.accumulation,
        )
        return (first, *self.later)

    def stage_at(self, step: int) -> TrainingStage:
        """The stage of a step."""
        return self.stages[place_of(self.stages, step)]

    def tasks_at(self, step: int) -> int:
        """How many tasks the steps before `step` hold."""
        return tasks_until(self.stages, step)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must share, by flat name: every field that a result depends on, and digests of the data.

        Raises:
            Failure: what is wrong with a manifest.
        """
        digests = {f"data.{number}": stage.digest() for number, stage in enumerate(self.stages)}
        return self._config_identity() | digests

    def _config_identity(self) -> dict[str, Any]:
        splits = [{"first_step": stage.first_step, "split": stage.split} for stage in self.stages]
        sizes = [{"batch_size": stage.batch_size, "accumulation": stage.accumulation} for stage in self.later]
        config = {"network": self.network, "loop": self.loop, "seed": self.seed, "stages": splits, "later": sizes}
        return configs.flat(config) | {VALIDATION: validation_digest(self.prior, count=self.num_validation_tasks)}

    def is_complete(self) -> bool:
        """Whether the last step's checkpoint exists.

        Raises:
            Failure: FORMAT_VERSION.
        """
        return self._last_checkpoint() is not None

    def _last_checkpoint(self) -> pathlib.Path | None:
        newest = checkpoint.newest_verified(self.checkpoints)
        return newest if newest is not None and checkpoint.step_of(newest) >= self.loop.num_steps else None

    def trained_otherwise(self, *, same_data: bool = False) -> list[str]:
        """What differs, "name: old → new", between a complete training that lies here and this job; else empty.

        Args:
            same_data: whether shards that are not there (any more) are those that were trained on, or others.

        Raises:
            Failure: what is wrong with a manifest; FORMAT_VERSION of a checkpoint.
        """
        last = self._last_checkpoint()
        if last is None:
            return []
        found, own = checkpoint.load_values(last)["identity"], self._config_identity()
        for number, stage in enumerate(self.stages):
            name = f"data.{number}"
            try:
                own[name] = stage.digest()
            except Failure as failure:
                if failure.code is not ExitCode.SHARD_MISSING:
                    raise
                own[name] = found.get(name) if same_data else "not made yet"
        return differences(found, own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Which worker this is, and on what it computes."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")


def note_best(job: TrainingJob, *, whole: Sequence[pathlib.Path] | None = None) -> int:
    """Writes `best.json`, {"step", "nll" or "loss"}, of the checkpoint with the lowest one; returns its step.

    It is read off the checkpoints themselves, so it is right after a kill at any point and after damage to one. Only
    those whose validation tasks are the newest one's compare; a figure that is not finite is worse than any other.

    Args:
        job: whose.
        whole: what `verified` says of its checkpoints, where that was asked already: it reads them all.

    Raises:
        Failure: NOT_FOUND when there is no checkpoint.
    """
    name = loss_name(job.network)
    whole = verified(job.checkpoints) if whole is None else whole
    saved = {checkpoint.step_of(folder): checkpoint.load_values(folder) for folder in whole}
    if not saved:
        raise Failure(ExitCode.NOT_FOUND, f"{job.checkpoints} holds no whole checkpoint: train first")
    tasks = {step: values["identity"].get(VALIDATION) for step, values in saved.items()}
    losses = {step: saved[step]["validation"][name] for step in saved if tasks[step] == tasks[max(saved)]}
    step = min(losses, key=lambda step: (not math.isfinite(losses[step]), losses[step], step))
    loss = losses[step]
    files.write_json(pathlib.Path(job.folder) / "best.json", {"step": step, name: loss})
    return step


def verified(checkpoints: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoint folders whose every hash holds, in ascending order of step."""
    return [folder for folder in checkpoint.step_folders(checkpoints) if checkpoint.is_whole(folder)]
