"""Tests of priors.trees: what the leaf of a row says, in trees over tables whose cells are known."""

import dataclasses
import math

import pytest
import torch

from priors.columns import Columns
from priors.draws import Draws
from priors.task import ColumnKind
from priors.trees import TreePlan, path_worth, walk

TASKS, FEATURES, ROWS = 40, 4, 200
BOTH = pytest.mark.parametrize("oblivious", [True, False], ids=["oblivious", "branching"])


def table_of(kind: ColumnKind = ColumnKind.NUMBER) -> Columns:
    """Forty tables of four columns: different numbers, or one of six levels."""
    number = kind is ColumnKind.NUMBER
    draws = Draws(0)
    cells = draws.normal((TASKS, FEATURES, ROWS))
    cells = cells if number else draws.integers(cells.shape, low=0, high=5).float()
    size = cells.shape[:2]
    kinds = torch.full(size, int(kind), dtype=torch.int8)
    return Columns(values=cells, signal=cells, kinds=kinds, levels=torch.full(size, 0 if number else 6))


def plan_of(*, oblivious: bool, depth: int = 1, importance: tuple[float, ...] = (1.0,) * FEATURES) -> TreePlan:
    """Two trees a task; the first half has `depth` questions, the others one less, but one at least."""
    deep = torch.full((TASKS,), depth)
    return TreePlan(
        task=torch.arange(TASKS).repeat(2),
        depth=torch.cat([deep, (deep - 1).clamp(min=1)]),
        levels=depth,
        oblivious=oblivious,
        importance=torch.tensor(importance).expand(TASKS, -1),
        equality_share=0.5,
        early_share=0.0,
    )


def runs(leaves: torch.Tensor, column: torch.Tensor) -> int:
    """How many runs of equal leaves there are along a column."""
    return 1 + int((leaves[column.argsort(stable=True)].diff() != 0).sum())


@BOTH
def test_one_question_about_a_number_parts_its_range_in_two(oblivious: bool) -> None:
    table = table_of()
    plan = plan_of(oblivious=oblivious, importance=(0.0, 0.0, 1.0, 0.0))
    leaves = walk(Draws(1), table, plan=plan)
    assert leaves.index.shape == (2 * TASKS, ROWS)
    for tree, task in enumerate(plan.task.tolist()):
        assert runs(leaves.index[tree], table.values[task, 2]) == 2
        highest = table.values[task, 2].argmax()
        assert leaves.index[tree, highest] == 1
    assert leaves.split.any(0).tolist() == [False, False, True, False] and leaves.split[:, 2].all()


@BOTH
def test_questions_about_categories_ask_for_one_level_or_for_the_codes_above_one(oblivious: bool) -> None:
    table = table_of(ColumnKind.CATEGORY)
    ways = {}
    for share in (0.0, 1.0):
        plan = dataclasses.replace(plan_of(oblivious=oblivious, importance=(1.0, 0.0, 0.0, 0.0)), equality_share=share)
        index = walk(Draws(1), table, plan=plan).index
        right = [set(table.values[task, 0][index[tree] == 1].tolist()) for tree, task in enumerate(plan.task.tolist())]
        left = [set(table.values[task, 0][index[tree] == 0].tolist()) for tree, task in enumerate(plan.task.tolist())]
        assert all(not a & b for a, b in zip(left, right, strict=True))
        ways[share] = set(map(frozenset, right))
    assert ways[0.0] <= {frozenset(range(low, 6)) for low in range(1, 6)}
    assert ways[1.0] == {frozenset([level]) for level in range(6)}


@BOTH
def test_shallow_trees_use_every_other_leaf_of_the_deep_ones(oblivious: bool) -> None:
    """All trees have leaves of the deepest level, so that one table of values serves them all."""
    index = walk(Draws(1), table_of(), plan=plan_of(oblivious=oblivious, depth=3)).index
    deep, shallow = index[:TASKS], index[TASKS:]
    assert deep.max() == 7 and shallow.max() == 6 and (shallow % 2 == 0).all() and (deep % 2 == 1).any()


def test_a_level_of_an_oblivious_tree_asks_one_question_and_one_of_a_branching_tree_many() -> None:
    asked = {}
    for oblivious in (True, False):
        plan = dataclasses.replace(
            plan_of(oblivious=oblivious, depth=2), task=torch.arange(TASKS), depth=torch.full((TASKS,), 2)
        )
        leaves = walk(Draws(1), table_of(), plan=plan)
        asked[oblivious] = float(leaves.split.sum(-1).float().mean())
        if oblivious:
            assert leaves.split.sum(-1).max() == 2
            second = leaves.index % 2
            told = [any(runs(second[task], column) == 2 for column in table_of().values[task]) for task in range(TASKS)]
            assert all(told)
    assert asked[True] < asked[False]


@BOTH
def test_what_is_said_of_columns_that_part_rows_is_true(oblivious: bool) -> None:
    """A column is noted where it is asked about and rows went both ways, and no other: constant ones never."""
    table = table_of()
    table.values[:, 1] = 0.0
    split = walk(Draws(1), table, plan=plan_of(oblivious=oblivious, depth=3)).split
    assert not split[:, 1].any() and split[:, [0, 2, 3]].float().mean() > 0.5


def test_important_columns_are_asked_about_more_often() -> None:
    plan = plan_of(oblivious=True, importance=(8.0, 1.0, 1.0, 0.0))
    share = walk(
        Draws(1), table_of(), plan=dataclasses.replace(plan, task=torch.arange(TASKS), depth=plan.depth[:TASKS])
    )
    found = share.split.float().mean(0)
    assert found[0] > 0.6 and found[3] == 0 and found.sum() == pytest.approx(1)


def test_early_leaves_end_paths_of_branching_trees() -> None:
    plan = plan_of(oblivious=False, depth=3)
    number = {}
    for share in (0.0, 1.0):
        index = walk(Draws(1), table_of(), plan=dataclasses.replace(plan, early_share=share)).index
        number[share] = max(len(tree.unique()) for tree in index)
    assert number == {0.0: 8, 1.0: 2}


@BOTH
def test_trees_of_a_seed_are_the_same_trees(oblivious: bool) -> None:
    first, again, other = (
        walk(Draws(seed), table_of(), plan=plan_of(oblivious=oblivious, depth=3)).index for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_effects_of_answers_add_up_in_oblivious_trees_alone() -> None:
    """The interaction of two questions: the sum of the four leaves with alternating signs."""
    shapes = {"trees": 300, "levels": 2, "scores": 2}
    for oblivious in (True, False):
        worth = path_worth(Draws(0), oblivious=oblivious, **shapes)
        assert worth.shape == (300, 2, 4)
        interaction = (worth * torch.tensor([1.0, -1.0, -1.0, 1.0])).sum(-1).abs()
        assert (interaction.max() < 1e-5) == oblivious


def test_near_leaves_are_worth_nearly_the_same() -> None:
    worth = path_worth(Draws(0), trees=400, levels=4, scores=1, oblivious=False)[:, 0]
    near, far = worth[:, 0] - worth[:, 1], worth[:, 0] - worth[:, -1]
    assert near.std() == pytest.approx(math.sqrt(2) * 0.8**3, rel=0.1)
    assert far.std() == pytest.approx(math.sqrt(2 * sum(0.64**level for level in range(4))), rel=0.1)
