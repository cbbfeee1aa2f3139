"""The certificate passes on clean subjects and fails on every mutant that changes the data flow, at its stage."""

import dataclasses

import numpy as np
import pytest
import torch

from eval.case import Case
from eval.certificate import certificate, certificate_episodes, certify, nan_certificate
from eval.mutant_flows import dormant_query_adapter
from eval.mutants import MUTANTS, mutated
from eval.small_network import rerandomised_network
from eval.specimens import specimens
from eval.subject import Subject
from eval.tracing import Stage
from model.icl_transformer import AttentionPath
from model.row_embedding import RowReadout
from priors.task import TaskKind

_CLASSES = TaskKind.CLASSIFICATION
_FLOWS = (
    "causal_mask",
    "query_reads_query",
    "context_reads_query",
    "all_rows_are_keys",
    "finite_fill",
    "padding_read_by_columns",
    "label_at_query",
    "targets_scaled_with_query",
    "retrieval_of_own_row",
    "normalise_with_query",
    "stale_label_in_cache",
    "statistics_of_previous_table",
    "off_by_one_slices",
)


def _case(subject: Subject) -> Case:
    return Case(subject=subject, episodes=())


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("path", list(AttentionPath))
def test_the_audit_passes_on_a_clean_subject_in_half_precision_too(kind: TaskKind, path: AttentionPath) -> None:
    """5.G: the form of a verdict; sets do not depend on the precision."""
    for is_half in (False, True) if path is AttentionPath.FAST else (False,):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half, cache_enabled=False):
            result = certificate(_case(Subject(network=rerandomised_network(kind), path=path)))
        assert result.passed, result.message
        assert result.figures["operations"] > 1000 and result.figures["operations_mixed"] == 0


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in _FLOWS for kind in MUTANTS[name].kinds])
def test_a_mutant_of_the_data_flow_is_caught_at_its_stage(name: str, kind: TaskKind) -> None:
    """5.E, 5.F: masks, statistics, labels and slices; the first stage with a forbidden source is named."""
    result = certificate(_case(mutated(name, Subject(network=rerandomised_network(kind)))))
    assert not result.passed
    assert result.stage == MUTANTS[name].stage, result.message
    assert "depends on" in result.message


class _ColumnBlindReadout(RowReadout):
    def forward(self, cells: torch.Tensor, *, bias: torch.Tensor | None) -> torch.Tensor:
        return super().forward(cells, bias=None)


def test_a_padded_column_that_is_read_is_caught() -> None:
    """5.7: what stands beyond a table's own columns is no feature of it."""
    subject = Subject(network=rerandomised_network(TaskKind.REGRESSION)).fresh()
    subject.network.row_readout.__class__ = _ColumnBlindReadout
    result = certificate(_case(subject))
    assert not result.passed and result.stage == Stage.ROW
    assert result.message == "row_readout[1, 0, 0] depends on the padding of table 1"


@pytest.mark.parametrize(
    "name", ["columns_keep_hidden_labels", "head_keeps_hidden_labels", "scale_keeps_hidden_labels"]
)
def test_a_hidden_label_that_is_read_is_caught(name: str) -> None:
    """5.B: at every entry: target-aware columns, the head's values, the target's scale."""
    result = certificate(_case(mutated(name, Subject(network=rerandomised_network(MUTANTS[name].kinds[0])))))
    assert not result.passed and "hidden context labels" in result.message


def test_a_nan_that_the_head_swallows_is_laid_to_the_head() -> None:
    """5.F: hidden states carry it to every prediction, and a softmax over classes replaces it by 0."""
    result = certificate(_case(mutated("softmax_over_classes", Subject(network=rerandomised_network(_CLASSES)))))
    assert not result.passed and result.stage == Stage.HEAD
    assert "a NaN in the cells of context row 0 does not reach" in result.message


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_nan_comes_out_where_it_is_wired_to_and_nowhere_else(kind: TaskKind) -> None:
    """5.5: the fast path lets a query row reach its own prediction, and a context row all of its table."""
    subject = Subject(network=rerandomised_network(kind))
    found = nan_certificate(subject, certificate_episodes(subject)[0])
    assert found.query.tolist() == np.eye(3, dtype=bool).tolist()
    assert found.context.all() and found.context.shape == (5, 3)
    assert found.problem is None


def test_a_nan_passes_through_a_gate_of_zero() -> None:
    """5.C: an adapter between queries that adds exactly 0 is seen, and so are queries that are keys."""
    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION))
    for leaky in (dormant_query_adapter(subject), mutated("all_rows_are_keys", subject)):
        found = nan_certificate(leaky, certificate_episodes(subject)[0])
        assert found.query.all() and "reaches prediction" in (found.problem or "")


def test_a_network_that_does_not_read_its_context_is_called_blind() -> None:
    """A certificate that could not fail would be worthless: what must be there is looked for."""
    subject = Subject(network=rerandomised_network(TaskKind.REGRESSION))
    network = subject.fresh().network
    network.icl.forward = lambda context, labels, query, *masks, **others: (context, torch.zeros_like(query))
    result = certificate(_case(dataclasses.replace(subject, network=network)))
    assert not result.passed and "does not depend on" in result.message and "blind" in result.message


def test_more_rows_than_bits_are_refused() -> None:
    """A set has 62 sources at most."""
    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION))
    with pytest.raises(ValueError, match="62 bits"):
        certify(subject, specimens(TaskKind.CLASSIFICATION) * 3)
