"""How long training waits for its tasks: short runs of the preset `tiny`, on shards and on tasks drawn beside them."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

from priors.generation import ensure_shards
from priors.recipe import Recipe
from priors.task import TaskKind
from tools import files
from train.cluster import ClusterConfig, Workers
from train.feed import TaskSource
from train.job import TrainingJob
from train.presets import tiny
from train.workers import connected, run_jobs

_LOG_EVERY = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting:
    """What the first worker of a run recorded.

    Args:
        source: where the tasks came from.
        workers: training processes.
        num_steps: of the run.
        share: share of the time of the steps after the first ten that was spent waiting for tasks.
        start: seconds waited in the first ten steps, in which the processes that draw are started.
        tasks_per_second: of training, in the steps after the first ten.
    """

    source: TaskSource
    workers: int
    num_steps: int
    share: float
    start: float
    tasks_per_second: float


def measure_waiting(*, num_steps: int, cluster: ClusterConfig | None = None) -> Iterator[Waiting]:
    """Trains the classification model of `tiny` for `num_steps` steps on tasks of each source.

    Args:
        num_steps: more than ten.
        cluster: where; by default this machine, a worker for each core.
    """
    for source in TaskSource:
        with tempfile.TemporaryDirectory() as folder:
            job = _job(pathlib.Path(folder), source, num_steps=num_steps)
            with connected(cluster or ClusterConfig(), batch_sizes={job.loop.batch_size}) as workers:
                run_jobs([job], workers, poll=lambda: None)
            yield _read(job, source, workers)


def _job(folder: pathlib.Path, source: TaskSource, *, num_steps: int) -> TrainingJob:
    config, kind = tiny(), TaskKind.CLASSIFICATION
    shards, model = config.shards(kind), config.models()[kind]
    loop = dataclasses.replace(model.loop, num_steps=num_steps, log_every=_LOG_EVERY, checkpoint_every=num_steps)
    num_tasks = num_steps * loop.batch_size
    drawn = dataclasses.replace(shards, group_size=loop.batch_size)
    recipe = Recipe(config=drawn, seed=config.seed, num_parts=drawn.num_parts(num_tasks))
    (folder / "run").mkdir()
    if source is TaskSource.SHARDS:
        ensure_shards(shards, out=folder / "shards", num_tasks=num_tasks, seed=config.seed)
    return TrainingJob(
        network=model.network,
        loop=loop,
        seed=config.seed,
        shards=str(folder / "shards"),
        prior=shards.prior,
        folder=str(folder / "run"),
        fresh=recipe if source is TaskSource.FRESH else None,
        num_validation_tasks=8,
        split=config.data.split,
    )


def _read(job: TrainingJob, source: TaskSource, workers: Workers) -> Waiting:
    records = [record for record in files.read_json_lines(job.metrics) if "train/waiting_share" in record]
    size = job.loop.batch_size * _LOG_EVERY
    seconds = [size / record["train/tasks_per_second"] for record in records]
    waited = [length * record["train/waiting_share"] for length, record in zip(seconds, records, strict=True)]
    return Waiting(
        source=source,
        workers=workers.count,
        num_steps=job.loop.num_steps,
        share=sum(waited[1:]) / sum(seconds[1:]),
        start=waited[0],
        tasks_per_second=size * len(seconds[1:]) / sum(seconds[1:]),
    )
