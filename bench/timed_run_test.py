"""Tests of a training under a stopwatch."""

import dataclasses
import pathlib

import pytest

from bench.timed_run import Runner, progress_of, seconds_since_start, shortened, timed_run
from model.checkpoint import load_checkpoint
from priors.task import TaskKind
from tools.files import read_json_lines
from train.toy_job import toy_pretraining


def test_seconds_and_tasks_of_steps_follow_the_records() -> None:
    """Batches of 10 at 10 tasks a second, then batches of 20 at 5, and one step after the last record."""
    records = [
        {"step": 2, "train/tasks_per_second": 10.0, "train/tasks_seen": 20},
        {"step": 4, "train/tasks_per_second": 5.0, "train/tasks_seen": 60},
    ]
    found = progress_of(records, num_steps=5)
    assert found.seconds.tolist() == [0, 1, 2, 6, 10, 14]
    assert found.tasks.tolist() == [0, 10, 20, 40, 60, 80]


def test_every_checkpoint_is_kept_with_the_seconds_at_which_it_stood(tmp_path: pathlib.Path) -> None:
    run = timed_run(toy_pretraining(), num_steps=10, every=4, folder=tmp_path / "a", runner=Runner.BARE, program=100.0)
    assert [kept.step for kept in run.checkpoints] == [4, 8, 10]
    assert [kept.tasks for kept in run.checkpoints] == [32, 64, 80]
    assert [load_checkpoint(pathlib.Path(kept.folder)).step for kept in run.checkpoints] == [4, 8, 10]
    phases = run.seconds
    assert list(phases) == ["program", "shards", "workers", "steps", "left_out"]
    assert all(value > 0 for value in phases.values())
    before = phases["program"] + phases["shards"] + phases["workers"]
    assert phases["program"] == 100 and run.workers == 1
    assert run.checkpoints[-1].seconds == pytest.approx(before + phases["steps"])
    logged = {r["step"]: r["train/tasks_per_second"] for r in read_json_lines(run.job.metrics) if "train/loss" in r}
    assert list(logged) == [2, 4, 6, 8, 10]  # the preset's ten would span two checkpoints
    assert run.checkpoints[0].seconds == pytest.approx(before + 16 / logged[2] + 16 / logged[4])


def test_all_tasks_are_seen_once_and_the_schedule_ends_with_the_run(tmp_path: pathlib.Path) -> None:
    """A curriculum of two stages: shards of each, as many tasks as its steps take."""
    config = toy_pretraining()
    later = dataclasses.replace(config.stages(TaskKind.CLASSIFICATION)[0], begins=0.5, batch_size=4)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, later=(later,)))
    run = timed_run(config, num_steps=4, every=9, folder=tmp_path / "a", runner=Runner.BARE, program=0.0)
    assert run.job.loop.num_steps == run.job.loop.checkpoint_every == 4
    assert [stage.first_step for stage in run.job.stages] == [0, 2]
    assert run.checkpoints[-1].tasks == 2 * 8 + 2 * 4
    short = shortened(config, num_steps=4, every=9)
    assert [stage.num_tasks for stage in short.stages(TaskKind.CLASSIFICATION)] == [16, 8]


def test_a_process_knows_how_long_it_has_run() -> None:
    first = seconds_since_start()
    assert 0 < first <= seconds_since_start() < 24 * 3600
