"""What Ray costs: the same steps of the preset `tiny` bare, on Ray with one worker, and on Ray with two."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from bench.rows import BenchRow, measured_row
from priors.generation import ensure_shards
from priors.task import TaskKind
from tools import files
from train.cluster import ClusterConfig
from train.job import Place, TrainingJob
from train.presets import tiny
from train.sitting import run_job
from train.workers import connected, run_jobs

LEAST_ON_RAY = 0.95
"""Of the bare loop's throughput (T8)."""
LEAST_OF_TWO = 1.8
"""Times one worker's throughput, for two with one thread each."""

_WINDOW = 10  # steps of one rate
_DRAWN_STEPS = 40  # whose tasks are made; later steps read them again


def measure_overhead(*, num_steps: int, rounds: int = 2) -> Iterator[tuple[BenchRow, BenchRow]]:
    """Trains the classification model of `tiny` in turn bare, with one worker and with two, one thread each.

    A rate is that of ten steps; the first ten, in which processes and caches come up, count nowhere.

    Args:
        num_steps: of each sitting, more than ten.
        rounds: how often each side trains, from its first step.

    Yields:
        After every round: one worker on Ray beside the bare loop, and two workers beside one.
    """
    bare: list[float] = []
    on_ray: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number in range(rounds):
            job = _job(folder, f"bare-{number}", num_steps=num_steps)
            run_job(job, Place())
            bare += _rates(job)
            for count, found in on_ray.items():
                job = _job(folder, f"{count}-{number}", num_steps=num_steps)
                with connected(ClusterConfig(num_workers=count), batch_sizes={job.loop.batch_size}) as workers:
                    run_jobs([job], workers, poll=lambda: None)
                found += _rates(job)
            yield _rows(bare, on_ray[1], on_ray[2])


def _rows(bare: Sequence[float], one: Sequence[float], two: Sequence[float]) -> tuple[BenchRow, BenchRow]:
    note = f"tiny, one thread a worker; medians over {len(bare)} rates of {_WINDOW} steps"
    return (
        measured_row(
            name="1 worker on Ray beside the bare loop",
            unit="tasks/s",
            ours=one,
            peer=bare,
            least_ratio=LEAST_ON_RAY,
            note=note,
        ),
        measured_row(
            name="2 workers beside 1", unit="tasks/s", ours=two, peer=one, least_ratio=LEAST_OF_TWO, note=note
        ),
    )


def _job(root: pathlib.Path, name: str, *, num_steps: int) -> TrainingJob:
    config, kind = tiny(), TaskKind.CLASSIFICATION
    shards, model = config.shards(kind), config.models()[kind]
    loop = dataclasses.replace(model.loop, num_steps=num_steps, log_every=_WINDOW, checkpoint_every=num_steps)
    made = ensure_shards(shards, out=root / "shards", num_tasks=_DRAWN_STEPS * loop.batch_size, seed=config.seed)
    folder = root / name / kind.value
    folder.mkdir(parents=True)
    return TrainingJob(
        network=model.network,
        loop=loop,
        seed=config.seed,
        shards=str(made.folder),
        prior=shards.prior,
        folder=str(folder),
        num_validation_tasks=8,
        split=config.data.split,
    )


def _rates(job: TrainingJob) -> list[float]:
    """Tasks a second of every window but the first."""
    records = [record for record in files.read_json_lines(job.metrics) if "train/tasks_per_second" in record]
    return [record["train/tasks_per_second"] for record in records[1:]]
