"""Tests of the room that a run asks for."""

import pathlib
import shutil

import pytest
import torch

from model.label_injection import LabelKind
from priors.mixture import PriorConfig
from tools.failure import ExitCode, Failure
from train.job import TrainingJob
from train.loop import LoopConfig
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


def test_a_checkpoint_is_hardly_smaller_than_what_is_asked_for(tmp_path: pathlib.Path) -> None:
    job = _job(tmp_path)
    optimizer = job.loop.optimizer
    state = fresh_state(job.network, optimizer, seed=0, device=torch.device("cpu"), identity={})
    folder = save_state(job.checkpoints, state, validation={})
    written = sum(path.stat().st_size for path in folder.iterdir())
    assert written <= checkpoint_bytes(state) <= written + 2**20
    assert most_bytes(job) == 4 * checkpoint_bytes(state)


def test_a_run_without_room_for_its_checkpoints_is_refused_with_both_numbers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: before anything is made, and counting what lies there already."""
    jobs = [_job(tmp_path / "run" / kind) for kind in ("a", "b")]
    needed = sum(most_bytes(job) for job in jobs)
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
