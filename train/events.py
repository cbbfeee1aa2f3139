"""What happened to a run, in order: one JSON line for each event in `runs/<name>/events.jsonl`.

The process that was started writes runs and stages; the first worker of a training writes what belongs to it, with the
`kind` of its model. Both only append. `time` is there for people: who reads events goes by the order of lines (T11).
"""

import datetime
import enum
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from tools import files

EVENTS = "events.jsonl"
"""The file's name in a run folder."""

TEXT = "text"
"""The fact that holds a sentence for people."""


class RunEvent(enum.StrEnum):
    """Names of events, in the field "event"; stages have `start`, `end` and `interrupted` there, see `train.run`."""

    RUN_STARTED = "run started"
    RUN_RESUMED = "run resumed"
    CHANGES_ACCEPTED = "config changes accepted"
    RUN_STOPPED = "run stopped"  # by a signal or a failure
    RUN_ENDED = "run ended"
    TRAINING_STARTED = "training started"
    TRAINING_RESUMED = "training resumed"
    RANKS_LOST = "ranks lost"  # what Ray says of workers that are gone
    WORKER_LOST = "worker lost"  # and training resumed by those that were started instead
    TRAINING_STOPPED = "training stopped"  # because somebody asked for it
    TRAINING_ENDED = "training ended"
    CURRICULUM_STAGE = "curriculum stage"
    STEP_SKIPPED = "step skipped"
    DIVERGED = "diverged"
    CHECKPOINT_SAVED = "checkpoint saved"
    EARLY_WARNING = "early warning"
    WATCH_FAILED = "watch failed"
    OVER_BUDGET = "evaluation over budget"


TOLD = frozenset(
    {
        RunEvent.TRAINING_RESUMED,
        RunEvent.RANKS_LOST,
        RunEvent.WORKER_LOST,
        RunEvent.CURRICULUM_STAGE,
        RunEvent.STEP_SKIPPED,
        RunEvent.EARLY_WARNING,
        RunEvent.WATCH_FAILED,
    }
)
"""What workers write and whoever watches is told at once."""

_RUN_BEGINS = (RunEvent.RUN_STARTED, RunEvent.RUN_RESUMED)
_TRAINING_BEGINS = (RunEvent.TRAINING_STARTED, RunEvent.TRAINING_RESUMED, RunEvent.WORKER_LOST)
_TRAINING_ENDS = (RunEvent.TRAINING_ENDED, RunEvent.TRAINING_STOPPED)


class EventLog:
    """Appends to the file, and reads it.

    Args:
        path: of the file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def write(self, event: str, **facts: Any) -> None:
        """One line, {"event": event, **facts, "time": UTC}, written at once."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        files.append_json_line(self._path, {"event": str(event), **facts, "time": now})

    def read(self) -> list[dict[str, Any]]:
        """All events in order."""
        return [event for event in files.read_json_lines(self._path) if isinstance(event.get("event"), str)]


def was_cut_short(events: Iterable[Mapping[str, Any]], *, kind: str) -> bool:
    """Whether the model of `kind` was being trained in this sitting of the run, and did not get to the end.

    Asked by a worker that begins: True means that others trained before it, and are gone without a stop.
    """
    under_way = False
    for event in events:
        if event["event"] in _RUN_BEGINS:
            under_way = False
        elif event.get("kind") == kind and event["event"] in _TRAINING_BEGINS:
            under_way = True
        elif event.get("kind") == kind and event["event"] in _TRAINING_ENDS:
            under_way = False
    return under_way


def sentence(event: Mapping[str, Any]) -> str:
    """One event as a line for people."""
    kind = f"{event['kind']}: " if "kind" in event else ""
    if TEXT in event:
        return f"{kind}{event['event']}: {event[TEXT]}"
    facts = [f"{name} {value}" for name, value in event.items() if name not in ("event", "kind", "time") and value]
    return f"{kind}{event['event']}" + (f" ({', '.join(facts)})" if facts else "")
