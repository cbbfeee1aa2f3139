"""Prints what is inside a shard set: its families, and how the properties of their tasks are distributed.

Command: `bazel run //priors:describe -- DIR [--json FILE]`
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator
from typing import Annotated

import tyro
from rich import box, console, table

from priors.group import TaskGroup
from priors.properties import KINDS, REALISED, SIZES, FamilySummary, SetSummary, Spread, summarise, tabulate
from priors.shards import ShardSet
from tools import config, files, paths, progress
from tools.failure import run_program

_LOG_COLUMNS = 140
_TITLES = {"noise_share": "noise share", "largest_class": "largest class", "relevant": "relevant features"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribeConfig:
    """What to describe."""

    folder: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the shard set."""
    json: pathlib.Path | None = None
    """A file that gets the same as JSON, with every sampled parameter besides."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = config.parse_flags(DescribeConfig, argv, program="//priors:describe")
    folder = paths.user_path(flags.folder)
    shard_set = ShardSet.open(folder)
    found = summarise(tabulate(_groups(shard_set)), shard_set=shard_set)
    if flags.json:
        files.write_json(paths.user_path(flags.json), {"folder": str(folder)} | found.to_json())
    screen = console.Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS, highlight=False)
    screen.print(f"[b]{found.whole.tasks:,} {found.kind} tasks[/b] in {folder}", soft_wrap=True)
    for line in _lines(found):
        screen.print(line, soft_wrap=True)
    screen.print(_families(found))
    screen.print(_properties(found))
    screen.print("Cells: median (5 % – 95 % of tasks). – is unknown, or means nothing for these tasks.", style="dim")


def _groups(shard_set: ShardSet) -> Iterator[TaskGroup]:
    """Every group of the set, with a bar."""
    with progress.meter("read", total=len(shard_set.groups), unit="groups") as report:
        for index in range(len(shard_set.groups)):
            yield shard_set.group(index)
            report(index + 1)


def _lines(found: SetSummary) -> Iterator[str]:
    yield f"digest {found.digest}"
    yield f"drawn from config {found.source}, seed {found.seed}"
    yield f"{found.bytes:,} bytes, {found.bytes_per_task:,.0f} a task"


def _families(found: SetSummary) -> table.Table:
    """Families, how many of each, their sizes and columns."""
    grid = _grid("Tasks", ["tasks", "share", "rejected", *SIZES, *KINDS.values()])
    for part in (*found.families, found.whole):
        rejected = "–" if part.rejected_share is None else f"{part.rejected_share:.1%}"
        sizes = [_cell(part.spreads.get(name)) for name in SIZES]
        kinds = [f"{share:.0%}" for share in part.columns.values()]
        _add(grid, part, [f"{part.tasks:,}", f"{part.share:.1%}", rejected, *sizes, *kinds])
    return grid


def _properties(found: SetSummary) -> table.Table:
    """Families, and how realised properties are distributed."""
    grid = _grid("Realised properties", [_TITLES.get(name, name) for name in REALISED])
    for part in (*found.families, found.whole):
        _add(grid, part, [_cell(part.spreads.get(name)) for name in REALISED])
    return grid


def _grid(title: str, columns: list[str]) -> table.Table:
    grid = table.Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("family", no_wrap=True)
    for name in columns:
        grid.add_column(name, justify="right")
    return grid


def _add(grid: table.Table, part: FamilySummary, cells: list[str]) -> None:
    whole = part.name == "all"
    if whole:
        grid.add_section()
    grid.add_row(part.name, *cells, style="bold" if whole else None)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    low, median, high = (_number(value) for value in (spread.low, spread.median, spread.high))
    return f"{median} ({low} – {high})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) >= 1 else f"{value:.3g}"
