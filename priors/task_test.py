"""Tests of priors.task: evidence without answers, and padding."""

import dataclasses

import numpy as np

from priors.task import ColumnKind, Episode, Evidence, Task, TaskKind, collate


def make_episode(rows: int, features: int, *, cut: int, family: str = "test") -> Episode:
    """An episode whose x counts cells from 1 and whose y counts rows from 1."""
    task = Task(
        x=np.arange(1, rows * features + 1, dtype=np.float32).reshape(rows, features),
        y=np.arange(1, rows + 1, dtype=np.float32),
        column_kinds=np.full(features, ColumnKind.ORDINAL, np.int8),
        level_counts=np.full(features, 3, np.int32),
        kind=TaskKind.REGRESSION,
        num_classes=0,
        family=family,
    )
    return Episode(task=task, num_context=cut)


def test_evidence_has_no_place_for_a_query_label() -> None:
    """5.8: what a predictor gets cannot hold the answers."""
    episode = make_episode(5, 2, cut=3)
    evidence = episode.evidence()
    assert not [field.name for field in dataclasses.fields(Evidence) if field.name in ("y", "y_query")]
    arrays = [value for value in vars(evidence).values() if isinstance(value, np.ndarray) and value.dtype == np.float32]
    assert not any(np.isin(episode.answers(), array).any() for array in [evidence.y_context])
    assert {array.shape[0] for array in arrays} == {3, 2}


def test_context_and_query_meet_without_gap_or_overlap() -> None:
    """5.4: row 0 of the context and row 0 of the query are both present."""
    episode = make_episode(5, 2, cut=3)
    evidence = episode.evidence()
    np.testing.assert_array_equal(np.concatenate([evidence.x_context, evidence.x_query]), episode.task.x)
    np.testing.assert_array_equal(np.concatenate([evidence.y_context, episode.answers()]), episode.task.y)
    assert evidence.x_query[0, 0] == 7 and episode.answers()[0] == 4


def test_collating_pads_at_the_end_and_marks_it() -> None:
    """5.7: padding is masked and zero; real cells are untouched."""
    small, large = make_episode(4, 1, cut=1, family="small"), make_episode(9, 3, cut=5, family="large")
    batch = collate([small, large])
    assert batch.x_context.shape == (2, 5, 3) and batch.x_query.shape == (2, 4, 3)
    assert batch.context_mask.sum(1).tolist() == [1, 5] and batch.query_mask.sum(1).tolist() == [3, 4]
    np.testing.assert_array_equal(batch.x_context[1], large.evidence().x_context)
    np.testing.assert_array_equal(batch.x_query[0, :3, :1], small.evidence().x_query)
    np.testing.assert_array_equal(batch.y_query[0], [2, 3, 4, 0])
    assert (batch.x_context[0, 1:] == 0).all() and (batch.x_query[0, :, 1:] == 0).all()
    assert batch.column_kinds.tolist() == [[1, ColumnKind.ABSENT, ColumnKind.ABSENT], [1, 1, 1]]
    assert batch.families == ("small", "large") and batch.kind is TaskKind.REGRESSION
