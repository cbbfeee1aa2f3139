"""For tests: a training job that takes seconds, one sitting of it, all that it must end in; a main job of that size."""

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

from model import checkpoint
from model.label_injection import LabelKind
from priors.generation import ShardConfig, ensure_shards
from priors.mixture import PriorConfig
from priors.task import TaskKind
from tools import files
from tools.failure import ExitCode, Failure
from train import sitting
from train.cluster import ClusterConfig
from train.job import Place, TrainingJob
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.presets import DataConfig, ModelConfig, PretrainConfig
from train.toy import small_network

BATCH_SIZE = 8


def toy_prior(kind: TaskKind = TaskKind.CLASSIFICATION) -> PriorConfig:
    """Tables of one size."""
    return PriorConfig(kind=kind, min_rows=64, max_rows=64, max_features=4)


def toy_shards(folder: pathlib.Path, *, kind: TaskKind = TaskKind.CLASSIFICATION, seed: int = 0) -> str:
    """Forty tasks: five batches, so that a job of a dozen steps passes over them more than twice."""
    config = ShardConfig(prior=toy_prior(kind), group_size=BATCH_SIZE, groups_per_part=5)
    return str(ensure_shards(config, out=folder, num_tasks=5 * BATCH_SIZE, seed=seed).folder)


def toy_job(
    shards: str, folder: pathlib.Path, *, loop: LoopConfig, kind: TaskKind = TaskKind.CLASSIFICATION
) -> TrainingJob:
    """A job below a run folder of its own, which is made."""
    own = folder / kind.value
    own.mkdir(parents=True)
    return TrainingJob(
        network=small_network(LabelKind(kind.value)),
        loop=loop,
        seed=0,
        shards=shards,
        prior=toy_prior(kind),
        folder=str(own),
        num_validation_tasks=2,
        watch=WatchConfig(budget_share=0),
    )


def toy_pretraining() -> PretrainConfig:
    """A main job on one worker: two networks that train in milliseconds."""
    loop = LoopConfig(num_steps=99, batch_size=BATCH_SIZE, log_every=10, checkpoint_every=50)
    models = {kind.value: ModelConfig(network=small_network(kind), loop=loop) for kind in LabelKind}
    shards = ShardConfig(prior=toy_prior(), group_size=BATCH_SIZE, groups_per_part=4)
    data = DataConfig(shards=shards, num_tasks=8, num_validation_tasks=8)
    return PretrainConfig(**models, data=data, cluster=ClusterConfig(num_workers=1))


# style: run_world gives arguments by position
def sit(place: Place, job: TrainingJob, cut: int | None, ending: Callable[[], bool] = lambda: True) -> None:
    """One sitting that ends by itself, or by what `ending` does in its step number `cut`, counted from 1."""
    asked = iter(range(1, job.loop.num_steps + 1))
    try:
        sitting.run_job(job, place, should_stop=lambda: next(asked) == cut and ending())
    except Failure as failure:
        if failure.code is not ExitCode.INTERRUPTED or cut is None:
            raise


# style: run_world gives arguments by position
def sit_until_killed(place: Place, job: TrainingJob, cut: int, rank: int) -> None:
    """One sitting in whose step number `cut` worker `rank` is killed −9."""
    sit(place, job, cut if place.rank == rank else None, _kill)


def _kill() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def newest_step(job: TrainingJob) -> int:
    """The step of the newest verified checkpoint; 0 without one."""
    newest = checkpoint.newest_verified(job.checkpoints)
    return checkpoint.step_of(newest) if newest else 0


def outcome(job: TrainingJob) -> dict[str, Any]:
    """What must not depend on cuts: the last checkpoint's files by their sha256, and the loss of every step.

    Weights, moments, averages, counters and validation figures are all in those files.
    """
    last = checkpoint.step_folders(job.checkpoints)[-1]
    assert checkpoint.step_of(last) == job.loop.num_steps
    losses = {r["step"]: r["train/loss"] for r in files.read_json_lines(job.metrics) if "train/loss" in r}
    return {"losses": losses, **{path.name: files.sha256_file(path) for path in last.iterdir()}}
