"""The audit of hidden labels: what it measures on clean networks, and the ways in which it fails."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from eval.ablation_audit import context_ablation
from eval.case import Case
from eval.mutants import mutated
from eval.small_network import rerandomised_network, small_network, trained_network
from eval.subject import Outcome, Prediction, Subject, outcomes
from eval.tracing import Stage
from model.classification_head import LabelMemory, RowReadingHead
from model.network import Network
from priors.task import TaskBatch, TaskKind


@pytest.mark.parametrize("kind", list(TaskKind))
def test_without_labels_a_trained_network_knows_nothing(kind: TaskKind) -> None:
    """5.B: at chance, uniform, and far from what it says with labels."""
    network, _ = trained_network(kind, num_steps=60)
    result = context_ablation(Case.of(Subject(network=network)))
    assert result.passed, result.message
    assert result.figures["largest_move"] == 0.0
    assert result.figures["not_uniform"] < 1e-6
    assert result.figures["p_value"] > 0.01
    assert result.figures["control"] > 0.05


def test_answers_that_reach_the_prediction_are_told_by_the_permutation_test() -> None:
    """5.B: the scorer slips the answers in; nothing else in the audit looks at it."""

    def slipped(prediction: Prediction, batch: TaskBatch) -> list[Outcome]:
        return [
            dataclasses.replace(found, prediction=np.eye(10)[found.answers.astype(int)])
            for found in outcomes(prediction, batch)
        ]

    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION), scorer=slipped)
    result = context_ablation(Case.of(subject))
    assert (result.passed, result.stage) == (False, Stage.HEAD)
    assert "better than chance" in result.message and result.figures["p_value"] < 1e-3


def test_a_head_that_prefers_a_class_without_labels_is_not_uniform() -> None:
    """5.B: it must be uniform where it knows no label."""

    class _Preferring(RowReadingHead):
        def read(self, query_hidden: Tensor, memory: LabelMemory) -> Tensor:
            probabilities = super().read(query_hidden, memory)
            return probabilities + 0.5 * (torch.arange(probabilities.shape[-1]) == 0)

    network = rerandomised_network(TaskKind.CLASSIFICATION)
    network.head.__class__ = type("_Head", (_Preferring, type(network.head)), {})
    result = context_ablation(Case.of(Subject(network=network)))
    assert (result.passed, result.stage) == (False, Stage.HEAD) and "uniform" in result.message


def test_the_entry_at_which_a_hidden_label_gets_in_is_named() -> None:
    """5.B, 5.F: columns, head; and the target's scale in regression."""
    classes = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION))
    numbers = Subject(network=rerandomised_network(TaskKind.REGRESSION))
    for name, subject, stage in (
        ("columns_keep_hidden_labels", classes, Stage.COLUMN),
        ("head_keeps_hidden_labels", classes, Stage.HEAD),
        ("scale_keeps_hidden_labels", numbers, Stage.HEAD),
    ):
        result = context_ablation(Case.of(mutated(name, subject)))
        assert (result.passed, result.stage) == (False, stage), name


def test_a_network_that_ignores_labels_is_called_blind() -> None:
    """5.B: predictions must change where labels are hidden; here they never mattered."""

    class _Ignoring(Network):
        def forward(self, inputs: object) -> Prediction:
            return super().forward(dataclasses.replace(inputs, label_mask=torch.zeros_like(inputs.y_context).bool()))

    network = small_network(TaskKind.CLASSIFICATION)
    network.__class__ = _Ignoring
    result = context_ablation(Case.of(Subject(network=network)))
    assert not result.passed and "blind" in result.message
