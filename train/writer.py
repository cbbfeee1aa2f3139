"""What the first worker does for all of a training job: evaluation, records, checkpoints, events, early warning."""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from model import checkpoint
from tools import files
from train.early_warning import EarlyWarning, Warned
from train.evaluation import Evaluation
from train.events import TEXT, RunEvent, predecessors, told_beginning
from train.feed import Feed
from train.job import VALIDATION, TrainingJob, note_best, verified
from train.machine import Machine
from train.stages import place_of
from train.state import TrainState, checkpoint_bytes, save_state
from train.validation import loss_name

_VALID = "validation/"


class Writer:
    """The files of one job, written by one process.

    Args:
        job: whose.
        state: where training begins; what was recorded after it is dropped.
        feed: asked how long the loop waited.
    """

    def __init__(self, job: TrainingJob, state: TrainState, *, feed: Feed) -> None:
        self._job, self._feed = job, feed
        self._counted = state.tasks_seen  # up to the last record: the window over which its rate is
        self._looked: dict[str, float] = {}
        self._events = job.events()
        self._warning, self._stage = EarlyWarning(loss_name(job.network)), 0
        since = self._validated_alike_since()
        for record in _cut_records(job.metrics, state.step):  # told by the sitting that wrote it
            is_other = record["step"] <= since
            self._judge({name: value for name, value in record.items() if not (is_other and name.startswith(_VALID))})
        device, world_size = next(state.network.parameters()).device, state.numerics.get("num_workers", 1)
        self._tell_beginning(state, workers=world_size)
        self._evaluation = Evaluation(job, state.network, world_size=world_size, event=self.event)
        self._machine = Machine(device, folder=pathlib.Path(job.folder))

    def _validated_alike_since(self) -> int:
        """The last step whose validation had other tasks than it has now; -1 without one."""
        own = [event for event in self._events.read() if event.get("kind") == self._job.network.kind.value]
        accepted = [event for event in own if event["event"] == RunEvent.CHANGES_ACCEPTED]
        steps = [
            e["step"] for e in accepted if any(change.startswith(f"{VALIDATION}:") for change in e.get("changes", []))
        ]
        return max(steps, default=-1)

    def event(self, name: RunEvent, **facts: Any) -> None:
        """Appends to the events of the run what happened to this model."""
        self._events.write(name, kind=self._job.network.kind.value, **facts)

    def _tell_beginning(self, state: TrainState, *, workers: int) -> None:
        before = predecessors(self._events.read(), kind=self._job.network.kind.value)
        name, text = told_beginning(before, step=state.step, workers=workers)
        self.event(name, step=state.step, workers=workers, **{TEXT: text})

    def validate(self, state: TrainState) -> dict[str, float]:
        """Figures of the held-out tasks that choose the checkpoint; where a look is due, the next record gets it."""
        figures = self._evaluation.validate(state)
        self._looked = self._evaluation.look(state)
        return figures

    def record(self, record: dict[str, Any]) -> None:
        """Appends a record to the metrics file, with what was measured beside it, and warns where it must."""
        if "train/tasks_per_second" in record:
            seconds = (record["train/tasks_seen"] - self._counted) / record["train/tasks_per_second"]
            record = record | {"train/waiting_share": self._feed.seconds_waited() / seconds} | self._machine.sample()
            self._counted = record["train/tasks_seen"]
        record, self._looked = record | self._looked, {}
        files.append_json_line(self._job.metrics, record)
        for warned in self._judge(record):
            self._warn(warned)

    def _judge(self, record: Mapping[str, Any]) -> list[Warned]:
        stage = place_of(self._job.stages, max(0, record["step"] - 1))  # of the last step that it tells of
        if stage != self._stage:
            self._stage = stage
            self._warning.new_tasks()
        return self._warning.see(record)

    def _warn(self, warned: Warned) -> None:
        is_what = f"is above {warned.bound:.4g}" if math.isfinite(warned.value) else "is not finite"
        text = f"{warned.sign} {warned.value:.4g} at step {warned.step} {is_what}"
        facts = {"sign": warned.sign.value, "value": warned.value, "bound": warned.bound}
        self.event(RunEvent.EARLY_WARNING, step=warned.step, **facts, **{TEXT: text})

    def save(self, state: TrainState, figures: dict[str, float]) -> None:
        """Writes a checkpoint, notes the best one and removes old ones.

        Raises:
            Failure: DISK_FULL, before anything is written where the room is known to be too small; NOT_WRITABLE.
        """
        job, needed = self._job, checkpoint_bytes(state)
        files.check_room(job.checkpoints, needed=needed, what=f"the checkpoint of step {state.step}")
        save_state(job.checkpoints, state, validation=figures)
        whole = verified(job.checkpoints)
        best = note_best(job, whole=whole)
        checkpoint.prune(job.checkpoints, whole=whole, keep=job.loop.keep_checkpoints, protected={best})
        name = loss_name(job.network)
        self.event(RunEvent.CHECKPOINT_SAVED, step=state.step, bytes=needed, best=best, **{name: figures.get(name)})
        if state.step >= job.loop.num_steps:
            self.event(RunEvent.TRAINING_ENDED, step=state.step)
        self._feed.seconds_waited()
        self._counted = state.tasks_seen


def _cut_records(path: pathlib.Path, step: int) -> list[dict[str, Any]]:
    """Drops what a run recorded after the checkpoint from which it goes on; returns what stays."""
    kept = [record for record in files.read_json_lines(path) if 0 < record.get("step", math.inf) <= step]
    files.write_bytes(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
    return kept
