"""Mutants are made beside the clean subject, and refused by name and kind."""

import pytest
import torch

from eval.audits import run_audits
from eval.mutants import MUTANTS, mutated
from eval.small_network import rerandomised_network, small_network
from eval.subject import Subject
from model.icl_transformer import AttentionPath
from priors.task import TaskKind
from tools.failure import ExitCode, Failure


@pytest.mark.parametrize("kind", list(TaskKind))
def test_no_audit_fails_on_a_clean_network_of_the_reference_path(kind: TaskKind) -> None:
    """5.G: also on other specimens; `matrix_test` holds the fast path, every head and every mutant."""
    subject = Subject(network=rerandomised_network(kind, seed=1), path=AttentionPath.REFERENCE)
    results = run_audits(subject, seed=10)
    assert {result.name: result.message for result in results if not result.passed} == {}


def test_the_four_mutants_that_users_are_promised_exist() -> None:
    """5.E: the names of `//eval:audit --mutant`."""
    assert {"causal_mask", "query_reads_query", "label_at_query", "normalise_with_query"} <= set(MUTANTS)


@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_mutant_leaves_the_clean_subject_as_it_was(name: str) -> None:
    """Weights, types and path of the clean network stay."""
    subject = Subject(network=small_network(MUTANTS[name].kinds[0]))
    before = {key: value.clone() for key, value in subject.network.state_dict().items()}
    classes = [type(module) for module in subject.network.modules()]
    mutated(name, subject)
    assert [type(module) for module in subject.network.modules()] == classes
    assert subject.network.icl.path is AttentionPath.FAST
    assert all(torch.equal(value, before[key]) for key, value in subject.network.state_dict().items())


def test_an_unknown_mutant_is_refused_with_the_nearest_name() -> None:
    """One line names the value and the mend."""
    with pytest.raises(Failure, match="query_reads_qery.*did you mean query_reads_query") as caught:
        mutated("query_reads_qery", Subject(network=small_network(TaskKind.CLASSIFICATION)))
    assert caught.value.code is ExitCode.BAD_FLAG


def test_a_mutant_of_the_other_kind_is_refused() -> None:
    """Probabilities are not read out in regression."""
    with pytest.raises(Failure, match="p_as_logits.*regression.*classification checkpoint"):
        mutated("p_as_logits", Subject(network=small_network(TaskKind.REGRESSION)))
