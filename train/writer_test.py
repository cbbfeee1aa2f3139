"""Tests of what the first worker writes: events, records, looks, warnings, and checkpoints only where there is room."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from model import checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from tools.files import append_json_line, read_json_lines
from train.events import RunEvent
from train.feed import Feed
from train.job import Place, TrainingJob, verified
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.sitting import run_job
from train.state import fresh_state
from train.toy import toy_batch
from train.toy_job import BATCH_SIZE, toy_job, toy_shards
from train.writer import Writer

_ALWAYS = WatchConfig(budget_share=0.99, num_regret_tasks=1, num_tables=1, max_rows=32)
_NEVER = WatchConfig(budget_share=0.0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_shards(tmp_path_factory.mktemp("shards"))


def _job(shards: str, folder: pathlib.Path, *, watch: WatchConfig = _NEVER, num_steps: int = 6) -> TrainingJob:
    loop = LoopConfig(num_steps=num_steps, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=2)
    job = toy_job(shards, folder, loop=loop)
    return dataclasses.replace(job, network=dataclasses.replace(job.network, max_features=40), watch=watch)


def _events(job: TrainingJob) -> list[tuple[str, int]]:
    return [(event["event"], event["step"]) for event in job.events().read()]


def _after(calls: int, act: Callable[[], bool]) -> Callable[[], bool]:
    """Asked in every step: False for so many times, then what `act` does."""
    count = iter(range(1, 10**6))
    return lambda: act() if next(count) > calls else False


def _die() -> bool:
    raise RuntimeError("the node went away")


def test_events_tell_a_training_in_order(shards: str, tmp_path: pathlib.Path) -> None:
    job = _job(shards, tmp_path / "run", num_steps=4)
    run_job(job, Place())
    saved = RunEvent.CHECKPOINT_SAVED
    assert _events(job) == [("training started", 0), (saved, 2), (saved, 4), ("training ended", 4)]
    last = job.events().read()[-2]
    nll = read_json_lines(job.metrics)[-1]["validation/nll"]
    assert last["kind"] == "classification" and last["nll"] == nll and last["bytes"] > 10_000


def test_a_stop_and_the_loss_of_a_worker_are_told_apart(shards: str, tmp_path: pathlib.Path) -> None:
    """T4, T6: whoever comes after a worker that died says so, and from where training goes on."""
    job = _job(shards, tmp_path / "run")
    with pytest.raises(Failure):
        run_job(job, Place(), should_stop=_after(2, lambda: True))
    with pytest.raises(RuntimeError):
        run_job(job, Place(), should_stop=_after(2, _die))
    run_job(job, Place())
    begun = [found for found in _events(job) if found[0] not in (RunEvent.CHECKPOINT_SAVED,)]
    assert begun == [
        ("training started", 0),
        ("training stopped", 3),
        ("training resumed", 3),
        ("worker lost", 4),
        ("training ended", 6),
    ]
    (lost,) = [event for event in job.events().read() if event["event"] == RunEvent.WORKER_LOST]
    assert lost["text"] == "resumed from step 4 with 1 worker"


def test_a_group_that_grows_is_no_loss_and_one_that_lost_a_worker_is(shards: str, tmp_path: pathlib.Path) -> None:
    """T4: Ray tells of a loss before it starts workers again; it says nothing where it makes room for more."""
    job = _job(shards, tmp_path / "run" / "classification")
    _writer(job, step=0, workers=1)
    _writer(job, step=2, workers=2)
    job.events().write(RunEvent.RANKS_LOST, ranks=[1], cause="a node went away")
    _writer(job, step=4, workers=3)
    told = [(event["event"], event.get("text"), event.get("workers")) for event in job.events().read()]
    assert told == [
        ("training started", "from step 0 with 1 worker", 1),
        ("workers changed", "from 1 to 2, resumed from step 2", 2),
        ("ranks lost", None, None),
        ("worker lost", "resumed from step 4 with 3 workers", 3),
    ]


def test_damaged_newer_checkpoints_push_out_nothing_that_is_saved_below_them(
    shards: str, tmp_path: pathlib.Path
) -> None:
    """T4: a further loss costs one interval at most, and the training ends in the bits of one without any damage."""
    whole, hurt = (_job(shards, tmp_path / name, num_steps=8) for name in ("whole", "hurt"))
    run_job(whole, Place())
    with pytest.raises(RuntimeError):
        run_job(hurt, Place(), should_stop=_after(2, _die))
    for step in (6, 8):
        (hurt.checkpoints / f"step-{step:08d}").mkdir()
    with pytest.raises(RuntimeError):
        run_job(hurt, Place(), should_stop=_after(2, _die))
    assert [checkpoint.step_of(folder) for folder in verified(hurt.checkpoints)] == [2, 4]
    run_job(hurt, Place())
    assert hurt.is_complete() and _weights(hurt) == _weights(whole)
    assert {path.name for path in hurt.checkpoints.iterdir()} == {path.name for path in whole.checkpoints.iterdir()}


def test_looks_are_recorded_and_choose_and_change_nothing(shards: str, tmp_path: pathlib.Path) -> None:
    """Same steps looked at however the training is cut; weights, validation and the best step as without any look."""
    plain, watched, cut = (
        _job(shards, tmp_path / name, watch=watch)
        for name, watch in (("plain", _NEVER), ("watched", _ALWAYS), ("cut", _ALWAYS))
    )
    run_job(plain, Place())
    run_job(watched, Place())
    with pytest.raises(RuntimeError):
        run_job(cut, Place(), should_stop=_after(3, _die))
    run_job(cut, Place())
    looks = [{r["step"]: r["watch/regret"] for r in _records(job, "watch/regret")} for job in (watched, cut)]
    assert set(looks[0]) and looks[0] == looks[1]
    assert _records(watched, "watch/tables/auc_ovo") and not _records(plain, "watch/regret")
    for job in (watched, cut):
        assert _figures(job, "validation/nll") == _figures(plain, "validation/nll")
        assert _best(job) == _best(plain) and _weights(job) == _weights(plain)


def _best(job: TrainingJob) -> bytes:
    return (pathlib.Path(job.folder) / "best.json").read_bytes()


def _records(job: TrainingJob, name: str) -> list[dict[str, Any]]:
    return [record for record in read_json_lines(job.metrics) if name in record]


def _figures(job: TrainingJob, name: str) -> dict[int, float]:
    return {record["step"]: record[name] for record in _records(job, name)}


def _weights(job: TrainingJob) -> str:
    return checkpoint.load_checkpoint(checkpoint.newest_verified(job.checkpoints)).weights_sha256


def test_the_share_of_evaluation_is_measured_and_told_once_where_it_is_too_large(
    shards: str, tmp_path: pathlib.Path
) -> None:
    watch = dataclasses.replace(_ALWAYS, budget_share=1e-6)
    job = _job(shards, tmp_path / "run", watch=watch, num_steps=8)
    run_job(job, Place())
    shares = _figures(job, "train/evaluation_share")
    assert list(shares) == [2, 4, 6, 8] and all(0 < share < 1 for share in shares.values())
    (told,) = [event for event in job.events().read() if event["event"] == RunEvent.OVER_BUDGET]
    assert told["step"] == 6 and told["text"].endswith(": raise --classification.loop.checkpoint-every")
    assert not _records(job, "watch/regret")


def test_what_cannot_be_watched_stops_no_training(shards: str, tmp_path: pathlib.Path) -> None:
    job = _job(shards, tmp_path / "run", watch=_ALWAYS, num_steps=4)
    job = dataclasses.replace(job, tables=str(tmp_path / "on another node"))
    run_job(job, Place())
    assert job.is_complete() and _records(job, "watch/regret")
    (failed,) = [event for event in job.events().read() if event["event"] == RunEvent.WATCH_FAILED]
    assert "on another node" in failed["text"]


def test_a_checkpoint_without_room_is_refused_with_both_numbers_and_leaves_nothing(
    shards: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: nothing half-committed; the run goes on once there is room."""
    job = _job(shards, tmp_path / "run")
    usage = shutil.disk_usage(tmp_path)
    rooms = iter([usage.free, 1000])
    with monkeypatch.context() as patched, pytest.raises(Failure) as caught:
        patched.setattr(shutil, "disk_usage", lambda path: type(usage)(usage.total, 0, next(rooms)))
        run_job(job, Place())
    (saved,) = [event for event in job.events().read() if event["event"] == RunEvent.CHECKPOINT_SAVED]
    assert caught.value.code is ExitCode.DISK_FULL
    assert f"{saved['bytes']} bytes" in caught.value.message and "1000 bytes" in caught.value.message
    assert "step 4" in caught.value.message
    assert [path.name for path in job.checkpoints.iterdir()] == ["step-00000002"]
    run_job(job, Place())
    assert job.is_complete()


