"""Rows of a bench: what was measured, ours beside another's in the same run, with the spread over its rounds."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import rich.table


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One figure.

    Args:
        name: what was measured.
        unit: of `ours` and `peer`.
        ours: the median of our rounds.
        peer: the median of the other's; None where it was not asked or has no such thing.
        ours_range: smallest and largest of our rounds.
        peer_range: the same of the other's.
        goal: what `judged` is to reach, in words, such as "≥ 30 ×"; empty for none.
        met: whether it does; None where there is no goal, or nothing to compare with.
        note: what the row's name does not say.
    """

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ours_range: tuple[float, float] | None = None
    peer_range: tuple[float, float] | None = None
    goal: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours in units of the peer's."""
        return self.ours / self.peer if self.peer else None

    def record(self) -> dict[str, Any]:
        """The row as JSON values, "ratio" among them."""
        return {**dataclasses.asdict(self), "ratio": self.ratio}


SaveRows = Callable[[Sequence[BenchRow]], None]
"""Takes all rows that are known so far, after every part of a bench."""


def measured_row(
    *, name: str, unit: str, ours: Sequence[float], peer: Sequence[float] = (), least_ratio: float = 0.0, note: str = ""
) -> BenchRow:
    """The row of rounds that were measured in turn.

    Args:
        name: of the row.
        unit: of all values.
        ours: one value a round, larger is better.
        peer: the same of the other; empty where it was not asked.
        least_ratio: what the ratio of the medians is to reach; 0 for no goal.
        note: what the name does not say.
    """
    middle = statistics.median(ours)
    theirs = statistics.median(peer) if peer else None
    met = middle / theirs >= least_ratio if theirs and least_ratio else None
    return BenchRow(
        name=name,
        unit=unit,
        ours=middle,
        peer=theirs,
        ours_range=(min(ours), max(ours)),
        peer_range=(min(peer), max(peer)) if peer else None,
        goal=f"≥ {least_ratio:g} ×" if least_ratio else "",
        met=met,
        note=note,
    )


def in_turn(
    sides: Sequence[Callable[[int], float]], *, rounds: int, warm_up: int = 1
) -> Iterator[tuple[list[list[float]], int]]:
    """Measures several sides in turn, so that what disturbs the machine hits all of them.

    Args:
        sides: each takes the number of the round and returns a value.
        rounds: how many count.
        warm_up: rounds before them, which do not.

    Yields:
        After every round that counts: the values so far, a list for each side, and how many rounds are done.
    """
    values: list[list[float]] = [[] for _ in sides]
    for number in range(-warm_up, rounds):
        found = [side(number) for side in sides]
        if number >= 0:
            for kept, value in zip(values, found, strict=True):
                kept.append(value)
            yield values, number + 1


def bench_table(rows: Sequence[BenchRow], *, title: str, peer: str) -> rich.table.Table:
    """The rows for a terminal.

    Args:
        rows: what was measured.
        title: above the table.
        peer: what the other is called.
    """
    table = rich.table.Table(title=title, title_justify="left")
    table.add_column("figure", ratio=1)
    for heading in ("ours", peer, "ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for row in rows:
        colour = {True: "green", False: "red", None: "default"}[row.met]
        verdict = f"[{colour}]{row.goal}{ {True: ' ✓', False: ' ✗', None: ''}[row.met] }[/{colour}]" if row.goal else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.1f} ×"
        name = f"{row.name}\n[dim]{row.note}[/dim]" if row.note else row.name
        ours, theirs = _with_range(row.ours, row.ours_range), _with_range(row.peer, row.peer_range)
        table.add_row(name, ours, theirs, ratio, verdict, row.unit)
    return table


def _with_range(value: float | None, span: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    middle = _short(value)
    return f"{middle} [dim]({_short(span[0])}–{_short(span[1])})[/dim]" if span and span[0] < span[1] else middle


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
