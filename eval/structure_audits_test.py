"""The audits of structure fail where they must, and say which cell or row is wrong."""

import dataclasses

import pytest
import torch
from torch import Tensor

from eval.case import Case
from eval.mutants import mutated
from eval.small_network import rerandomised_network, small_network
from eval.structure_audits import mask_graph, probabilities, slices
from eval.subject import Subject
from eval.tracing import Stage
from model.classification_head import LabelMemory, RetrievalClassificationHead
from model.icl_transformer import AttentionPath, ContextView, ICLAttention, ICLBlock
from priors.task import TaskKind


def _case(kind: TaskKind, mutant: str = "") -> Case:
    subject = Subject(network=rerandomised_network(kind))
    return Case.of(mutated(mutant, subject) if mutant else subject)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_mask_is_judged_on_both_paths_whatever_the_subject_uses(kind: TaskKind) -> None:
    """5.D: the printed mask belongs to the reference path, the scores to the fast one."""
    broken = mutated("query_reads_query", Subject(network=rerandomised_network(kind)))
    fast = Case.of(broken.fresh(path=AttentionPath.FAST))
    result = mask_graph(fast)
    assert not result.passed and result.message.startswith("reference path")
    keys = mutated("all_rows_are_keys", Subject(network=rerandomised_network(kind)))
    result = mask_graph(Case.of(keys.fresh(path=AttentionPath.REFERENCE)))
    assert not result.passed and result.message.startswith("fast path")


def test_a_wrong_cell_is_named() -> None:
    """5.6: who reads whom."""
    result = mask_graph(_case(TaskKind.CLASSIFICATION, "query_reads_query"))
    assert "query 0 reads query 0" in result.message and result.figures["wrong_cells"] > 0
    result = mask_graph(_case(TaskKind.CLASSIFICATION, "context_reads_query"))
    assert "context 0 reads query 0" in result.message


def test_forbidden_weights_are_exactly_zero() -> None:
    """5.D, 5.5: with minus infinity; a finite fill is refused even where it rounds to zero."""
    result = mask_graph(_case(TaskKind.REGRESSION))
    assert result.passed and result.figures["forbidden_weight"] == 0.0
    assert result.figures["weights_unlike_output"] < 1e-5 and result.figures["reference_unlike_fast"] < 1e-5
    result = mask_graph(_case(TaskKind.REGRESSION, "finite_fill"))
    assert "neither 0 nor minus infinity" in result.message


def test_attention_that_ignores_its_mask_is_seen() -> None:
    """5.D: the tensor arrives, but something else is computed."""

    class _Deaf(ICLAttention):
        def forward(self, x: Tensor, source: Tensor, *, view: ContextView) -> Tensor:
            return super().forward(x, source, view=dataclasses.replace(view, bias=None))

    network = rerandomised_network(TaskKind.CLASSIFICATION)
    network.icl.blocks[1].attention.__class__ = _Deaf
    result = mask_graph(Case.of(Subject(network=network)))
    assert (result.passed, result.stage) == (False, Stage.BLOCKS)
    assert "icl.blocks.1.attention" in result.message


def test_paths_that_disagree_are_seen() -> None:
    """5.D: reference and fast are the same function."""

    class _Louder(ICLBlock):
        def forward(self, z: Tensor, *, view: ContextView) -> Tensor:
            louder = 1.01 if view.path is AttentionPath.FAST else 1.0
            return louder * super().forward(z, view=view)

    network = rerandomised_network(TaskKind.CLASSIFICATION)
    network.icl.blocks[0].__class__ = _Louder
    result = mask_graph(Case.of(Subject(network=network)))
    assert (result.passed, result.stage) == (False, Stage.BLOCKS) and "differ" in result.message


def test_a_mask_that_means_nothing_is_called_blind() -> None:
    """5.D: a fresh network's attention puts out zero."""
    result = mask_graph(Case.of(Subject(network=small_network(TaskKind.REGRESSION))))
    assert not result.passed and "blind" in result.message


@pytest.mark.parametrize("kind", list(TaskKind))
def test_first_and_last_rows_are_present(kind: TaskKind) -> None:
    """5.4: row 0 and row N-1 of the context, row 0 and row M-1 of the queries, each by its influence."""
    result = slices(_case(kind))
    assert result.passed, result.message
    for name in ("context_first", "context_last", "query_first", "query_last"):
        assert result.figures[name] > 1e-3
    result = slices(_case(kind, "off_by_one_slices"))
    assert "context rows that leave the ICL stage are not rows 0..N-1" in result.message


def _forgetful_head(row: int) -> type[RetrievalClassificationHead]:
    class _Forgetful(RetrievalClassificationHead):
        def remember(
            self, context_hidden: Tensor, context_labels: Tensor, num_classes: int, context_mask: Tensor | None
        ) -> LabelMemory:
            kept = torch.ones(context_labels.shape, dtype=torch.bool) if context_mask is None else context_mask.clone()
            kept[:, row] = False
            return super().remember(context_hidden, context_labels, num_classes, kept)

    return _Forgetful


@pytest.mark.parametrize("row", [0, 23])
def test_a_context_row_without_influence_is_named(row: int) -> None:
    """5.4: here its label and its key are hidden everywhere behind the cut."""
    network = rerandomised_network(TaskKind.CLASSIFICATION)

    def forget(module: torch.nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        labels = args[1].clone()
        labels[:, row] = 0
        return args[0], labels, *args[2:]

    network.icl.injection.register_forward_pre_hook(forget)
    network.column_labels.register_forward_pre_hook(lambda module, args: forget(module, (args[0], args[0]))[1:])
    network.head.__class__ = _forgetful_head(row)
    result = slices(Case.of(Subject(network=network)))
    assert not result.passed and f"context row {row} has no influence" in result.message


def test_sums_over_classes_and_rows() -> None:
    """6.4, 6.G: shown on a head that normalises over the wrong axis, and on probabilities taken for logits."""

    class _WrongAxis(RetrievalClassificationHead):
        def forward(self, *args: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            probabilities, extra = super().forward(*args)
            return probabilities * 2, extra

    network = rerandomised_network(TaskKind.CLASSIFICATION)
    assert probabilities(Case.of(Subject(network=network))).passed
    network.head.__class__ = _WrongAxis
    result = probabilities(Case.of(Subject(network=network)))
    assert (result.passed, result.stage) == (False, Stage.HEAD) and "head unlike weights" in result.message
    result = probabilities(_case(TaskKind.CLASSIFICATION, "p_as_logits"))
    assert not result.passed and "prediction unlike head" in result.message