def _writer(job: TrainingJob, *, step: int, workers: int = 1) -> Writer:
    state = fresh_state(job.network, job.loop.optimizer, seed=0, device=torch.device("cpu"), identity={})
    state.step, state.numerics = step, {"num_workers": workers}
    return Writer(job, state, feed=Feed(batch=lambda step: toy_batch(TaskKind.CLASSIFICATION)))


def test_an_early_warning_is_told_once_also_by_whoever_goes_on(shards: str, tmp_path: pathlib.Path) -> None:
    job = _job(shards, tmp_path / "run")
    losses = 0.6 + 0.01 * np.random.default_rng(0).normal(size=80)
    losses[60:] += 1.0
    for first, end in ((0, 60), (60, 70), (70, 80)):  # a sitting knows what was best, and what was told, before it
        writer = _writer(job, step=first)
        for number, loss in enumerate(losses[first:end], start=first + 1):
            writer.record({"step": number, "train/loss": float(loss)})
    (warned,) = [event for event in job.events().read() if event["event"] == RunEvent.EARLY_WARNING]
    assert warned["sign"] == "loss" and 61 <= warned["step"] < 65 and warned["value"] > warned["bound"]


def test_records_after_the_checkpoint_are_dropped_and_a_torn_line_with_them(
    shards: str, tmp_path: pathlib.Path
) -> None:
    job = _job(shards, tmp_path / "run")
    for step in range(1, 6):
        append_json_line(job.metrics, {"step": step})
    with job.metrics.open("a") as file:
        file.write('{"step": 3, "tra')
    _writer(job, step=3)
    assert [json.loads(line)["step"] for line in job.metrics.read_text().splitlines()] == [1, 2, 3]


def test_records_of_other_validation_tasks_are_no_measure_for_those_of_today(
    shards: str, tmp_path: pathlib.Path
) -> None:
    """T3: a sitting with other validation tasks, and each one after it, warns against its own best figure alone."""
    job = _job(shards, tmp_path / "run", num_steps=2)
    run_job(job, Place())
    (found,) = _figures(job, "validation/nll").values()
    job.metrics.write_text(job.metrics.read_text().replace(str(found), str(found - 9)))
    for steps in (6, 10):
        longer = dataclasses.replace(job.loop, num_steps=steps)
        other = dataclasses.replace(job, loop=longer, num_validation_tasks=9, accept_changes=True)
        run_job(other, Place())
    assert list(_figures(job, "validation/nll")) == [2, 4, 6, 8, 10]
    assert min(_figures(job, "validation/nll").values()) == found - 9
    assert RunEvent.EARLY_WARNING not in [name for name, _ in _events(job)]
