"""What is inside a shard set, in words: heads and rows of tables for a terminal or a page."""

import dataclasses
from collections.abc import Iterable

from priors.properties import KINDS, REALISED, SIZES, FamilySummary, SetSummary, Spread

UNKNOWN = "–"
WITHOUT_SIGNAL = "kept without signal"
LEGEND = f"Median (5 % – 95 % of tasks). {UNKNOWN} is unknown, or means nothing for these tasks."
TITLES = {
    "noise_share": "noise share",
    "relevant": "relevant features",
    "largest_class": "largest class",
    "missing": "missing share",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTable:
    """Args: columns, heads, the first above names; rows, each as wide as `columns`, the last one all tasks."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def size_table(found: SetSummary) -> TextTable:
    """Families, how many of each, their sizes and kinds of columns; a column for tasks without signal if any are."""
    extra = (WITHOUT_SIGNAL,) if found.whole.without_signal else ()
    columns = ("family", "tasks", "share", "rejected", *extra, *SIZES, *KINDS.values())
    parts = (*found.families, found.whole)
    return TextTable(columns=columns, rows=tuple(_size_row(part, says_signal=bool(extra)) for part in parts))


def _size_row(part: FamilySummary, *, says_signal: bool) -> tuple[str, ...]:
    rejected = UNKNOWN if part.rejected_share is None else f"{part.rejected_share:.1%}"
    sizes = (spread_text(part.spreads.get(name)) for name in SIZES)
    kinds = (f"{part.columns[name]:.0%}" if name in part.columns else UNKNOWN for name in KINDS.values())
    without = (f"{part.without_signal:,}",) if says_signal else ()
    return (part.name, f"{part.tasks:,}", f"{part.share:.1%}", rejected, *without, *sizes, *kinds)


def realised_table(found: SetSummary) -> TextTable:
    """Families, and how their tasks came out."""
    columns = ("family", *(TITLES.get(name, name) for name in REALISED))
    parts = (*found.families, found.whole)
    rows = ((part.name, *(spread_text(part.spreads.get(name)) for name in REALISED)) for part in parts)
    return TextTable(columns=columns, rows=tuple(rows))


def parameter_table(part: FamilySummary) -> TextTable:
    """A family's other numbers: what was sampled for its tasks."""
    known = {*SIZES, *REALISED}
    names = [name for name in part.spreads if name not in known]
    return TextTable(columns=("parameter", LEGEND.split(".")[0], "tasks"), rows=tuple(_parameter_rows(part, names)))


def _parameter_rows(part: FamilySummary, names: Iterable[str]) -> Iterable[tuple[str, ...]]:
    for name in names:
        spread = part.spreads[name]
        yield name.replace("_", " "), spread_text(spread), f"{spread.known:,}"


def spread_text(spread: Spread | None) -> str:
    """The median, and in brackets the quantiles around it."""
    if spread is None:
        return UNKNOWN
    low, median, high = (_number(value) for value in (spread.low, spread.median, spread.high))
    return f"{median} ({low} – {high})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"
