"""Progress displays: a bar with rate and time left on a terminal, a plain line now and then in a log."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich import console, progress, table

_LOG_INTERVAL_SECONDS = 10.0
_DUMB = ("", "dumb", "unknown")


class Meter(Protocol):
    """What work reports to."""

    def __call__(self, done: int, note: str = "", seconds_left: float | None = None) -> None:
        """`done` units are finished in all; `note` is shown beside, such as a loss.

        Whoever knows the time left better than by the mean rate says it.
        """


def say(text: str) -> None:
    """One line on standard error: what happens now, for whoever watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def meter(title: str, *, total: int, unit: str, done: int = 0) -> Iterator[Meter]:
    """Shows the progress of `total` units of work with rate (`unit`/s) and time left, on standard error."""
    if sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB:
        with _bar(unit) as bar:
            task = bar.add_task(title, total=total, completed=done, note="", left=None)
            yield lambda done, note="", seconds_left=None: bar.update(
                task, completed=done, note=note, left=seconds_left
            )
        return
    yield _LogMeter(title, total=total, unit=unit, done=done)


def duration(seconds: float) -> str:
    """A time as people say it: seconds up to two minutes, minutes up to two hours, then hours and minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def rate(per_second: float, unit: str) -> str:
    """A rate with three digits or so: `1,234 tasks/s`, `56.7 tasks/s`, `0.012 steps/s`."""
    if per_second < 1:
        return f"{per_second:.2g} {unit}/s"
    return f"{per_second:,.{0 if per_second >= 100 else 1}f} {unit}/s"


def _bar(unit: str) -> progress.Progress:
    """The note stands last, and takes further lines where one is too narrow."""
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=12),
        progress.TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        _RateColumn(unit),
        _LeftColumn(),
        progress.TextColumn("{task.fields[note]}", table_column=table.Column(ratio=1)),
    )
    return progress.Progress(*columns, console=console.Console(stderr=True), expand=True)


class _RateColumn(progress.ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: progress.Task) -> str:
        return "" if task.speed is None else rate(task.speed, self._unit)


class _LeftColumn(progress.ProgressColumn):
    def render(self, task: progress.Task) -> str:
        left = task.fields["left"] if task.fields["left"] is not None else task.time_remaining
        return "" if left is None else f"{duration(left)} left"


class _LogMeter:
    """One line every ten seconds, and one at the end: what a log file or a CI page can hold."""

    def __init__(self, title: str, *, total: int, unit: str, done: int) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._start = self._shown = time.monotonic()
        self._first, self._has_ended = done, False

    def __call__(self, done: int, note: str = "", seconds_left: float | None = None) -> None:
        now, ends = time.monotonic(), done >= self._total and not self._has_ended
        if now - self._shown < _LOG_INTERVAL_SECONDS and not ends:
            return
        self._shown, self._has_ended = now, done >= self._total
        per_second = (done - self._first) / max(now - self._start, 1e-9)
        if seconds_left is None and per_second:
            seconds_left = (self._total - done) / per_second
        left = "time left unknown" if seconds_left is None else f"{duration(seconds_left)} left"
        line = f"{self._title}: {done:,}/{self._total:,} {note} {rate(per_second, self._unit)}, {left}"
        say(" ".join(line.split()))
