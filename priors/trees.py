"""Random decision trees over the columns of many tasks, all grown and walked together.

Trees are packed, T over all tasks, the deepest first: each level asks only the trees that reach it. A tree is a
complete binary tree; the children of node i of a level are nodes 2i and 2i + 1 of the next.
"""

import dataclasses
import math

import torch

from priors.columns import Columns
from priors.draws import Draws
from priors.task import ColumnKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreePlan:
    """Trees to be grown.

    Args:
        task: [T] int64 the task of each tree.
        depth: [T] int64 questions on its longest path, falling from tree to tree.
        levels: the largest depth.
        oblivious: all nodes of a level ask the same question.
        importance: [B, C] how often a column is asked about, not normalised; never below 0.
        equality_share: share of questions about a category that ask for one level (the others split the codes in two).
        early_share: share of inner nodes below the root that are leaves already.
    """

    task: torch.Tensor
    depth: torch.Tensor
    levels: int
    oblivious: bool
    importance: torch.Tensor
    equality_share: float
    early_share: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaves:
    """Args: index [T, R] int64, the leaf of each row; split [B, C] bool, columns that parted some rows."""

    index: torch.Tensor
    split: torch.Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Questions:
    """Of n trees and w nodes each, all [n, w]: flat index of a column; a row goes right where its value is above
    `lower`, or, where `equal` asks for one level, up to 1 above `lower`."""

    column: torch.Tensor
    lower: torch.Tensor
    equal: torch.Tensor


def walk(draws: Draws, table: Columns, *, plan: TreePlan) -> Leaves:
    """Grows the trees and drops every row down each tree of its task."""
    rows = table.values.shape[-1]
    index = torch.zeros((len(plan.task), rows), dtype=torch.int64, device=draws.device)
    bounds = plan.importance.cumsum(-1)[plan.task]
    reached = plan.depth.unsqueeze(0) > draws.arange(plan.levels).unsqueeze(1)
    grow = _grow_oblivious if plan.oblivious else _grow_branching
    asked = grow(draws, table, plan=plan, bounds=bounds, reached=reached, index=index)
    index <<= (plan.levels - plan.depth).unsqueeze(-1)
    return Leaves(index=index, split=_split(table, index=index, asked=asked))


def _grow_oblivious(
    draws: Draws, table: Columns, *, plan: TreePlan, bounds: torch.Tensor, reached: torch.Tensor, index: torch.Tensor
) -> list[torch.Tensor]:
    """Fills in the leaf of each row [T, R]; returns the column asked about at each level by the n trees that reach it
    ([levels, T] bool), [n, 1] each."""
    rows = index.shape[-1]
    sample = draws.integers((3, len(index), plan.levels), low=0, high=rows - 1)
    questions = _ask(draws, table, plan=plan, bounds=bounds, sample=sample)
    column, lower = questions.column.T[reached], questions.lower.T[reached].unsqueeze(-1)
    equal = questions.equal.T[reached].nonzero().squeeze(-1)
    cell = table.values.reshape(-1, rows).index_select(0, column)
    right = cell > lower
    right[equal] &= cell.index_select(0, equal) < lower[equal] + 1
    numbers = reached.sum(1).tolist()
    for part in right.long().split(numbers):
        node = index[: len(part)]
        torch.add(part, node, alpha=2, out=node)
    return list(column.unsqueeze(-1).split(numbers))


