"""The recorded matrix of mutants and audits is what the code gives today."""

import json
import pathlib

import pytest

from eval import matrix
from eval.audits import AUDITS
from eval.clean_networks import clean_names
from eval.mutants import MUTANTS
from priors.task import TaskKind

_RECORDED = json.loads((pathlib.Path(__file__).parent / "testdata" / "matrix.json").read_text())
_MEND = "if this is meant: bazel run //eval:challenge -- --json eval/testdata/matrix.json"


@pytest.mark.parametrize(("kind", "name"), matrix.mutant_names())
def test_a_mutant_is_caught_as_recorded(kind: TaskKind, name: str) -> None:
    """5.E, 5.F: by the audit and at the stage that it must be; other audits as recorded."""
    row = matrix.mutant_row(kind, name)
    assert matrix.faults([row]) == []
    assert matrix.as_json([row])[row.name] == _RECORDED[row.name], _MEND


@pytest.mark.parametrize("name", clean_names())
def test_no_audit_fails_on_a_clean_network(name: str) -> None:
    """5.G: every head and option, re-randomised and trained, in fp32, bf16 and from a memory."""
    row = matrix.clean_row(name)
    assert matrix.faults([row]) == []
    assert _RECORDED[row.name] == {}
    assert set(row.cells) == set(AUDITS)


def test_the_record_holds_every_mutant_and_every_clean_network() -> None:
    """5.E: none is forgotten, and none that is gone stays."""
    mutants = {f"{kind} {name}" for kind, name in matrix.mutant_names()}
    kinds = {row.rpartition(" ")[0]: row for row in _RECORDED}
    clean = {name for name in _RECORDED if name not in mutants}
    assert mutants <= set(_RECORDED) and len(clean) == len(clean_names()), kinds
    assert {name.partition(" ")[2] for name in clean} == set(clean_names())


def test_every_audit_that_the_course_does_not_ask_for_catches_what_nothing_else_does() -> None:
    """5.E: an audit beyond the course must earn its place."""
    beyond = {"loader", "unknown_label", "paths", "certificate"}
    assert beyond <= set(AUDITS)
    alone = {next(iter(audits)) for audits in _RECORDED.values() if len(audits) == 1}
    assert beyond <= alone


def test_a_missed_mutant_and_a_failing_clean_network_are_faults() -> None:
    """The comparison itself can fail."""
    name, mutant = next(iter(MUTANTS.items()))
    passing = dict.fromkeys(AUDITS, matrix.PASS)
    kind = TaskKind.CLASSIFICATION
    missed = matrix.Row(kind=kind, subject=name, clean=False, cells=passing)
    misplaced = matrix.Row(kind=kind, subject=name, clean=False, cells=passing | {mutant.audit: "head"})
    failing = matrix.Row(kind=kind, subject="linear", clean=True, cells=passing | {"paths": "head"})
    for row, word in ((missed, "says pass"), (misplaced, "says head"), (failing, "fails on a clean network")):
        (fault,) = matrix.faults([row])
        assert word in fault
    assert matrix.faults([matrix.Row(kind=kind, subject="linear", clean=True, cells=passing)]) == []
