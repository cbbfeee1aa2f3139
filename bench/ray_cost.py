"""What Ray and a second worker cost (T8): the subject `ray` of `//tools:bench`."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Literal

from bench.rows import BenchRow, SaveRows, measured_row
from bench.short_training import WINDOW, run_on_ray, short_job, windows
from tools import progress
from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig
from train.job import Place, TrainingJob
from train.presets import PRESETS, PretrainConfig
from train.sitting import run_job

TITLE, PEER = "Training on Ray: the same steps in one run", "without"

LEAST_ON_RAY = 0.95
"""Of the bare loop's throughput (T8)."""
LEAST_OF_TWO = 1.8
"""Times one worker's throughput, for two with one thread each."""

_QUICK_STEPS, _FEWEST_STEPS = 30, 20
_DRAWN_STEPS = 40  # whose tasks are made; later steps read them again


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayBenchConfig:
    """What is measured, and how often."""

    json: pathlib.Path | None = None
    """Write everything here."""
    quick: bool = False
    """One short round: rates mean little."""
    preset: Literal["tiny", "small"] = "tiny"
    """Whose classification model trains: what a step costs whatever its batch weighs less in the larger one."""
    num_steps: int = 200
    """Steps of each sitting; the first ten count nowhere."""
    rounds: int = 2
    """How often each side trains."""

    def __post_init__(self) -> None:
        """Refuses numbers with which there is no rate.

        Raises:
            Failure: BAD_FLAG, naming flag and value.
        """
        if self.num_steps < _FEWEST_STEPS or self.rounds < 1:
            raise Failure(
                ExitCode.BAD_FLAG,
                f"--num-steps {self.num_steps}, --rounds {self.rounds}: give {_FEWEST_STEPS} or more, and 1 or more",
            )


def ray() -> RayBenchConfig:
    """Steps of a preset bare, on Ray with one worker, and with two: about 10 minutes on 2 cores with `tiny`."""
    return RayBenchConfig()


def measure(config: RayBenchConfig, *, save: SaveRows) -> list[BenchRow]:
    """Measures what the config names; `save` is called after every round."""
    num_steps, rounds = (_QUICK_STEPS, 1) if config.quick else (config.num_steps, config.rounds)
    rows: list[BenchRow] = []
    with progress.meter("Ray", total=rounds, unit="rounds") as meter:
        sittings = measure_overhead(num_steps=num_steps, rounds=rounds, config=PRESETS[config.preset]())
        for done, found in enumerate(sittings, start=1):
            rows = list(found)
            save(rows)
            meter(done)
    return rows


def measure_overhead(
    *, num_steps: int, rounds: int, config: PretrainConfig
) -> Iterator[tuple[BenchRow, BenchRow]]:
    """Trains a classification model in turn bare, with one worker and with two, on CPUs, one thread each.

    A rate is that of ten steps; the first ten, in which processes and caches come up, count nowhere.

    Args:
        num_steps: of each sitting, more than ten.
        rounds: how often each side trains, from its first step.
        config: whose model is trained.

    Yields:
        After every round: one worker on Ray beside the bare loop, and two workers beside one.
    """
    bare: list[float] = []
    on_ray: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        short = functools.partial(short_job, folder, num_steps=num_steps, drawn_steps=_DRAWN_STEPS, config=config)
        for number in range(rounds):
            job = short(f"bare-{number}")
            run_job(job, Place())
            bare += _rates(job)
            for count, found in on_ray.items():
                job = short(f"{count}-{number}")
                run_on_ray(job, ClusterConfig(num_workers=count, gpus_per_worker=0))
                found += _rates(job)
            yield _rows(bare, on_ray[1], on_ray[2])


def _rows(bare: Sequence[float], one: Sequence[float], two: Sequence[float]) -> tuple[BenchRow, BenchRow]:
    note = f"one thread a worker; medians over {len(bare)} rates of {WINDOW} steps"
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


def _rates(job: TrainingJob) -> list[float]:
    """Tasks a second of every window but the first."""
    return [record["train/tasks_per_second"] for record in windows(job)[1:]]
