"""Tests of priors.forest: scores are what oblivious trees can say."""

import dataclasses

import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft
from priors.draws import Draws
from priors.forest import ForestConfig, sample_forest
from priors.task import ColumnKind


def make(config: ForestConfig, *, features: int = 6, rows: int = 300, seed: int = 0) -> Draft:
    """40 tasks."""
    shape = {"count": 40, "rows": rows, "features": features}
    return sample_forest(Draws(seed), config, causes=CauseConfig(), columns=ColumnConfig(), **shape)


def test_a_single_tree_of_depth_d_has_at_most_two_to_the_d_values() -> None:
    draft = make(ForestConfig(max_trees=1))
    for task, depth in zip(draft.scores, draft.facts["depth"].tolist(), strict=True):
        assert len(task[0].round(decimals=3).unique()) <= 2**depth
    assert set(draft.facts["depth"].tolist()) == {1, 2, 3, 4, 5, 6}


def test_a_stump_splits_one_column_at_a_threshold_or_at_a_level() -> None:
    draft = make(ForestConfig(max_trees=1, max_depth=1))
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


def test_scores_depend_on_the_columns_alone() -> None:
    """Rows with equal cells have equal scores."""
    draft = make(ForestConfig(), features=2, rows=600)
    compared = 0
    for values, scores in zip(draft.columns.values, draft.scores, strict=True):
        _, inverse = values.T.unique(dim=0, return_inverse=True)
        for cell in range(int(inverse.max()) + 1):
            same = scores[:, inverse == cell]
            compared += same.shape[1] > 1
            assert (same - same[:, :1]).abs().max() < 1e-4
    assert compared > 100


def test_a_task_has_its_own_number_of_trees() -> None:
    draft = make(ForestConfig())
    single = (draft.facts["trees"] == 1).nonzero().squeeze(-1).tolist()
    assert len(single) >= 3
    for task in single:
        assert len(draft.scores[task, 0].round(decimals=3).unique()) <= 2 ** int(draft.facts["depth"][task])


def test_more_trees_make_more_values_and_tasks_differ() -> None:
    draft = make(ForestConfig())
    values = torch.tensor([len(task[0].round(decimals=3).unique()) for task in draft.scores])
    assert values.min() <= 8 and values.max() > 100
    assert draft.scores.isfinite().all() and (draft.classes == -1).all()


def test_relevant_columns_are_the_only_ones_asked_about() -> None:
    config = dataclasses.replace(ForestConfig(), max_trees=24, max_depth=2)
    draft = make(config, features=10)
    single = (draft.facts["relevant"] == 1).nonzero().squeeze(-1).tolist()
    assert single
    for task in single:
        explained = []
        for column in draft.columns.values[task]:
            _, inverse = column.unique(return_inverse=True)
            spread = [draft.scores[task, 0][inverse == code].std(correction=0) for code in inverse.unique()]
            explained.append(float(torch.stack(spread).max()))
        assert min(explained) < 1e-4
