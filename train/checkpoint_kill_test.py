"""A training that is killed while it saves, or whose newest checkpoint is damaged, goes on and ends in equal bytes."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from model import checkpoint
from train.gloo_world import MemberFailed, run_world
from train.job import Place, TrainingJob, note_best, verified
from train.loop import LoopConfig
from train.sitting import run_job
from train.toy_job import BATCH_SIZE, newest_step, outcome, sit, toy_job, toy_shards
from train.writer import Writer

_NAMES = ["weights.safetensors", "config.json", "state.safetensors", "state.json", "MANIFEST.json"]
_STEPS, _EVERY = 6, 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A job that nothing has disturbed."""
    root = tmp_path_factory.mktemp("whole")
    loop = LoopConfig(num_steps=_STEPS, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=_EVERY, keep_checkpoints=2)
    job = toy_job(toy_shards(root / "shards"), root / "run", loop=loop)
    run_world(sit, job, None, size=1)
    return job


def _copied(job: TrainingJob, folder: pathlib.Path) -> TrainingJob:
    """The same job in another folder, as far as it has come."""
    shutil.copytree(job.folder, folder, dirs_exist_ok=True)
    return dataclasses.replace(job, folder=str(folder))


def _ends_well(job: TrainingJob, wanted: TrainingJob) -> None:
    """Finishes a job and compares it with one that nothing has disturbed."""
    run_job(job, Place())
    note_best(job)  # as whoever chooses a checkpoint does: the kill may have come before it was noted
    best, wanted_best = (json.loads((pathlib.Path(one.folder) / "best.json").read_bytes()) for one in (job, wanted))
    assert outcome(job) == outcome(wanted) and best == wanted_best


def _strike_in_the_last_save(at: int, strike: Callable[[], None]) -> Callable[[], int]:
    """Calls `strike` before operation number `at` of the save of the last step; returns a count of operations.

    Operations are every opening of a file for writing, fsync, rename, new folder and deletion.
    """
    seen, active = 0, False
    save = Writer.save

    def note() -> None:
        nonlocal seen
        seen += active
        if active and seen == at:
            strike()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        flags = arguments[2] if event == "open" else 0
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"):
            note()

    def noted_fsync(descriptor: int) -> None:
        note()  # and no waiting for the disk: it matters when the power goes, not when a process does

    def noted_save(self: Writer, state: Any, figures: dict[str, float]) -> None:
        nonlocal active
        active = state.step == _STEPS
        save(self, state, figures)
        active = False

    os.fsync, Writer.save = noted_fsync, noted_save
    sys.addaudithook(hook)
    return lambda: seen


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_before_the_last_step(place: Place, job: TrainingJob) -> None:
    _strike_in_the_last_save(1, _kill)
    run_job(job, place)


def _killed_at_every_operation(place: Place, jobs: list[TrainingJob]) -> list[int]:
    """Trains each job in a process that is killed before operation 1, 2, … of its last save; returns the exit codes."""
    codes = []
    for at, job in enumerate(jobs, start=1):
        child = os.fork()
        if not child:
            try:
                count = _strike_in_the_last_save(at, _kill)
                run_job(job, place)
                os._exit(0 if count() < at else 1)
            finally:
                os._exit(2)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if codes[-1] == 0:
            break
    return codes


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("quick_disk")
def test_a_kill_at_any_operation_of_a_save_costs_no_checkpoint_and_no_bit(
    whole: TrainingJob, tmp_path: pathlib.Path
) -> None:
    """T1: kill −9 at every save hook; at least two verified checkpoints at every moment; the rerun ends in equal bytes.

    T11: of several checkpoints the one with the highest step goes on, whatever the times of the folders say.
    """
    begun = dataclasses.replace(whole, folder=str(tmp_path / "begun" / "classification"))
    pathlib.Path(begun.folder).mkdir(parents=True)
    with pytest.raises(MemberFailed):
        run_world(_killed_before_the_last_step, begun, size=1)
    jobs = [_copied(begun, tmp_path / str(at) / "classification") for at in range(1, 80)]
    (codes,) = run_world(_killed_at_every_operation, jobs, size=1)
    assert codes[-1] == 0 and set(codes[:-1]) == {-signal.SIGKILL} and len(codes) > 30
    found: set[tuple[int, ...]] = set()
    for job in jobs[: len(codes)]:
        steps = [checkpoint.step_of(folder) for folder in verified(job.checkpoints)]
        assert steps == [checkpoint.step_of(folder) for folder in checkpoint.step_folders(job.checkpoints)]
        assert len(steps) >= 2 and 4 in steps
        found.add(tuple(steps))
        os.utime(job.checkpoints / "step-00000004", (4e9, 4e9))
        _ends_well(job, whole)
        left = [path.name for path in job.checkpoints.iterdir() if path not in verified(job.checkpoints)]
        assert left == [] or steps[-1] == _STEPS
    assert {6 in steps for steps in found} == {True, False}


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete"])
@pytest.mark.parametrize("name", _NAMES)
def test_damage_to_any_file_of_the_newest_checkpoint_costs_one_interval(
    whole: TrainingJob, name: str, damage: str, tmp_path: pathlib.Path
) -> None:
    """T1: flip, truncate, delete each file: training goes on from the checkpoint before, and ends in equal bytes."""
    job = _copied(whole, tmp_path / "run" / "classification")
    path = job.checkpoints / f"step-{_STEPS:08d}" / name
    data = path.read_bytes()
    flipped = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x10]) + data[len(data) // 2 + 1 :]
    path.write_bytes({"flip": flipped, "truncate": data[: len(data) // 2], "empty": b"", "delete": b""}[damage])
    if damage == "delete":
        path.unlink()
    assert newest_step(job) == _STEPS - _EVERY
    assert not job.is_complete()
    before = job.metrics.read_bytes()
    _ends_well(job, whole)
    assert job.is_complete() and job.metrics.read_bytes() != before
