"""What happened to a run, in order: one JSON line for each event in `runs/<name>/events.jsonl`.

The process that was started writes runs and stages; the first worker of a training writes what belongs to it, with the
`kind` of its model. Both only append. `time` is there for people: who reads events goes by the order of lines (T11).
"""

import dataclasses
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
    """Names of events, in the field "event": no line of the file has another."""

    RUN_STARTED = "run started"
    """A process begins a run."""
    RUN_RESUMED = "run resumed"
    """A process goes on with a run that had begun."""
    CHANGES_ACCEPTED = "config changes accepted"
    """Config or data are others than before, with leave: of the run, or of what a model's checkpoints say."""
    RUN_STOPPED = "run stopped"
    """The process left before the end: on a signal, or because it failed."""
    RUN_ENDED = "run ended"
    """Everything is there, but for what the tracking store still has to get."""
    STAGE_STARTED = "start"
    """A stage of the job begins: generate, train, audit, score or report."""
    STAGE_ENDED = "end"
    """It did what it had to."""
    STAGE_INTERRUPTED = "interrupted"
    """It was left because somebody asked for it."""
    STAGE_FAILED = "failed"
    """It was left because of an error."""
    TRAINING_STARTED = "training started"
    """Workers train a model from nothing."""
    TRAINING_RESUMED = "training resumed"
    """Workers go on from a checkpoint of an earlier sitting."""
    RANKS_LOST = "ranks lost"
    """What Ray says of workers that are gone."""
    WORKER_LOST = "worker lost"
    """Workers go on in the place of others that are gone."""
    WORKERS_CHANGED = "workers changed"
    """Workers go on in the place of fewer, whom nothing befell: the cluster has room for more."""
    TRAINING_STOPPED = "training stopped"
    """Workers left after a checkpoint because somebody asked for it."""
    TRAINING_ENDED = "training ended"
    """The last step is done and saved."""
    CURRICULUM_STAGE = "curriculum stage"
    """The next tasks are those of a later stage of the curriculum."""
    STEP_SKIPPED = "step skipped"
    """A step changed no weight: its data or its numbers were of no use."""
    DIVERGED = "diverged"
    """Training ends because too many steps were skipped, or weights are not finite."""
    CHECKPOINT_SAVED = "checkpoint saved"
    """A checkpoint is whole and may be chosen."""
    EARLY_WARNING = "early warning"
    """A sign of a training that goes wrong; nothing is stopped for it."""
    WATCH_FAILED = "watch failed"
    """A look that chooses nothing could not be taken."""
    OVER_BUDGET = "evaluation over budget"
    """Validation and looks take more of the time than they may; told once a sitting."""


TOLD = frozenset(
    {
        RunEvent.TRAINING_RESUMED,
        RunEvent.RANKS_LOST,
        RunEvent.WORKER_LOST,
        RunEvent.WORKERS_CHANGED,
        RunEvent.CURRICULUM_STAGE,
        RunEvent.STEP_SKIPPED,
        RunEvent.EARLY_WARNING,
        RunEvent.WATCH_FAILED,
    }
)
"""What workers write and whoever watches is told at once."""

_RUN_BEGINS = (RunEvent.RUN_STARTED, RunEvent.RUN_RESUMED)
_TRAINING_BEGINS = (
    RunEvent.TRAINING_STARTED,
    RunEvent.TRAINING_RESUMED,
    RunEvent.WORKER_LOST,
    RunEvent.WORKERS_CHANGED,
)
_TRAINING_ENDS = (RunEvent.TRAINING_ENDED, RunEvent.TRAINING_STOPPED)


class EventLog:
    """Appends to the file, and reads it.

    Args:
        path: of the file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def write(self, event: RunEvent, **facts: Any) -> None:
        """One line, {"event": event, **facts, "time": UTC}, written at once.

        Raises:
            ValueError: for a name that is no `RunEvent`.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        files.append_json_line(self._path, {"event": RunEvent(event).value, **facts, "time": now})

    def read(self) -> list[dict[str, Any]]:
        """All events in order."""
        return [event for event in files.read_json_lines(self._path) if isinstance(event.get("event"), str)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predecessors:
    """Workers that trained a model in this sitting of the run, and are gone without an end or a stop.

    Args:
        workers: how many.
        were_lost: whether Ray told of a loss among them.
    """

    workers: int
    were_lost: bool = False


def predecessors(events: Iterable[Mapping[str, Any]], *, kind: str) -> Predecessors | None:
    """Those whose place a worker takes that begins to train the model of `kind`; None where it takes nobody's."""
    found = None
    for event in events:
        name = event["event"]
        if name in _RUN_BEGINS or (name in _TRAINING_ENDS and event.get("kind") == kind):
            found = None
        elif name in _TRAINING_BEGINS and event.get("kind") == kind:
            found = Predecessors(workers=event.get("workers", 0))
        elif name == RunEvent.RANKS_LOST and found is not None:
            found = dataclasses.replace(found, were_lost=True)
    return found


def told_beginning(before: Predecessors | None, *, step: int, workers: int) -> tuple[RunEvent, str]:
    """How `workers` that begin at `step` are told of: the event's name, and a sentence.

    An elastic group is ended and started anew to take in further nodes. Where there are more workers than before and
    Ray told of no loss, that is what happened.
    """
    noun = "worker" if workers == 1 else "workers"
    if before is None:
        name = RunEvent.TRAINING_RESUMED if step else RunEvent.TRAINING_STARTED
        return name, f"from step {step} with {workers} {noun}"
    if 0 < before.workers < workers and not before.were_lost:
        return RunEvent.WORKERS_CHANGED, f"from {before.workers} to {workers}, resumed from step {step}"
    return RunEvent.WORKER_LOST, f"resumed from step {step} with {workers} {noun}"


def sentence(event: Mapping[str, Any]) -> str:
    """One event as a line for people."""
    kind = f"{event['kind']}: " if "kind" in event else ""
    if TEXT in event:
        return f"{kind}{event['event']}: {event[TEXT]}"
    facts = [f"{name} {value}" for name, value in event.items() if name not in ("event", "kind", "time") and value]
    return f"{kind}{event['event']}" + (f" ({', '.join(facts)})" if facts else "")
