"""Tests of short trainings: what is made, and what of their records counts. Those on Ray: ray_cost_test.py."""

import pathlib
from typing import Any

import pytest

from bench import short_training
from bench.short_training import WINDOW, short_job, windows
from tools.files import append_json_line
from train.feed import TaskSource


def test_two_jobs_have_folders_of_their_own_and_the_same_shards(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(short_training, "ensure_shards", lambda config, **options: made.append(options))
    one, other = (short_job(tmp_path, name, num_steps=40, drawn_steps=2) for name in ("one", "other"))
    assert made[0] == made[1] and made[0]["num_tasks"] == 2 * one.loop.batch_size
    assert one.shards == other.shards == str(made[0]["out"]) and one.fresh is None
    assert pathlib.Path(one.folder).is_dir() and pathlib.Path(other.folder).is_dir() and one.folder != other.folder
    assert (one.loop.num_steps, one.loop.log_every, one.loop.checkpoint_every) == (40, WINDOW, 40)


def test_fresh_tasks_are_as_many_as_are_trained_on_and_leave_no_shards(tmp_path: pathlib.Path) -> None:
    job = short_job(tmp_path, "run", num_steps=20, source=TaskSource.FRESH)
    assert job.fresh is not None
    assert job.fresh.num_parts * job.fresh.config.tasks_per_part >= 20 * job.loop.batch_size
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_records_of_validation_are_no_windows(tmp_path: pathlib.Path) -> None:
    job = short_job(tmp_path, "run", num_steps=20, source=TaskSource.FRESH)
    for step in (10, 20):
        append_json_line(job.metrics, {"step": step, "train/tasks_per_second": 3.0})
    append_json_line(job.metrics, {"step": 20, "validation/nll": 0.5})
    assert [record["step"] for record in windows(job)] == [10, 20]
