"""Short trainings of a classification model, a record every ten steps: what the bench times whole."""

import dataclasses
import pathlib
from typing import Any

from priors.generation import ensure_shards
from priors.task import TaskKind
from tools import files
from train.cluster import ClusterConfig, Workers
from train.feed import TaskSource
from train.job import TrainingJob
from train.model_job import model_job
from train.presets import PretrainConfig, tiny

WINDOW = 10
"""Steps of a record."""

_KIND = TaskKind.CLASSIFICATION


def short_job(
    root: pathlib.Path,
    name: str,
    *,
    num_steps: int,
    drawn_steps: int | None = None,
    source: TaskSource = TaskSource.SHARDS,
    config: PretrainConfig | None = None,
) -> TrainingJob:
    """A job in a new folder `name` under `root`, where its shards are made, or lie from another one.

    Args:
        root: of everything.
        name: of the run.
        num_steps: of the run.
        drawn_steps: how many steps have tasks of their own; later ones read them again. By default all.
        source: where tasks come from.
        config: whose classification model is trained; by default that of `tiny`.
    """
    config = config or tiny()
    model = config.models()[_KIND]
    loop = dataclasses.replace(model.loop, num_steps=num_steps, log_every=WINDOW, checkpoint_every=num_steps)
    num_tasks = (drawn_steps or num_steps) * loop.batch_size
    data = dataclasses.replace(config.data, num_tasks=num_tasks, source=source, num_validation_tasks=8)
    config = dataclasses.replace(config, classification=dataclasses.replace(model, loop=loop), data=data)
    job = model_job(config, _KIND, shards_root=root, folder=root / name / _KIND.value)
    pathlib.Path(job.folder).mkdir(parents=True)
    if source is TaskSource.SHARDS:
        ensure_shards(config.shards(_KIND), out=pathlib.Path(job.shards), num_tasks=num_tasks, seed=job.seed)
    return job


def run_on_ray(job: TrainingJob, cluster: ClusterConfig) -> Workers:
    """Trains; returns on what.

    Raises:
        Failure: what `train.workers` refuses.
    """
    from train.workers import connected, run_jobs  # it brings ray, which reads its settings while it is imported

    with connected(cluster, batch_sizes={job.loop.batch_size}) as workers:
        run_jobs([job], workers, poll=lambda: None)
    return workers


def windows(job: TrainingJob) -> list[dict[str, Any]]:
    """The records of training, each of `WINDOW` steps; in the first, processes and caches come up."""
    return [record for record in files.read_json_lines(job.metrics) if "train/tasks_per_second" in record]
