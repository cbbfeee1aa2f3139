"""The audits of sets fail where they must; permutation alone is blind to what the query set shows."""

import dataclasses

import numpy as np
import pytest

from eval.case import Case
from eval.mutants import mutated
from eval.query_audits import context_order, padding, query_permutation, query_set
from eval.small_network import rerandomised_network
from eval.subject import Outcome, Subject, estimate
from eval.tracing import Stage
from model.network import Network
from priors.task import Episode, TaskBatch, TaskKind, collate


def _case(kind: TaskKind, mutant: str = "") -> Case:
    subject = Subject(network=rerandomised_network(kind))
    return Case.of(mutated(mutant, subject) if mutant else subject)


@pytest.mark.parametrize("mutant", ["query_reads_query", "normalise_with_query", "all_rows_are_keys"])
@pytest.mark.parametrize("kind", list(TaskKind))
def test_only_changing_the_other_queries_shows_what_permutation_cannot(mutant: str, kind: TaskKind) -> None:
    """5.C: both are equivariant under permutation of the queries."""
    case = _case(kind, mutant)
    assert query_permutation(case).passed
    assert not query_set(case).passed


@pytest.mark.parametrize("kind", list(TaskKind))
def test_replaced_queries_move_nothing_at_all(kind: TaskKind) -> None:
    """5.C, 5.9: in equal shapes bit by bit, NaN and 1e30 included; one at a time as all at once."""
    result = query_set(_case(kind))
    assert result.passed, result.message
    assert result.figures["largest_equal_shape"] == 0.0
    assert result.figures["largest_other_shape"] <= result.figures["tolerance"] < 1e-4
    assert result.figures["estimator_one_at_a_time"] < 1e-9


@pytest.mark.parametrize("occasion", ["a missing row", "one query", "two queries", "many queries"])
def test_each_change_of_the_other_queries_is_made(occasion: str) -> None:
    """5.C: replaced, dropped, added: here predictions move on one occasion only."""

    def moody(episodes: list[Episode]) -> TaskBatch:
        batch = collate(episodes)
        count = batch.x_query.shape[1]
        missing = bool(np.isnan(batch.x_query).all(2).any())
        moods = {"a missing row": missing, "one query": count == 1, "two queries": count == 2}
        if moods.get(occasion, count > 9):
            batch.x_query[:, :, 0] = np.float32(0.5)
        return batch

    result = query_set(Case.of(Subject(network=rerandomised_network(TaskKind.CLASSIFICATION), collate=moody)))
    assert (result.passed, result.stage) == (False, Stage.COLLATE), result.message


def test_an_estimator_that_looks_at_all_queries_is_caught() -> None:
    """5.9, 5.F: here the number of queries scales every answer."""

    def counting(network: Network, episode: Episode) -> Outcome:
        found = estimate(network, episode)
        return dataclasses.replace(found, prediction=found.prediction * (1 + 1e-4 * len(found.answers)))

    case = Case.of(Subject(network=rerandomised_network(TaskKind.CLASSIFICATION), estimate=counting))
    result = query_set(case)
    assert (result.passed, result.stage) == (False, Stage.ESTIMATOR)


def test_positions_of_queries_are_seen() -> None:
    """5.C: what the causal mask gives to later queries."""
    result = query_permutation(_case(TaskKind.CLASSIFICATION, "causal_mask"))
    assert (result.passed, result.stage) == (False, Stage.MASK)


def test_positions_of_context_rows_are_seen() -> None:
    """1.4, 5.C: the causal mask again, and a collation that marks the first row."""
    assert context_order(_case(TaskKind.REGRESSION, "causal_mask")).stage == Stage.MASK

    def marked(episodes: list[Episode]) -> TaskBatch:
        batch = collate(episodes)
        batch.x_context[:, 0] += 3.0
        return batch

    case = Case.of(Subject(network=rerandomised_network(TaskKind.REGRESSION), collate=marked))
    result = context_order(case)
    assert (result.passed, result.stage) == (False, Stage.COLLATE)


def test_other_tables_of_a_batch_are_seen() -> None:
    """5.7: a batch that is normalised as a whole."""

    def shared(episodes: list[Episode]) -> TaskBatch:
        batch = collate(episodes)
        y = batch.y_context - np.where(batch.context_mask, batch.y_context, 0.0).mean()
        return dataclasses.replace(batch, y_context=y.astype(np.float32) ** 2)

    case = Case.of(Subject(network=rerandomised_network(TaskKind.REGRESSION), collate=shared))
    assert not padding(case).passed


@pytest.mark.parametrize("kind", list(TaskKind))
def test_what_stands_in_padded_rows_is_seen(kind: TaskKind) -> None:
    """5.7: columns that read padded rows; the mask of the ICL stage is right, so only this audit sees it."""
    result = padding(_case(kind, "padding_read_by_columns"))
    assert (result.passed, result.stage) == (False, Stage.COLUMN)
    assert padding(_case(kind)).figures["padded_rows"] > 0
