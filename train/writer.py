"""What the first worker does for all of a training job: validation, records and checkpoints."""

import json
import pathlib
from typing import Any

from model import checkpoint
from priors.generation import held_out_episodes
from tools import files
from train.feed import Feed
from train.job import TrainingJob, note_best
from train.state import TrainState, save_state
from train.validation import same_shape_batches, validation_figures

VALIDATION_SEED = 1  # of the held-out tasks that choose the checkpoint; those that report have other seeds


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
        self._batches = same_shape_batches(
            held_out_episodes(job.prior, seed=VALIDATION_SEED, count=job.num_validation_tasks)
        )
        _cut_records(job.metrics, state.step)

    def validate(self, state: TrainState) -> dict[str, float]:
        """Figures of the held-out tasks that choose the checkpoint."""
        return validation_figures(state.network, self._batches)

    def record(self, record: dict[str, Any]) -> None:
        """Appends a record to the metrics file."""
        if "train/tasks_per_second" in record:
            seconds = (record["train/tasks_seen"] - self._counted) / record["train/tasks_per_second"]
            record = record | {"train/waiting_share": self._feed.seconds_waited() / seconds}
            self._counted = record["train/tasks_seen"]
        files.append_json_line(self._job.metrics, record)

    def save(self, state: TrainState, figures: dict[str, float]) -> None:
        """Writes a checkpoint, notes the best one and removes old ones."""
        save_state(self._job.checkpoints, state, validation=figures)
        best = note_best(self._job)
        checkpoint.prune(self._job.checkpoints, keep=self._job.loop.keep_checkpoints, protected={best})
        self._feed.seconds_waited()
        self._counted = state.tasks_seen


def _cut_records(path: pathlib.Path, step: int) -> None:
    """Drops what a run recorded after the checkpoint from which it goes on."""
    kept = [record for record in files.read_json_lines(path) if record["step"] <= step and step > 0]
    files.write_bytes(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
