"""Tests of what is shown while models train."""

import pathlib

import pytest

from model.label_injection import LabelKind
from priors.mixture import PriorConfig
from priors.splits import SplitConfig
from priors.task import TaskKind
from tools.files import append_json_line
from train.display import TrainingDisplay
from train.events import RunEvent
from train.job import TrainingJob
from train.loop import LoopConfig
from train.stages import TrainingStage
from train.toy import small_network


def _jobs(
    root: pathlib.Path, *, later: tuple[TrainingStage, ...] = (), steps: int = 300
) -> dict[TaskKind, TrainingJob]:
    jobs = {}
    for kind, num_steps in ((TaskKind.CLASSIFICATION, 100), (TaskKind.REGRESSION, steps)):
        (root / kind).mkdir()
        jobs[kind] = TrainingJob(
            network=small_network(LabelKind(kind.value)),
            loop=LoopConfig(num_steps=num_steps, batch_size=10),
            seed=0,
            shards="",
            prior=PriorConfig(),
            folder=str(root / kind),
            later=later,
        )
    return jobs


def _record(job: TrainingJob, step: int, *, rate: float, loss: float = 1.0, **more: float) -> None:
    facts = {"train/tasks_per_second": rate, "train/loss": loss, "train/waiting_share": 0.02, "train/skipped": 0}
    append_json_line(job.metrics, {"step": step, **facts, **more})


def test_a_display_shows_model_step_average_loss_validation_rate_waiting_and_skips(tmp_path: pathlib.Path) -> None:
    jobs = _jobs(tmp_path)
    display = TrainingDisplay(jobs)
    assert (display.done, display.total, display.note()) == (0, 400, "starting workers")
    assert display.seconds_left() is None
    _record(jobs[TaskKind.CLASSIFICATION], 10, rate=50.0, loss=2.0)
    _record(jobs[TaskKind.CLASSIFICATION], 20, rate=50.0, loss=1.0)
    append_json_line(jobs[TaskKind.CLASSIFICATION].metrics, {"step": 20, "validation/nll": 0.625})
    display.refresh()
    assert display.done == 20
    average = (0.95 * 2 + 1) / 1.95
    assert display.note() == (
        f"classification (1 of 2) step 20/100 loss {average:.3f} validation 0.625 50.0 tasks/s waits 2%"
    )
    append_json_line(jobs[TaskKind.CLASSIFICATION].metrics, {"step": 20, "train/skipped": 1200})
    display.refresh()
    assert display.note().endswith("50.0 tasks/s waits 2% skipped 1,200")


def test_large_numbers_have_separators(tmp_path: pathlib.Path) -> None:
    jobs = _jobs(tmp_path, steps=32_768)
    display = TrainingDisplay(jobs)
    _record(jobs[TaskKind.REGRESSION], 12_345, rate=1234.5)
    display.refresh()
    assert display.note() == "regression (2 of 2) step 12,345/32,768 loss 1.000 1,234 tasks/s waits 2%"


def test_the_time_left_counts_each_model_by_its_own_measured_rate(tmp_path: pathlib.Path) -> None:
    jobs = _jobs(tmp_path)
    display = TrainingDisplay(jobs)
    for step in (10, 20, 30):
        _record(jobs[TaskKind.CLASSIFICATION], step, rate=50.0)
    display.refresh()
    assert display.seconds_left() == pytest.approx((70 + 300) * 10 / 50)  # the other one: as fast a task, for now
    append_json_line(jobs[TaskKind.CLASSIFICATION].metrics, {"step": 100, "train/evaluation_share": 0.2})
    for step in (10, 20, 30):
        _record(jobs[TaskKind.REGRESSION], step, rate=200.0)
    display.refresh()
    assert display.seconds_left() == pytest.approx(270 * 10 / 200)
    append_json_line(jobs[TaskKind.REGRESSION].metrics, {"step": 100, "train/evaluation_share": 0.2})
    display.refresh()
    assert display.seconds_left() == pytest.approx(200 * 10 / 200 / 0.8)


def test_what_an_earlier_sitting_measured_counts_and_what_a_resume_dropped_does_not(tmp_path: pathlib.Path) -> None:
    jobs = _jobs(tmp_path)
    job = jobs[TaskKind.CLASSIFICATION]
    for step in range(10, 70, 10):
        _record(job, step, rate=50.0)
    display = TrainingDisplay(jobs)
    assert display.done == 60 and display.note() == "starting workers"
    assert display.seconds_left() == pytest.approx((40 + 300) * 10 / 50)
    kept = job.metrics.read_text().splitlines(keepends=True)[:2]
    job.metrics.unlink()
    job.metrics.write_text("".join(kept))
    display.refresh()
    assert display.done == 20


def test_a_curriculum_shows_its_stage_and_counts_the_tasks_of_later_ones(tmp_path: pathlib.Path) -> None:
    later = TrainingStage(first_step=50, shards="", fresh=None, split=SplitConfig(), batch_size=5)
    jobs = _jobs(tmp_path, later=(later,))
    display = TrainingDisplay(jobs)
    _record(jobs[TaskKind.CLASSIFICATION], 40, rate=10.0)
    display.refresh()
    assert "stage 1/2 step 40/100" in display.note()
    assert display.seconds_left() == pytest.approx((10 * 10 + 50 * 5 + 50 * 10 + 250 * 5) / 10)
    _record(jobs[TaskKind.CLASSIFICATION], 50, rate=10.0)
    display.refresh()
    assert "stage 2/2 step 50/100" in display.note()


def test_what_workers_write_that_matters_is_said_once_and_old_events_are_not(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = _jobs(tmp_path)
    events = jobs[TaskKind.REGRESSION].events()
    events.write(RunEvent.EARLY_WARNING, kind="regression", text="of an earlier sitting")
    display = TrainingDisplay(jobs)
    events.write(RunEvent.CHECKPOINT_SAVED, kind="regression", step=10)
    events.write(RunEvent.EARLY_WARNING, kind="regression", text="loss 3 at step 7 is above 2")
    display.refresh()
    display.refresh()
    assert capsys.readouterr().err == "regression: early warning: loss 3 at step 7 is above 2\n"