def _grow_branching(
    draws: Draws, table: Columns, *, plan: TreePlan, bounds: torch.Tensor, reached: torch.Tensor, index: torch.Tensor
) -> list[torch.Tensor]:
    """The same for trees with a question at every node: columns are [n, 2^level]."""
    values, rows = table.values, index.shape[-1]
    row, order = draws.arange(rows), draws.uniform((rows,)).argsort()
    ended = draws.full((len(index), 1), 0, dtype=torch.bool)
    asked = []
    for level, number in enumerate(reached.sum(1).tolist()):
        node = index[:number]
        sample = _rows_met(draws, node, order=order, width=2**level)
        questions = _ask(draws, table, plan=plan, bounds=bounds[:number], sample=sample)
        lower, equal = questions.lower, questions.equal
        if level:
            ended = ended[:number].repeat_interleave(2, dim=-1)
            ended |= draws.happens(ended.shape, share=plan.early_share)
            lower.masked_fill_(ended, math.inf)  # nobody goes right any more
        cell = values.take((questions.column * rows).gather(1, node).add_(row))
        right = cell > lower.gather(1, node)
        some = equal.any(-1).nonzero().squeeze(-1)
        upper = (lower[some] + 1).masked_fill_(~equal[some], math.inf)
        right[some] &= cell.index_select(0, some) < upper.gather(1, node.index_select(0, some))
        torch.add(right.long(), node, alpha=2, out=node)
        asked.append(questions.column)
    return asked


def _split(table: Columns, *, index: torch.Tensor, asked: list[torch.Tensor]) -> torch.Tensor:
    """[B, C] bool: columns asked about at a node [n, w] of some level from which rows went both ways."""
    count, features, _ = table.values.shape
    split = torch.zeros(count * features, dtype=torch.bool, device=index.device)
    met = torch.zeros((len(index), 2 ** len(asked)), dtype=torch.bool, device=index.device).scatter_(1, index, True)
    for level in reversed(range(len(asked))):
        column = asked[level].expand(-1, 2**level)
        both = met[: len(column), ::2] & met[: len(column), 1::2]
        split[column[both]] = True
        met = met[:, ::2] | met[:, 1::2]
    return split.view(count, features)


def _rows_met(draws: Draws, node: torch.Tensor, *, order: torch.Tensor, width: int) -> torch.Tensor:
    """[3, n, width] three random rows at each node; any row where there is none. `node` is [n, R].

    Every tree numbers the rows by one random `order` [R], begun at another row each time; the last row at a node is
    taken.
    """
    number, rows = node.shape
    start = draws.integers((3 * number, 1), low=0, high=rows - 1)
    keys = order.repeat(2).unfold(0, rows, 1).index_select(0, start.view(-1))
    last = torch.zeros((3 * number, width), dtype=torch.int64, device=node.device)
    last.scatter_reduce_(1, node.repeat(3, 1), keys, "amax")
    return (order.argsort()[last] - start).remainder_(rows).view(3, number, width)


def _ask(draws: Draws, table: Columns, *, plan: TreePlan, bounds: torch.Tensor, sample: torch.Tensor) -> _Questions:
    """Draws questions for nodes with sampled rows [3, n, w]: a column by importance, and a border near the middle
    of its cells, or a level, that parts the sampled rows if anything does."""
    _, features, rows = table.values.shape
    shape = sample.shape[1:]
    spots = draws.uniform(shape, high=1 - 1e-6) * bounds[:, -1:]
    feature = torch.searchsorted(bounds, spots, right=True).clamp_(max=features - 1)
    column = plan.task[: len(bounds)].unsqueeze(-1) * features + feature
    first, second, third = table.values.take(sample + column * rows)
    low, high = first.minimum(second), first.maximum(second)
    middle = low.maximum(high.minimum(third))
    border = torch.where(middle < high.maximum(third), middle, low.minimum(third))
    equal = table.kinds.take(column) == ColumnKind.CATEGORY
    equal &= draws.happens(shape, share=plan.equality_share)
    return _Questions(column=column, lower=torch.where(equal, middle - 0.5, border), equal=equal)


def path_worth(draws: Draws, *, trees: int, levels: int, scores: int, oblivious: bool) -> torch.Tensor:
    """[T, S, 2^levels] leaf values that add up along the path: near leaves are worth nearly the same.

    In oblivious trees an answer is worth the same on every path, so that these are sums of effects of single questions.
    """
    worth = draws.normal((trees, scores, 1))
    for level in range(levels):
        if oblivious:
            step = draws.normal((trees, scores, 2)).repeat(1, 1, 2**level)
        else:
            step = draws.normal((trees, scores, 2 ** (level + 1))) * 0.8**level
        worth = worth.repeat_interleave(2, dim=-1) + step
    return worth
