"""Challenges every audit with every mutant, and with clean networks of every head.

    bazel run //eval:challenge -- [--json FILE]

Prints which audit fails on what, and the stage that it names. The exit status is 0 only if every mutant is caught by
its audit at its stage, and no audit fails on a clean network. Takes about two minutes on one core.
"""

import dataclasses
import pathlib

import rich.console
import rich.table

from eval import matrix
from eval.audits import AUDITS
from eval.clean_networks import clean_names
from eval.mutants import MUTANTS
from tools import files, paths, progress
from tools.config import parse_flags
from tools.failure import ExitCode, run_program

_PROGRAM = "//eval:challenge"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChallengeFlags:
    """Runs every audit against every mutant; exit status 0 only if each is caught and clean networks pass."""

    json: pathlib.Path | None = None
    """Write the matrix here: {"kind subject": {audit: stage}}, audits that pass left out."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(ChallengeFlags, argv, program=_PROGRAM)
    if flags.json is not None:
        paths.writable_folder(paths.user_path(flags.json).parent, flag="--json")
    mutants, clean = matrix.mutant_names(), clean_names()
    rows: list[matrix.Row] = []
    with progress.meter("challenge", total=len(mutants) + len(clean), unit="subjects") as report:
        for kind, name in mutants:
            rows.append(matrix.mutant_row(kind, name))
            report(len(rows), name)
        for name in clean:
            rows.append(matrix.clean_row(name))
            report(len(rows), name)
    console = rich.console.Console()
    console = console if console.is_terminal else rich.console.Console(width=150)
    console.print(_table(rows))
    if flags.json is not None:
        files.write_json(paths.user_path(flags.json), matrix.as_json(rows))
    faults = matrix.faults(rows)
    for fault in faults:
        console.print(fault, style="red")
    caught = "every mutant is caught at its stage, and no audit fails on a clean network"
    console.print(f"{len(faults)} faults" if faults else caught)
    return int(ExitCode.AUDIT_FAILED if faults else ExitCode.OK)


def _table(rows: list[matrix.Row]) -> rich.table.Table:
    legend = ", ".join(f"{number} {audit.replace('_', ' ')}" for number, audit in enumerate(AUDITS, 1))
    table = rich.table.Table(title="x where an audit fails, a dot where it passes", caption=legend, box=None)
    table.add_column("subject", no_wrap=True)
    for number in range(1, len(AUDITS) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    table.add_column("caught at", no_wrap=True)
    for row in rows:
        marks = ["." if cell == matrix.PASS else "x" for cell in row.cells.values()]
        stage = "" if row.clean else row.cells[MUTANTS[row.subject].audit]
        table.add_row(row.name, *marks, stage, style="dim" if row.clean else "")
    return table


def main() -> None:
    """Runs the program."""
    run_program(_main)
