"""Tests of training on a real Ray instance."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import time

import pytest

from model import checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from tools.ray_nodes import processes_with
from train.cluster import ClusterConfig, Workers
from train.events import RunEvent
from train.job import TrainingJob
from train.loop import LoopConfig
from train.toy_job import BATCH_SIZE, toy_job, toy_shards
from train.workers import connected, run_jobs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings

_EVERY = 20  # steps between two checkpoints
_MARK = f"VERITAB_TEST={os.getpid()}"


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks every process that comes from here."""
    monkeypatch.setenv(*_MARK.split("="))


def _job(root: pathlib.Path, kind: TaskKind, *, num_steps: int, every: int = 2) -> TrainingJob:
    loop = LoopConfig(num_steps=num_steps, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=every)
    return toy_job(toy_shards(root / f"shards-{kind}", kind=kind), root / "run", loop=loop, kind=kind)


def _last_step(job: TrainingJob) -> int:
    return max([record["step"] for record in read_json_lines(job.metrics) if "train/loss" in record], default=0)


def _niceness(job: TrainingJob) -> set[int]:
    """Of each rank's process that lives."""
    found = set()
    for path in (pathlib.Path(job.folder).parent / ".ray" / "ranks").glob("*.json"):
        with contextlib.suppress(ProcessLookupError):
            found.add(os.getpriority(os.PRIO_PROCESS, json.loads(path.read_bytes())["pid"]))
    return found


def _resumed_from(job: TrainingJob) -> list[int]:
    """The steps from which training went on after a loss of workers."""
    events = read_json_lines(pathlib.Path(job.folder).parent / "events.jsonl")
    return [event["step"] for event in events if event["event"] == RunEvent.WORKER_LOST]


class _Killer:
    """Kills −9 one rank after another, each when training went past a checkpoint; notes what it cost.

    Args:
        job: what is trained.
        ranks: in this order.
    """

    def __init__(self, job: TrainingJob, ranks: list[int]) -> None:
        self._job, self._ranks, self._goal = job, list(ranks), _EVERY + 5
        self._killed: tuple[int, float] | None = None
        self.killed = 0
        self.costs: list[tuple[int, float]] = []  # steps, seconds

    def __call__(self) -> None:
        step, resumed = _last_step(self._job), _resumed_from(self._job)
        if self._killed is not None and len(resumed) == self.killed and step > resumed[-1]:
            before, when = self._killed
            self.costs.append((before - resumed[-1], time.monotonic() - when))
            self._killed, self._goal = None, before + _EVERY + 5
        if self._killed is None and step >= self._goal and self._ranks:
            folder = pathlib.Path(self._job.folder).parent / ".ray" / "ranks"
            os.kill(json.loads((folder / f"{self._ranks.pop(0)}.json").read_bytes())["pid"], signal.SIGKILL)
            self._killed = (_last_step(self._job), time.monotonic())
            self.killed += 1


class _Interrupter:
    """What a signal does to whoever waits: raises KeyboardInterrupt once, when training has begun.

    Args:
        job: what is trained.
    """

    def __init__(self, job: TrainingJob) -> None:
        self._job, self._first = job, _last_step(job)
        self.when = 0.0

    def __call__(self) -> None:
        if not self.when and _last_step(self._job) > self._first + 5:
            self.when = time.monotonic()
            raise KeyboardInterrupt


def test_two_workers_train_both_models_and_a_refusal_comes_back_as_it_was(tmp_path: pathlib.Path) -> None:
    """One Ray job, two models; then a worker's Failure reaches the user with its own exit code, without retries."""
    jobs = [_job(tmp_path, kind, num_steps=4) for kind in TaskKind]
    niceness: set[int] = set()
    with connected(ClusterConfig(num_workers=2), batch_sizes=[BATCH_SIZE]) as workers:
        assert workers == Workers(count=2, gpus_each=0)
        run_jobs(jobs, workers, poll=lambda: niceness.update(_niceness(jobs[0])))
        for job in jobs:
            assert job.is_complete()
            assert [r["step"] for r in read_json_lines(job.metrics) if "train/loss" in r] == [1, 2, 3, 4]
            weights = checkpoint.load_checkpoint(checkpoint.newest_verified(job.checkpoints)).weights
            assert all(tensor.isfinite().all() for tensor in weights.values())
        assert niceness == {os.getpriority(os.PRIO_PROCESS, 0)}, "Ray by itself makes workers 15 nicer"
        longer = dataclasses.replace(jobs[0].loop, num_steps=5)
        with pytest.raises(Failure) as caught:
            run_jobs([dataclasses.replace(jobs[0], loop=longer)], workers, poll=lambda: None)
        assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert not (tmp_path / "run" / ".ray").exists()


def test_dead_workers_are_replaced_three_times_and_a_stop_costs_no_step(tmp_path: pathlib.Path) -> None:
    """T4: kill −9 of either rank; T6: a stop; T9: no process is left.

    Each of three losses costs at most an interval and a minute; the fourth ends training, and the same call goes on.
    """
    job = _job(tmp_path, TaskKind.CLASSIFICATION, num_steps=1_000_000, every=_EVERY)
    killer, interrupter = _Killer(job, [1, 0, 1, 0]), _Interrupter(job)
    with connected(ClusterConfig(num_workers=2), batch_sizes=[BATCH_SIZE]) as workers:
        with pytest.raises(Failure) as caught:
            run_jobs([job], workers, poll=killer)
        assert caught.value.code is ExitCode.WORKER_FAILED and "failed 4 times" in caught.value.message
        assert killer.killed == 4 and len(killer.costs) == 3
        assert all(0 <= steps <= _EVERY + 1 for steps, _ in killer.costs), killer.costs
        assert all(seconds < 60 for _, seconds in killer.costs), killer.costs
        interrupter = _Interrupter(job)
        with pytest.raises(KeyboardInterrupt):
            run_jobs([job], workers, poll=interrupter)
        assert time.monotonic() - interrupter.when < 25
        newest = checkpoint.newest_verified(job.checkpoints)
        assert checkpoint.step_of(newest) == _last_step(job) > 0
        assert not (tmp_path / "run" / "stop").exists()
    deadline = time.monotonic() + 10
    while left := processes_with(_MARK):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_more_workers_than_cores_are_refused_with_both_numbers() -> None:
    """T5: one line, at once: Ray is not even started."""
    start = time.monotonic()
    with pytest.raises(Failure) as caught, connected(ClusterConfig(num_workers=4096), batch_sizes=[BATCH_SIZE]):
        pass
    assert caught.value.code is ExitCode.TOO_FEW_RESOURCES
    assert "4096" in caught.value.message and "CPU workers" in caught.value.message
    assert time.monotonic() - start < 10


def test_gpus_on_a_machine_without_any_are_refused() -> None:
    """T5: Ray alone would wait for ever."""
    with pytest.raises(Failure) as caught, connected(ClusterConfig(gpus_per_worker=64), batch_sizes=[BATCH_SIZE]):
        pass
    assert caught.value.code is ExitCode.TOO_FEW_RESOURCES


@pytest.mark.parametrize("address", ["ray://head:10001", "10.0.0.1:6379"])
def test_an_address_that_cannot_be_used_is_refused_before_ray_starts(address: str) -> None:
    with pytest.raises(Failure) as caught, connected(ClusterConfig(address=address), batch_sizes=[BATCH_SIZE]):
        pass
    assert caught.value.code is ExitCode.BAD_FLAG
    assert address in caught.value.message
    assert ("Ray Jobs" in caught.value.message) == address.startswith("ray://")
