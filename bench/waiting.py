"""How long training waits for its tasks: short runs, on shards and on tasks drawn beside them."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

from bench.short_training import WINDOW, run_on_ray, short_job, windows
from train.cluster import ClusterConfig, Workers
from train.feed import TaskSource
from train.job import TrainingJob
from train.presets import PretrainConfig


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


def measure_waiting(
    *, num_steps: int, cluster: ClusterConfig = ClusterConfig(), config: PretrainConfig | None = None
) -> Iterator[Waiting]:
    """Trains a classification model for `num_steps` steps on tasks of each source.

    Args:
        num_steps: more than ten.
        cluster: where; by default this machine, a worker for each core.
        config: whose model is trained; by default that of `tiny`.
    """
    for source in TaskSource:
        with tempfile.TemporaryDirectory() as folder:
            job = short_job(pathlib.Path(folder), "run", num_steps=num_steps, source=source, config=config)
            workers = run_on_ray(job, cluster)
            yield _read(job, source, workers)


def _read(job: TrainingJob, source: TaskSource, workers: Workers) -> Waiting:
    records, size = windows(job), job.loop.batch_size * WINDOW
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
