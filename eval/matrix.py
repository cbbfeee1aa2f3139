"""Every audit against every mutant, and against clean networks of every head: which fails, and at which stage (5.E).

The matrix is recorded in `testdata/matrix.json`; a test makes it anew and compares.
"""

import dataclasses

from eval.audits import run_audits
from eval.clean_networks import clean_network
from eval.mutants import MUTANTS, mutated
from eval.small_network import rerandomised_network
from eval.subject import Subject
from priors.task import TaskKind

PASS = "pass"
"""What a cell holds where the audit passes; else it holds the stage, or `blind` where none is named."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One subject against all audits.

    Args:
        kind: classification or regression.
        subject: name of the mutant, or of the clean network.
        clean: whether every audit must pass.
        cells: audit → `PASS` or the stage at which it failed.
    """

    kind: TaskKind
    subject: str
    clean: bool
    cells: dict[str, str]

    @property
    def name(self) -> str:
        """Its key in the recorded matrix."""
        return f"{self.kind} {self.subject}"

    @property
    def caught_by(self) -> list[str]:
        """The audits that fail."""
        return [audit for audit, cell in self.cells.items() if cell != PASS]


def mutant_names() -> list[tuple[TaskKind, str]]:
    """Every mutant in every kind that has it."""
    return [(kind, name) for name, mutant in MUTANTS.items() for kind in mutant.kinds]


def mutant_row(kind: TaskKind, name: str) -> Row:
    """A mutant of a re-randomised network."""
    subject = mutated(name, Subject(network=rerandomised_network(kind)))
    return Row(kind=kind, subject=name, clean=False, cells=cells(subject))


def clean_row(name: str) -> Row:
    """A clean network, by its name in `eval.clean_networks`."""
    network = clean_network(name)
    return Row(
        kind=TaskKind(network.config.kind.value), subject=name, clean=True, cells=cells(Subject(network=network))
    )


def cells(subject: Subject) -> dict[str, str]:
    """Audit → `PASS` or the stage at which it fails."""
    found = {}
    for result in run_audits(subject):
        found[result.name] = PASS if result.passed else "blind" if result.stage is None else str(result.stage)
    return found


def faults(rows: list[Row]) -> list[str]:
    """What is wrong with a matrix, a line each: a mutant missed or misplaced, a clean network that fails an audit."""
    found = []
    for row in rows:
        if row.clean:
            found += [f"{row.kind} {row.subject}: {audit} fails on a clean network" for audit in row.caught_by]
            continue
        mutant = MUTANTS[row.subject]
        cell = row.cells[mutant.audit]
        if cell != mutant.stage:
            found.append(f"{row.kind} {row.subject}: {mutant.audit} says {cell}, and must say {mutant.stage}")
    return found


def as_json(rows: list[Row]) -> dict[str, dict[str, str]]:
    """{"kind subject": {audit: stage}}; audits that pass are left out, so a clean network has none."""
    return {row.name: {audit: row.cells[audit] for audit in row.caught_by} for row in rows}
