"""The audit of the training loader relabels query records and nothing else, and sees a loader that reads labels."""

import dataclasses

import numpy as np
import pytest

from eval.case import Case
from eval.loader_audit import NUM_TASKS, loader
from eval.small_network import rerandomised_network
from eval.subject import Subject, load_batch
from eval.tracing import Stage
from priors.shards import ShardSet
from priors.task import TaskBatch, TaskKind


def _case(kind: TaskKind, **others: object) -> Case:
    return Case.of(dataclasses.replace(Subject(network=rerandomised_network(kind)), **others))


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_real_loader_passes(kind: TaskKind) -> None:
    """5.A: from shards on disk through random rows, columns, class slots and the cut."""
    result = loader(_case(kind))
    assert result.passed, result.message
    assert result.figures["relabelled_rows"] >= NUM_TASKS * 10 and result.figures["control"] > 1e-3


@pytest.mark.parametrize("kind", list(TaskKind))
def test_features_made_from_labels_are_caught_at_collation(kind: TaskKind) -> None:
    """5.E: such as a column that counts the labels of the whole table."""

    def counting(records: ShardSet, index: int) -> TaskBatch:
        batch = load_batch(records, index)
        x = batch.x_context.copy()
        x[:, :, 0] += batch.y_query.mean(1, keepdims=True) - batch.y_query[:, :1]
        return dataclasses.replace(batch, x_context=x)

    result = loader(_case(kind, load=counting))
    assert (result.passed, result.stage) == (False, Stage.COLLATE)


def test_answers_that_do_not_follow_the_records_are_called_blind() -> None:
    """5.A: a loader that loses the answers would pass anything."""

    def losing(records: ShardSet, index: int) -> TaskBatch:
        batch = load_batch(records, index)
        return dataclasses.replace(batch, y_query=np.zeros_like(batch.y_query))

    result = loader(_case(TaskKind.CLASSIFICATION, load=losing))
    assert not result.passed and "blind" in result.message
