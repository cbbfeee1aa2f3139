"""Tests of tools/progress.py."""

import sys
import time

import pytest

from tools import progress


class _Clock:
    """A time source that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Stands in for time.monotonic."""
    source = _Clock()
    monkeypatch.setattr(time, "monotonic", source)
    return source


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.meter("train", total=100, unit="steps") as meter:
        for done in range(1, 101):
            clock.now += 0.25
            meter(done, "loss 1.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "train: 40/100 loss 1.5 4.0 steps/s, 15 s left",
        "train: 80/100 loss 1.5 4.0 steps/s, 5 s left",
        "train: 100/100 loss 1.5 4.0 steps/s, 0 s left",
    ]


def test_work_without_progress_has_no_end_in_sight(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("train", total=10, unit="steps") as meter:
        clock.now += 11
        meter(0)
    assert capsys.readouterr().err == "train: 0/10 0 steps/s, time left unknown\n"


def test_what_was_done_before_says_nothing_about_the_rate(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("train", total=100, unit="steps", done=50) as meter:
        clock.now += 10
        meter(60)
    assert capsys.readouterr().err == "train: 60/100 1.0 steps/s, 40 s left\n"


def test_a_terminal_gets_a_bar_with_the_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.meter("train", total=4, unit="steps") as meter:
        for done in range(1, 5):
            meter(done, f"loss {done}")
    shown = capsys.readouterr().err
    assert "train" in shown and "4/4" in shown and "loss 4" in shown


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_the_lines_of_a_log(
    term: str, clock: _Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", term)
    with progress.meter("train", total=100, unit="steps") as meter:
        for done in range(1, 61):
            clock.now += 0.5
            meter(done, "loss 1.5")
    assert capsys.readouterr().err.splitlines() == [
        "train: 20/100 loss 1.5 2.0 steps/s, 40 s left",
        "train: 40/100 loss 1.5 2.0 steps/s, 30 s left",
        "train: 60/100 loss 1.5 2.0 steps/s, 20 s left",
    ]


def test_large_numbers_have_separators_in_a_log(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("classification shards", total=1_908_416, unit="tasks") as meter:
        clock.now += 10
        meter(12_345)
    said = capsys.readouterr().err
    assert said == "classification shards: 12,345/1,908,416 1,234 tasks/s, 26 min left\n"


def test_large_numbers_have_separators_in_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.meter("shards", total=1_908_416, unit="tasks") as meter:
        meter(12_345)
    assert "12,345/1,908,416" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0, "0 s/s"),
        (0.0123, "0.012 s/s"),
        (0.5, "0.5 s/s"),
        (1, "1.0 s/s"),
        (56.72, "56.7 s/s"),
        (12345.6, "12,346 s/s"),
    ],
)
def test_rates_have_the_digits_that_say_something(per_second: float, text: str) -> None:
    assert progress.rate(per_second, "s") == text


def test_whoever_knows_the_time_left_says_it(clock: _Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("train", total=100, unit="steps") as meter:
        clock.now += 10
        meter(10, seconds_left=5400.0)
    assert capsys.readouterr().err == "train: 10/100 1.0 steps/s, 90 min left\n"


def test_the_end_is_shown_once_and_what_comes_after_it_every_ten_seconds(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.meter("train", total=4, unit="steps") as meter:
        for _ in range(30):
            clock.now += 0.5
            meter(4)
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (121, "2 min"), (7100, "118 min"), (12_000, "3 h 20 min")]
)
def test_times_are_said_as_people_do(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
