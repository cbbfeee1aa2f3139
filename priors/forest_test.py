"""Tests of priors.forest: scores are what oblivious and branching trees can say."""

import dataclasses

import pytest
import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.forest import ForestConfig, sample_forest
from priors.task import ColumnKind, TaskKind

OBLIVIOUS = ForestConfig(branching_share=0.0)
BRANCHING = ForestConfig(branching_share=1.0)
BOTH = [OBLIVIOUS, BRANCHING]
NAMES = ["oblivious", "branching"]
PLAIN = ColumnConfig(copied_share=0.0, constant_share=0.0)


def make(
    config: ForestConfig, *, features: int = 6, rows: int = 300, count: int = 40, columns: ColumnConfig = PLAIN
) -> Draft:
    """Tasks without copied columns."""
    request = TableRequest(
        kind=TaskKind.CLASSIFICATION,
        count=count,
        rows=rows,
        features=features,
        max_classes=10,
        causes=CauseConfig(),
        columns=columns,
    )
    return sample_forest(Draws(0), config, request=request)


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_a_single_tree_of_depth_d_has_at_most_two_to_the_d_values(config: ForestConfig) -> None:
    draft = make(dataclasses.replace(config, max_trees=1))
    for task, depth in zip(draft.scores, draft.facts["depth"].tolist(), strict=True):
        assert len(task[0].round(decimals=3).unique()) <= 2**depth
    assert set(draft.facts["depth"].tolist()) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_a_stump_splits_one_column_at_a_threshold_or_at_a_level(config: ForestConfig) -> None:
    draft = make(dataclasses.replace(config, max_trees=1, max_depth=1), count=160)
    varied = draft.scores[:, 0].std(-1) > 0.5
    assert varied.float().mean() > 0.7
    kinds = []
    for task in varied.nonzero().squeeze(-1).tolist():
        high = draft.scores[task, 0] > 0
        ways = []
        for column, kind in zip(draft.columns.values[task], draft.columns.kinds[task], strict=True):
            for side in (high, ~high):
                edges = (column[side].min() > column[~side].max()) or (column[side].max() < column[~side].min())
                alone = kind == ColumnKind.CATEGORY and len(column[side].unique()) == 1
                alone = alone and not (column[~side] == column[side][0]).any()
                ways += ["threshold"] * bool(edges) + ["inner level"] * bool(alone and not edges)
        assert ways
        kinds += ways
    assert kinds.count("inner level") >= 2


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_scores_depend_on_the_columns_alone(config: ForestConfig) -> None:
    """Rows with equal cells have equal scores."""
    draft = make(config, features=2, rows=600)
    compared = 0
    for values, scores in zip(draft.columns.values, draft.scores, strict=True):
        _, inverse = values.T.unique(dim=0, return_inverse=True)
        for cell in range(int(inverse.max()) + 1):
            same = scores[:, inverse == cell]
            compared += same.shape[1] > 1
            assert (same - same[:, :1]).abs().max() < 1e-4
    assert compared > 100


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_a_task_has_its_own_number_of_trees(config: ForestConfig) -> None:
    draft = make(config)
    single = (draft.facts["trees"] == 1).nonzero().squeeze(-1).tolist()
    assert len(single) >= 3
    for task in single:
        assert len(draft.scores[task, 0].round(decimals=3).unique()) <= 2 ** int(draft.facts["depth"][task])


def test_more_trees_make_more_values_and_tasks_differ() -> None:
    draft = make(ForestConfig())
    values = torch.tensor([len(task[0].round(decimals=3).unique()) for task in draft.scores])
    assert values.min() <= 8 and values.max() > 100
    assert draft.scores.isfinite().all() and (draft.classes == -1).all()


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_relevant_counts_the_columns_that_scores_depend_on(config: ForestConfig) -> None:
    """A single tree's score follows from as many columns as are noted, and from no fewer."""
    draft = make(dataclasses.replace(config, max_trees=1, max_depth=2), features=4, rows=600)
    relevant = draft.facts["relevant"].tolist()
    assert {1, 2} <= set(relevant) and max(relevant) <= (2 if config is OBLIVIOUS else 3)
    for task, number in enumerate(relevant):
        score = draft.scores[task, 0].round(decimals=3)
        told = [column for column in draft.columns.values[task] if is_told_by([column], score)]
        assert bool(told) == (number <= 1) or len(score.unique()) <= 2


@pytest.mark.parametrize("config", BOTH, ids=NAMES)
def test_a_column_that_parts_no_rows_is_not_relevant(config: ForestConfig) -> None:
    """Every task has a constant column; trees ask about it in vain."""
    draft = make(config, features=2, columns=dataclasses.replace(PLAIN, constant_share=1.0))
    assert draft.facts["relevant"].max() == 1


def is_told_by(columns: list[torch.Tensor], score: torch.Tensor) -> bool:
    """Every leaf is an interval, a level or the rest of one column: few runs of equal scores along it."""
    order = torch.stack(columns).sum(0).argsort(stable=True)
    changes = score[order].diff().abs() > 1e-3
    ties = columns[0][order].diff() == 0
    return bool((changes & ~ties).sum() <= 6) and not bool((changes & ties).any())


def test_branching_trees_ask_more_columns_than_oblivious_ones_of_the_same_depth() -> None:
    """An oblivious tree of depth d knows d columns at most; a branching one does not have this bound."""
    asked = {}
    for name, config in zip(NAMES, BOTH, strict=True):
        draft = make(dataclasses.replace(config, max_trees=1, max_depth=6, early_share=0.0), features=20)
        over = draft.facts["relevant"] > draft.facts["depth"]
        asked[name] = int(over.sum())
        assert (draft.facts["branching"] == (config is BRANCHING)).all()
    assert asked["oblivious"] == 0 and asked["branching"] >= 8


def test_early_leaves_end_paths() -> None:
    """Without them a branching tree has many more values than with them everywhere below the root."""
    number = []
    for share in (0.0, 0.5, 1.0):
        draft = make(dataclasses.replace(BRANCHING, max_trees=1, early_share=share))
        number.append(sum(len(task[0].round(decimals=3).unique()) for task in draft.scores) / 40)
    assert number[0] > 1.5 * number[1] > 2 * number[2] and number[2] <= 2


def test_both_kinds_of_trees_are_drawn() -> None:
    share = make(ForestConfig()).facts["branching"].float().mean()
    assert 0.25 < share < 0.75
