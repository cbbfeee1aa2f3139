"""Tests of priors.splits: no row is lost, and the sides hold the classes that were asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.splits import ClassCover, SplitConfig, as_episode, swaps
from priors.task import Task, TaskKind
from tools.failure import BadInput


@given(labels=st.lists(st.integers(0, 4), min_size=4, max_size=30), data=st.data())
@settings(max_examples=200, deadline=None)
def test_swaps_bring_classes_into_the_context_without_losing_any(labels: list[int], data: st.DataObject) -> None:
    y = np.unique(np.array(labels), return_inverse=True)[1].astype(np.float32)
    cut = data.draw(st.integers(1, len(y) - 1))
    moves = swaps(y, cut=cut)
    order = np.arange(len(y))
    for a, b in moves:
        assert a < cut <= b
        order[a], order[b] = order[b], order[a]
    assert sorted(order) == list(range(len(y)))
    before, after = set(y[:cut]), set(y[order][:cut])
    assert before <= after
    assert len(after) == min(cut, len(set(y)))


def test_an_episode_keeps_every_row_and_covers_all_classes() -> None:
    y = np.array([0] * 28 + [1, 1], np.float32)
    x = np.arange(30, dtype=np.float32)[:, None]
    task = Task(
        x=x,
        y=y,
        column_kinds=np.zeros(1, np.int8),
        level_counts=np.zeros(1, np.int32),
        kind=TaskKind.CLASSIFICATION,
        num_classes=2,
        family="test",
    )
    for seed in range(20):
        episode = as_episode(task, share=0.2, seed=seed)
        assert episode.num_context == 6 and set(episode.task.y[:6]) == {0, 1}
        np.testing.assert_array_equal(episode.task.y, y[episode.task.x[:, 0].astype(int)])
        assert sorted(episode.task.x[:, 0]) == list(range(30))


@given(labels=st.lists(st.integers(0, 4), min_size=4, max_size=40), data=st.data())
@settings(max_examples=300, deadline=None)
def test_both_sides_hold_every_class_that_has_two_rows_and_room(labels: list[int], data: st.DataObject) -> None:
    y = np.unique(np.array(labels), return_inverse=True)[1].astype(np.float32)
    sizes = np.bincount(y.astype(int))
    cut = data.draw(st.integers(1, len(y) - 1))
    moves = swaps(y, cut=cut, cover=ClassCover.BOTH)
    assert len({row for pair in moves for row in pair}) == 2 * len(moves)
    order = np.arange(len(y))
    for a, b in moves:
        assert a < cut <= b
        order[a], order[b] = order[b], order[a]
    context, query = set(y[order][:cut]), set(y[order][cut:])
    assert len(context) == min(cut, len(sizes))
    if (sizes >= 4).all() and 2 * len(sizes) <= min(cut, len(y) - cut):
        assert context == query == set(range(len(sizes)))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (0.5, 1.0), (0.6, 0.5), (-1.0, 0.5)])
def test_impossible_shares_are_refused_by_name(low: float, high: float) -> None:
    with pytest.raises(BadInput, match=f"min-share {low}, max-share {high}"):
        SplitConfig(min_share=low, max_share=high)
