"""The tables of the audits are what the audits rely on."""

import numpy as np
import pytest

from eval.specimens import (
    relabelled,
    specimens,
    with_context,
    with_context_labels_changed,
    with_labels,
    with_queries,
)
from priors.task import ColumnKind, TaskKind, collate


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_batch_of_specimens_pads_rows_queries_and_columns(kind: TaskKind) -> None:
    """5.A, 5.7: several queries, and padding of every sort."""
    batch = collate(specimens(kind))
    assert not batch.context_mask.all() and not batch.query_mask.all()
    assert (batch.column_kinds == ColumnKind.ABSENT).any()
    assert batch.query_mask.sum(1).min() > 2


@pytest.mark.parametrize("kind", list(TaskKind))
def test_specimens_hold_missing_values_infinities_and_every_kind_of_column(kind: TaskKind) -> None:
    """5.11: what tables may hold."""
    for episode in specimens(kind):
        task = episode.task
        assert np.isnan(task.x).any() and np.isinf(task.x).any()
        assert {ColumnKind.NUMBER, ColumnKind.ORDINAL, ColumnKind.CATEGORY} <= set(task.column_kinds.tolist())
        unseen = set(episode.evidence().x_query[:, -1]) - set(episode.evidence().x_context[:, -1])
        assert 4.0 in unseen, "one query has a level that the context lacks"
        assert np.isfinite(task.y).all()


def test_every_class_is_in_the_context_and_among_the_answers() -> None:
    """Relabelling then changes no vocabulary by accident."""
    for episode in specimens(TaskKind.CLASSIFICATION):
        classes = list(range(episode.task.num_classes))
        assert np.unique(episode.evidence().y_context).tolist() == classes
        assert np.unique(episode.answers()).tolist() == classes


@pytest.mark.parametrize("kind", list(TaskKind))
def test_specimens_are_deterministic_and_fit_the_network(kind: TaskKind) -> None:
    """The same seed, the same bytes; limits are kept."""
    for a, b in zip(specimens(kind, seed=3), specimens(kind, seed=3), strict=True):
        assert a.task.x.tobytes() == b.task.x.tobytes() and a.task.y.tobytes() == b.task.y.tobytes()
    small = specimens(kind, max_features=1, max_classes=2)
    assert {episode.task.x.shape[1] for episode in small} == {1}
    assert max(episode.task.num_classes for episode in small) <= 2


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("variant", [0, 1, 2])
def test_relabelling_changes_query_labels_and_nothing_else(kind: TaskKind, variant: int) -> None:
    """5.A: only the evaluation copy of y_query."""
    for episode in specimens(kind):
        other, cut = relabelled(episode, variant), episode.num_context
        assert not np.array_equal(other.answers(), episode.answers())
        assert np.array_equal(other.task.y[:cut], episode.task.y[:cut])
        assert other.task.x is episode.task.x
        if kind is TaskKind.CLASSIFICATION:
            assert set(other.answers()) <= set(range(episode.task.num_classes))


def test_the_other_changes_do_what_they_say() -> None:
    """Context labels, queries, order."""
    episode = specimens(TaskKind.CLASSIFICATION)[0]
    cut, evidence = episode.num_context, episode.evidence()
    changed = with_context_labels_changed(episode, [1])
    assert np.flatnonzero(changed.task.y != episode.task.y).tolist() == [1]
    assert with_labels(episode, rows=slice(0, 2), labels=np.array([9.0, 8.0])).task.y[:2].tolist() == [9.0, 8.0]
    longer = with_queries(episode, np.zeros((9, evidence.x_query.shape[1])))
    assert longer.evidence().x_query.shape[0] == len(longer.answers()) == 9
    assert np.array_equal(longer.evidence().y_context, evidence.y_context)
    order = np.arange(cut)[::-1]
    turned = with_context(episode, order)
    assert np.array_equal(turned.evidence().x_context, evidence.x_context[order], equal_nan=True)
    assert np.array_equal(turned.evidence().y_context, evidence.y_context[order])
    assert np.array_equal(turned.evidence().x_query, evidence.x_query, equal_nan=True)
