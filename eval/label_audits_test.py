"""The audits of labels fail where they must, and say what they measured."""

import dataclasses

import numpy as np
import pytest

from eval.case import CONTROL_MULTIPLE, Case
from eval.label_audits import history, leakage, unknown_label
from eval.mutants import mutated
from eval.small_network import rerandomised_network, small_network
from eval.subject import Outcome, Prediction, Subject, outcomes
from eval.tracing import Stage
from priors.task import TaskBatch, TaskKind


def _case(kind: TaskKind, mutant: str = "") -> Case:
    subject = Subject(network=rerandomised_network(kind))
    return Case.of(mutated(mutant, subject) if mutant else subject)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_leakage_compares_every_stage_of_several_relabelled_runs(kind: TaskKind) -> None:
    """5.A: padded and alone; nothing moves, and one context label moves everything that it must."""
    result = leakage(_case(kind))
    assert result.passed, result.message
    groups = 3 if kind is TaskKind.REGRESSION else 6  # padded, alone, large; and contexts that lack a class
    assert result.figures["relabelled_runs"] == 3 * groups and result.figures["readings"] > 300
    assert result.figures["largest_move"] == 0.0
    controls = [value for name, value in result.figures.items() if name.startswith("control_") and "floor" not in name]
    assert len(controls) == 3 and min(controls) >= result.figures["control_floor"] > 0


def test_leakage_names_a_field_of_the_gate_that_must_not_exist() -> None:
    """5.8: even where the network ignores it."""
    broken = mutated("label_at_query", Subject(network=rerandomised_network(TaskKind.CLASSIFICATION)))
    ignored = dataclasses.replace(broken, network=rerandomised_network(TaskKind.CLASSIFICATION))
    result = leakage(Case.of(ignored))
    assert (result.passed, result.stage) == (False, Stage.COLLATE)
    assert "inputs.y_query" in result.message


def test_leakage_is_blind_where_answers_do_not_follow_the_records() -> None:
    """5.A: a scorer that keeps old answers would make every comparison trivial."""

    def deaf(prediction: Prediction, batch: TaskBatch) -> list[Outcome]:
        found = outcomes(prediction, batch)
        return [dataclasses.replace(outcome, answers=np.zeros_like(outcome.answers)) for outcome in found]

    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION), scorer=deaf)
    result = leakage(Case.of(subject))
    assert not result.passed and result.stage == Stage.SCORER and "blind" in result.message


def test_leakage_is_blind_on_a_network_that_ignores_its_context() -> None:
    """5.A: the positive control; regression at initialisation reads nothing but its own row."""
    result = leakage(Case.of(Subject(network=small_network(TaskKind.REGRESSION))))
    assert not result.passed and result.stage is None and "blind" in result.message
    assert result.figures["control_hidden"] < CONTROL_MULTIPLE * 1e-5


@pytest.mark.parametrize("mutant", ["stale_label_in_cache", "statistics_of_previous_table"])
@pytest.mark.parametrize("kind", list(TaskKind))
def test_history_sees_what_was_kept_and_leakage_does_not(mutant: str, kind: TaskKind) -> None:
    """5.E: stale memory; the audit is there for mutants that nothing else catches."""
    case = _case(kind, mutant)
    result = history(case)
    assert not result.passed and "predicted before" in result.message
    assert leakage(case).passed


def test_unknown_label_sees_a_query_that_carries_a_class() -> None:
    """5.3: the query row moves with the class embeddings."""
    for kind in TaskKind:
        assert unknown_label(_case(kind)).passed
        result = unknown_label(_case(kind, "unknown_label_as_class"))
        assert not result.passed and result.figures["query_rows"] > 0
