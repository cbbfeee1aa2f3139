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
from rich.markup import escape

from priors.group import TaskGroup
from priors.properties import SetSummary, summarise, tabulate
from priors.property_text import LEGEND, TextTable, realised_table, size_table
from priors.shards import ShardSet
from tools import config, files, paths, progress, stores
from tools.failure import ExitCode, Failure, run_program

_LOG_COLUMNS = 140


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribeConfig:
    """What to describe."""

    folder: Annotated[str, tyro.conf.Positional]
    """Folder or URI of the shard set."""
    json: pathlib.Path | None = None
    """A file that gets the same as JSON, with every sampled parameter besides."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = config.parse_flags(DescribeConfig, argv, program="//priors:describe")
    if flags.json:
        place = paths.user_path(flags.json)
        if place.is_dir():
            raise Failure(ExitCode.NOT_WRITABLE, f"--json {place} is a folder: give the name of a file in it")
        paths.writable_folder(place.parent, flag="--json")
    shard_set = ShardSet.open(stores.user_location(flags.folder))
    found = summarise(tabulate(_groups(shard_set)), shard_set=shard_set)
    if flags.json:
        files.write_json(paths.user_path(flags.json), found.to_json())
    screen = console.Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS, highlight=False)
    screen.print(f"[b]{found.whole.tasks:,} {found.kind} tasks[/b] in {escape(found.place)}", soft_wrap=True)
    for line in _lines(found):
        screen.print(line, soft_wrap=True)
    screen.print(_grid("Tasks", size_table(found)))
    screen.print(_grid("Realised properties", realised_table(found)))
    screen.print(f"Cells: {LEGEND[0].lower()}{LEGEND[1:]}", style="dim")


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


def _grid(title: str, text: TextTable) -> table.Table:
    grid = table.Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(text.columns):
        grid.add_column(name, justify="right" if index else "left", no_wrap=not index)
    for row in text.rows[:-1]:
        grid.add_row(*row)
    grid.add_section()
    grid.add_row(*text.rows[-1], style="bold")
    return grid
