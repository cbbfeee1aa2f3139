"""A clock that jumps by a day, forth and back, at every reading: what is written is the same, and in the same order."""

import os
import pathlib
import random
import time
from typing import Any
from unittest import mock

import pytest

from model import checkpoint
from tools import files, tracking
from tools.tracking import Tracker
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.toy_job import BATCH_SIZE, newest_step, outcome, sit, toy_job, toy_shards

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow

_DAY = 86400


def _jumping_clock(seed: int) -> Any:
    """Replaces `time.time`: every reading is true, a day early or a day late."""
    generator, now = random.Random(seed), time.time
    return mock.patch.object(time, "time", lambda: now() + generator.choice((-_DAY, 0, _DAY)))


def _sit_with_jumps(place: Place, job: TrainingJob, cut: int | None, seed: int) -> float:
    """A sitting under such a clock; returns how far it was seen to run backwards, in seconds."""
    with _jumping_clock(seed):
        readings = [time.time() for _ in range(20)]
        sit(place, job, cut)
    return max(before - after for before, after in zip(readings, readings[1:], strict=False))


def _told(job: TrainingJob) -> list[tuple[str, Any]]:
    events = files.read_json_lines(pathlib.Path(job.folder).parent / "events.jsonl")
    return [(event["event"], event.get("step")) for event in events]


def _recorded(job: TrainingJob) -> list[tuple[int, list[str]]]:
    return [(record["step"], sorted(record)) for record in files.read_json_lines(job.metrics)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_clock_that_jumps_changes_no_byte_and_no_order(tmp_path: pathlib.Path, workers: int) -> None:
    """T11: checkpoints, resumption, records and events, of a training that is cut twice while the clock jumps ±1 day.

    Between two sittings the files' own times are turned upside down as well.
    """
    shards = toy_shards(tmp_path / "shards")
    loop = LoopConfig(num_steps=9, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=3)
    steady, jumping = (toy_job(shards, tmp_path / name, loop=loop) for name in ("steady", "jumping"))
    for number, cut in enumerate((4, 3, None)):
        run_world(sit, steady, cut, size=workers)
        assert min(run_world(_sit_with_jumps, jumping, cut, number, size=workers)) > _DAY / 2
        assert newest_step(jumping) == newest_step(steady) == (4, 7, 9)[number]
        for age, folder in enumerate(checkpoint.step_folders(jumping.checkpoints)):
            for path in [folder, *folder.iterdir()]:
                os.utime(path, (2e9 - age * _DAY,) * 2)  # the newest step seems the oldest
    assert outcome(jumping) == outcome(steady)
    assert _told(jumping) == _told(steady) and _recorded(jumping) == _recorded(steady)
    best = [(pathlib.Path(job.folder) / "best.json").read_bytes() for job in (steady, jumping)]
    assert best[0] == best[1]


def test_a_store_takes_metrics_by_step_while_the_clock_jumps(tmp_path: pathlib.Path) -> None:
    """T11: a resumed run's later steps count as later, although its clock stands a day before the first sitting's."""
    metrics = tmp_path / "tiny" / "metrics.jsonl"
    metrics.parent.mkdir()
    run_id = ""
    for sitting, offset in enumerate((0, -_DAY, _DAY)):
        for step in range(10 * sitting + 1, 10 * sitting + 11):
            files.append_json_line(metrics, {"step": step, "loss": 1 / step})
        now = time.time
        with mock.patch.object(time, "time", lambda now=now, offset=offset: now() + offset):
            tracker = Tracker.open(uri=None, root=tmp_path, experiment="veritab", run_name="tiny")
            tracker.replay(metrics)
            assert tracker.close() == 0
        run_id = tracker.run_id
    client: Any = tracking.load_mlflow().MlflowClient(tracking.database_uri(tmp_path))
    history = client.get_metric_history(run_id, "loss")
    assert [point.step for point in sorted(history, key=lambda point: point.timestamp)] == list(range(1, 31))
    assert client.get_run(run_id).data.metrics["loss"] == 1 / 30
