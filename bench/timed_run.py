"""One training of the classification model under a stopwatch, with every checkpoint kept: what time to target measures.

It is the training of `//train:pretrain`: shards made on all cores, then workers on Ray (or the same sitting in
processes joined without Ray), validation, checkpoints. Seconds count from the start of the program: Python and its
imports, shards, starting the workers, and steps. Validation and the writing of checkpoints, of which there are many
more here than anybody wants, are measured and left out, as is what the workers do after the last step.
"""

import contextlib
import dataclasses
import enum
import math
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from model import checkpoint
from priors.task import TaskKind
from tools import files, progress
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.looks import WatchConfig
from train.model_job import make_shards, model_job
from train.presets import PretrainConfig
from train.sitting import run_job

_KIND = TaskKind.CLASSIFICATION
_RATE, _SEEN = "train/tasks_per_second", "train/tasks_seen"
_POLL_SECONDS = 0.02


class Runner(enum.StrEnum):
    """Who starts the workers."""

    RAY = "ray"  # Ray Train, as in the main job
    BARE = "bare"  # processes joined by gloo, without Ray


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptCheckpoint:
    """A checkpoint and when it stood.

    Args:
        folder: of the checkpoint.
        step: optimizer steps done.
        tasks: trained on.
        seconds: since the start of the program, validation and checkpoints left out.
    """

    folder: str
    step: int
    tasks: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedRun:
    """What one training took.

    Args:
        job: what was trained.
        workers: training processes.
        seconds: of each phase: `program` (Python and imports), `shards`, `workers` (until the first step begins),
            `steps`, and `left_out` (validation, checkpoints, the end of the workers).
        checkpoints: in order of steps; the last one is that of the last step.
    """

    job: TrainingJob
    workers: int
    seconds: Mapping[str, float]
    checkpoints: tuple[KeptCheckpoint, ...]


def seconds_since_start() -> float:
    """Seconds since this process was started, by the kernel's account; 0 where the system has none (no /proc)."""
    try:
        fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of the whole line, see proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def timed_run(
    config: PretrainConfig, *, num_steps: int, every: int, folder: pathlib.Path, runner: Runner, program: float
) -> TimedRun:
    """Trains the classification model of `config` for `num_steps` steps, each task seen once.

    Args:
        config: of the main job; its number of steps and of tasks is not read.
        num_steps: over which the schedule is stretched.
        every: steps between two kept checkpoints.
        folder: new files go there; it does not exist yet.
        runner: who starts the workers.
        program: seconds that the program took to start.

    Raises:
        Failure: what shards, workers and training refuse.
    """
    config = shortened(config, num_steps=num_steps, every=every)
    job = model_job(config, _KIND, shards_root=folder, folder=folder / _KIND.value)
    pathlib.Path(job.folder).mkdir(parents=True)
    start = time.perf_counter()
    _make_shards(config, job)
    made = time.perf_counter()
    with _FirstRecord(job.metrics) as first:
        workers = _train(job, config, runner=runner)
    ended = time.perf_counter()
    records = [record for record in files.read_json_lines(job.metrics) if _RATE in record]
    steps = progress_of(records, num_steps=num_steps)
    begun = first.seen - float(steps.seconds[records[0]["step"]])
    before = program + begun - start
    return TimedRun(
        job=job,
        workers=workers,
        seconds={
            "program": program,
            "shards": made - start,
            "workers": begun - made,
            "steps": float(steps.seconds[-1]),
            "left_out": ended - begun - float(steps.seconds[-1]),
        },
        checkpoints=tuple(
            KeptCheckpoint(
                folder=str(kept),
                step=(step := checkpoint.step_of(kept)),
                tasks=round(steps.tasks[step]),
                seconds=before + float(steps.seconds[step]),
            )
            for kept in checkpoint.step_folders(job.checkpoints)
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepProgress:
    """How far training was after each number of steps.

    Args:
        seconds: [S + 1] of steps alone.
        tasks: [S + 1] seen.
    """

    seconds: np.ndarray
    tasks: np.ndarray


def progress_of(records: Sequence[Mapping[str, Any]], *, num_steps: int) -> StepProgress:
    """Read off a metrics file's records of training, each of which covers the steps since the one before.

    Steps after the last record count as those before it.
    """
    seconds, tasks, last, seen = np.zeros(num_steps), np.zeros(num_steps), 0, 0
    for number, record in enumerate(records, start=1):
        end = num_steps if number == len(records) else record["step"]
        each = (record[_SEEN] - seen) / (record["step"] - last)
        tasks[last:end], seconds[last:end] = each, each / record[_RATE]
        last, seen = record["step"], record[_SEEN]
    return StepProgress(
        seconds=np.concatenate([[0.0], seconds.cumsum()]), tasks=np.concatenate([[0.0], tasks.cumsum()])
    )


def shortened(config: PretrainConfig, *, num_steps: int, every: int) -> PretrainConfig:
    """The main job with a classification model of another length: each task once, no look, all checkpoints kept."""
    model, every = config.models()[_KIND], min(every, num_steps)
    loop = dataclasses.replace(
        model.loop,
        num_steps=num_steps,
        checkpoint_every=every,
        log_every=math.gcd(every, model.loop.log_every),  # so that no record spans a checkpoint
        keep_checkpoints=num_steps // every + 1,
    )
    never = WatchConfig(budget_share=0.0)
    config = dataclasses.replace(config, classification=dataclasses.replace(model, loop=loop), watch=never)
    seen = zip(config.stage_steps(_KIND), config.stages(_KIND), strict=True)
    first, *others = (steps * stage.batch_size for steps, stage in seen)
    later = zip(config.data.later, others, strict=True)
    stages = tuple(dataclasses.replace(stage, num_tasks=count) for stage, count in later)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, num_tasks=first, later=stages))


def _make_shards(config: PretrainConfig, job: TrainingJob) -> None:
    for stage, wanted in zip(job.stages, config.stages(_KIND), strict=True):
        if stage.fresh is None:
            make_shards(wanted, folder=stage.shards, seed=job.seed, title="shards")


def _train(job: TrainingJob, config: PretrainConfig, *, runner: Runner) -> int:
    """Trains; returns on how many workers."""
    if runner is Runner.BARE:
        count = min(config.cluster.num_workers or os.cpu_count() or 1, *(stage.batch_size for stage in job.stages))
        run_world(_sit, job, size=count)
        return count
    from train.workers import connected, run_jobs  # it brings ray

    with (
        connected(config.cluster, batch_sizes={stage.batch_size for stage in job.stages}) as workers,
        _shown(job) as poll,
    ):
        run_jobs([job], workers, poll=poll)
        return workers.count


def _sit(place: Place, job: TrainingJob) -> None:
    run_job(job, place)


@contextlib.contextmanager
def _shown(job: TrainingJob) -> Iterator[Any]:
    """What shows the newest record of a job as progress."""
    with progress.meter("train", total=job.loop.num_steps, unit="steps") as meter:

        def poll() -> None:
            records = files.read_json_lines(job.metrics)
            if records:
                meter(records[-1]["step"])

        yield poll


class _FirstRecord:
    """Notes when a job wrote its first record.

    Args:
        path: of the metrics file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen = math.nan
        """By `time.perf_counter`; NaN until then."""

    def __enter__(self) -> "_FirstRecord":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not (self._path.exists() and self._path.stat().st_size):
            if self._over.wait(_POLL_SECONDS):
                return
        self.seen = time.perf_counter()
