"""Tests of the events of a run."""

import json
import pathlib
from typing import Any

import pytest

from train.events import EventLog, Predecessors, RunEvent, predecessors, sentence, told_beginning


def test_events_are_read_in_the_order_in_which_they_were_written_whatever_the_clock_says(
    tmp_path: pathlib.Path,
) -> None:
    """T11: order by line; `time` is for people."""
    log = EventLog(tmp_path / "events.jsonl")
    assert log.read() == []
    log.write(RunEvent.RUN_STARTED, pid=1)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "from tomorrow", "time": "2999-01-01"}\n{"event": "cut sho')
    log.write(RunEvent.RUN_ENDED)
    assert [event["event"] for event in log.read()] == ["run started", "from tomorrow", "run ended"]
    first = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[0])
    assert set(first) == {"event", "pid", "time"}


def test_an_event_has_a_name_of_the_list_and_none_other_is_written(tmp_path: pathlib.Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="'worker gone' is not a valid RunEvent"):
        log.write("worker gone")
    for event in RunEvent:
        log.write(event)
    assert [found["event"] for found in log.read()] == [event.value for event in RunEvent]


def _events(*names: str, workers: int = 2) -> list[dict[str, Any]]:
    return [{"event": name, "kind": "regression", "workers": workers} for name in names]


def test_a_training_that_neither_ended_nor_stopped_in_this_sitting_of_the_run_has_successors() -> None:
    begun = _events(RunEvent.RUN_STARTED, RunEvent.TRAINING_STARTED, RunEvent.CHECKPOINT_SAVED)
    assert predecessors(begun, kind="regression") == Predecessors(workers=2)
    assert predecessors(begun, kind="classification") is None
    for end in (RunEvent.TRAINING_ENDED, RunEvent.TRAINING_STOPPED):
        assert predecessors([*begun, *_events(end)], kind="regression") is None
    assert predecessors([*begun, *_events(RunEvent.RUN_RESUMED)], kind="regression") is None
    for name in (RunEvent.TRAINING_RESUMED, RunEvent.WORKER_LOST, RunEvent.WORKERS_CHANGED):
        after = [*begun, *_events(RunEvent.RUN_RESUMED), *_events(name, workers=3)]
        assert predecessors(after, kind="regression") == Predecessors(workers=3)
    lost = [*begun, {"event": RunEvent.RANKS_LOST.value, "ranks": [1]}]
    assert predecessors(lost, kind="regression") == Predecessors(workers=2, were_lost=True)
    again = [*lost, *_events(RunEvent.WORKER_LOST, workers=1)]
    assert predecessors(again, kind="regression") == Predecessors(workers=1)


@pytest.mark.parametrize(
    ("before", "name", "text"),
    [
        (None, RunEvent.TRAINING_RESUMED, "from step 40 with 2 workers"),
        (Predecessors(workers=1), RunEvent.WORKERS_CHANGED, "from 1 to 2, resumed from step 40"),
        (Predecessors(workers=1, were_lost=True), RunEvent.WORKER_LOST, "resumed from step 40 with 2 workers"),
        (Predecessors(workers=2), RunEvent.WORKER_LOST, "resumed from step 40 with 2 workers"),
        (Predecessors(workers=3), RunEvent.WORKER_LOST, "resumed from step 40 with 2 workers"),
        (Predecessors(workers=0), RunEvent.WORKER_LOST, "resumed from step 40 with 2 workers"),
    ],
)
def test_a_group_that_grows_is_told_apart_from_one_that_lost_a_worker(
    before: Predecessors | None, name: RunEvent, text: str
) -> None:
    """T4: Ray ends an elastic group to start a larger one; nobody was lost."""
    assert told_beginning(before, step=40, workers=2) == (name, text)
    assert told_beginning(None, step=0, workers=1) == (RunEvent.TRAINING_STARTED, "from step 0 with 1 worker")


def test_a_sentence_says_what_happened_to_whom() -> None:
    told = {"event": "worker lost", "kind": "regression", "step": 4, "text": "resumed from step 4", "time": "x"}
    assert sentence(told) == "regression: worker lost: resumed from step 4"
    skipped = {"event": "step skipped", "step": 7, "reason": "loss", "detail": "", "time": "x"}
    assert sentence(skipped) == "step skipped (step 7, reason loss)"
