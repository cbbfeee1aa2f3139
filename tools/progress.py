"""Progress displays: a bar with rate and time left on a terminal, a plain line now and then in a log."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich import console, progress

_LOG_INTERVAL_SECONDS = 10.0


class Meter(Protocol):
    """What work reports to."""

    def __call__(self, done: int, note: str = "") -> None:
        """`done` units are finished in all; `note` is shown beside, such as a loss."""


def say(text: str) -> None:
    """One line on standard error: what happens now, for whoever watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def meter(title: str, *, total: int, unit: str, done: int = 0) -> Iterator[Meter]:
    """Shows the progress of `total` units of work with rate (`unit`/s) and time left, on standard error."""
    if sys.stderr.isatty():
        with _bar(unit) as bar:
            task = bar.add_task(title, total=total, completed=done, note="")
            yield lambda done, note="": bar.update(task, completed=done, note=note)
        return
    yield _LogMeter(title, total=total, unit=unit, done=done)


def _bar(unit: str) -> progress.Progress:
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[note]}"),
        _RateColumn(unit),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*columns, console=console.Console(stderr=True))


class _RateColumn(progress.ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: progress.Task) -> str:
        return f"{task.speed or 0:.1f} {self._unit}/s"


class _LogMeter:
    """One line every ten seconds, and one at the end: what a log file or a CI page can hold."""

    def __init__(self, title: str, *, total: int, unit: str, done: int) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._start = self._shown = time.monotonic()
        self._first = done

    def __call__(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self._shown < _LOG_INTERVAL_SECONDS and done < self._total:
            return
        self._shown = now
        rate = (done - self._first) / max(now - self._start, 1e-9)
        left = f"{(self._total - done) / rate:.0f} s left" if rate else "time left unknown"
        line = f"{self._title}: {done}/{self._total} {note} {rate:.1f} {self._unit}/s, {left}"
        say(" ".join(line.split()))
