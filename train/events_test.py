"""Tests of the events of a run."""

import json
import pathlib

from train.events import EventLog, RunEvent, sentence, was_cut_short


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


def _events(*names: str) -> list[dict[str, str]]:
    return [{"event": name, "kind": "regression"} for name in names]


def test_a_training_that_neither_ended_nor_stopped_in_this_sitting_of_the_run_was_cut_short() -> None:
    begun = _events(RunEvent.RUN_STARTED, RunEvent.TRAINING_STARTED, RunEvent.CHECKPOINT_SAVED)
    assert was_cut_short(begun, kind="regression")
    assert not was_cut_short(begun, kind="classification")
    for end in (RunEvent.TRAINING_ENDED, RunEvent.TRAINING_STOPPED):
        assert not was_cut_short([*begun, *_events(end)], kind="regression")
    assert not was_cut_short([*begun, *_events(RunEvent.RUN_RESUMED)], kind="regression")
    assert was_cut_short([*begun, *_events(RunEvent.RUN_RESUMED, RunEvent.WORKER_LOST)], kind="regression")


def test_a_sentence_says_what_happened_to_whom() -> None:
    told = {"event": "worker lost", "kind": "regression", "step": 4, "text": "resumed from step 4", "time": "x"}
    assert sentence(told) == "regression: worker lost: resumed from step 4"
    skipped = {"event": "step skipped", "step": 7, "reason": "loss", "detail": "", "time": "x"}
    assert sentence(skipped) == "step skipped (step 7, reason loss)"
