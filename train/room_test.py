"""Tests of the room that a run asks for."""

import dataclasses
import pathlib
import shutil
from typing import Any

import pytest
import torch

from model.label_injection import LabelKind
from priors.mixture import PriorConfig
from tools.failure import ExitCode, Failure
from train.averaging import AveragingConfig, AveragingKind
from train.job import TrainingJob
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.room import check_disk, most_bytes
from train.state import checkpoint_bytes, fresh_state, save_state
from train.toy import small_network


def _job(folder: pathlib.Path, *, keep: int = 2) -> TrainingJob:
    loop = LoopConfig(num_steps=4, keep_checkpoints=keep)
    network = small_network(LabelKind.CLASSIFICATION)
    return TrainingJob(network=network, loop=loop, seed=0, shards="", prior=PriorConfig(), folder=str(folder))


def _free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type(usage)(usage.total, usage.total - count, count))


_LOOPS = (
    *({"optimizer": OptimizerConfig(kind=kind)} for kind in OptimizerKind),
    *({"averaging": AveragingConfig(kind=kind, points=3, every=2)} for kind in AveragingKind),
)


@pytest.mark.parametrize("changes", _LOOPS, ids=lambda changes: "".join(f"{part.kind}" for part in changes.values()))
def test_a_checkpoint_is_hardly_smaller_than_what_is_asked_for(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    """With every average, once it has all of its points, and every optimizer."""
    job = _job(tmp_path)
    loop = dataclasses.replace(job.loop, **changes)
    job = dataclasses.replace(job, loop=loop)
    cpu = torch.device("cpu")
    state = fresh_state(job.network, loop.optimizer, seed=0, device=cpu, identity={}, averaging=loop.averaging)
    for number in range(1, 9):
        if state.average is not None:
            state.average.update(number)
    folder = save_state(job.checkpoints, state, validation={})
    written = sum(path.stat().st_size for path in folder.iterdir())
    assert most_bytes(job.network, job.loop) == 4 * checkpoint_bytes(state)
    assert written <= checkpoint_bytes(state) <= written + 2**20


def test_a_run_without_room_for_its_checkpoints_is_refused_with_both_numbers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: before anything is made, and counting what lies there already."""
    jobs = [_job(tmp_path / "run" / kind) for kind in ("a", "b")]
    needed = sum(most_bytes(job.network, job.loop) for job in jobs)
    _free(monkeypatch, needed)
    check_disk(jobs)
    _free(monkeypatch, needed - 1)
    with pytest.raises(Failure) as caught:
        check_disk(jobs)
    assert caught.value.code is ExitCode.DISK_FULL
    assert f"needs {needed} bytes" in caught.value.message and f"{needed - 1} bytes" in caught.value.message
    assert list(tmp_path.iterdir()) == []
    jobs[0].checkpoints.mkdir(parents=True)
    (jobs[0].checkpoints / "there").write_bytes(b"x")
    check_disk(jobs)
