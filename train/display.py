"""What is shown while models train: read off the records and events that the first worker writes, wherever it runs."""

import collections
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from priors.task import TaskKind
from tools import progress
from tools.spool import Tail
from train.early_warning import MovingAverage
from train.events import EVENTS, TOLD, sentence
from train.job import TrainingJob
from train.stages import place_of
from train.validation import loss_name

_RATE_RECORDS = 30


class TrainingDisplay:
    """Progress of all models of a run, as one bar or line.

    Args:
        jobs: the models in the order in which they are trained.
    """

    def __init__(self, jobs: Mapping[TaskKind, TrainingJob]) -> None:
        self._models = {kind: _Model(job) for kind, job in jobs.items()}
        folders = {pathlib.Path(job.folder).parent for job in jobs.values()}
        self._events = [Tail(folder / EVENTS) for folder in sorted(folders)]
        for tail in self._events:
            tail.skip()
        self._now: TaskKind | None = None
        self.refresh()
        self._now = None  # nothing trains yet in this sitting

    @property
    def total(self) -> int:
        """Steps of all models."""
        return sum(model.num_steps for model in self._models.values())

    @property
    def done(self) -> int:
        """Steps that were recorded."""
        return sum(model.step for model in self._models.values())

    def refresh(self) -> None:
        """Reads what is new, and says what somebody who watches should hear at once."""
        for kind, model in self._models.items():
            if model.read():
                self._now = kind
        for tail in self._events:
            for event in tail.read():
                if event.get("event") in TOLD:
                    progress.say(sentence(event))

    def note(self) -> str:
        """Model and stage, step, loss, validation, rate, waiting and, if any, skipped steps of what trains now."""
        if self._now is None:
            return "starting workers"
        place = f" ({list(self._models).index(self._now) + 1} of {len(self._models)})" if len(self._models) > 1 else ""
        return f"{self._now}{place} {self._models[self._now].note()}"

    def seconds_left(self) -> float | None:
        """Over all models, from the time that steps took; None while nothing was measured.

        Every model has its own rate: the median over its newest records, with what evaluation takes beside. One that
        has no record yet is counted with the time that a task takes in the others.
        """
        measured = {kind: model.seconds_per_task() for kind, model in self._models.items()}
        known = [seconds for seconds in measured.values() if seconds is not None]
        if not known:
            return None
        return sum(
            (measured[kind] or statistics.fmean(known)) * model.tasks_left() for kind, model in self._models.items()
        )


class _Model:
    """One model's records, as far as they are shown."""

    def __init__(self, job: TrainingJob) -> None:
        self._job, self._tail = job, Tail(job.metrics)
        self.num_steps = job.loop.num_steps
        self._validation_key = f"validation/{loss_name(job.network)}"
        self._forget()

    def _forget(self) -> None:
        self.step, self._loss_average = 0, MovingAverage()
        self._last: dict[str, float] = {}
        self._rates: collections.deque[float] = collections.deque(maxlen=_RATE_RECORDS)

    def read(self) -> bool:
        """Takes in new records; whether there were any."""
        restarts = self._tail.restarts
        rows = self._tail.read()
        if self._tail.restarts != restarts:  # a resume dropped what came after its checkpoint
            self._forget()
        for row in rows:
            self._take(row)
        return bool(rows)

    def _take(self, row: Mapping[str, Any]) -> None:
        self.step = max(self.step, int(row.get("step", 0)))
        self._last |= row
        if "train/loss" in row:
            self._last["loss"] = self._loss_average.add(row["train/loss"])
        if rate := row.get("train/tasks_per_second"):
            self._rates.append(rate)

    def note(self) -> str:
        last = self._last
        parts = [
            f"{self._stage()}step {self.step:,}/{self.num_steps:,}",
            _shown("loss {:.3f}", last.get("loss")),
            _shown("validation {:.3f}", last.get(self._validation_key)),
            progress.rate(last["train/tasks_per_second"], "tasks") if "train/tasks_per_second" in last else "",
            _shown("waits {:.0%}", last.get("train/waiting_share")),
            _shown("skipped {:,.0f}", last.get("train/skipped") or None),
        ]
        return " ".join(part for part in parts if part)

    def _stage(self) -> str:
        """Which stage of a curriculum the next step belongs to; nothing where there is one alone."""
        stages = self._job.stages
        return f"stage {place_of(stages, self.step) + 1}/{len(stages)} " if len(stages) > 1 else ""

    def seconds_per_task(self) -> float | None:
        if not self._rates:
            return None
        evaluation = min(self._last.get("train/evaluation_share", 0.0), 0.9)
        return 1 / statistics.median(self._rates) / (1 - evaluation)

    def tasks_left(self) -> int:
        return self._job.tasks_at(self.num_steps) - self._job.tasks_at(self.step)


def _shown(form: str, value: float | None) -> str:
    return "" if value is None else form.format(value)
