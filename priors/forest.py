"""Oblivious trees: targets that jump at thresholds of single features.

Stands for rules of thumb, tariffs and protocols, and for the many tables on which boosted trees are strong. A tree of
depth d asks the same d questions on every path; a target is the sum of 1 to many trees. Many shallow trees make smooth
additive effects, few deep ones make interactions.
"""

import dataclasses

import torch

from priors.causes import draw_causes
from priors.columns import Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, below, standardised
from priors.task import ColumnKind

_NUM_SCORES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForestConfig:
    """Sums of oblivious trees."""

    max_trees: int = 24
    """Most trees of a task."""
    max_depth: int = 6
    """Most questions of a tree."""
    equality_share: float = 0.5
    """Share of questions about a category that ask for one level (the others split the codes in two)."""


def sample_forest(draws: Draws, config: ForestConfig, *, request: TableRequest) -> Draft:
    """Draws `count` tasks whose scores are sums of trees over the columns as they are written down."""
    count, rows, features = request.count, request.rows, request.features
    raw = draw_causes(draws, request.causes, count=count, causes=features, rows=rows)
    table = draw_columns(draws, raw, config=request.columns)
    depth = draws.integers((count,), low=1, high=config.max_depth)
    trees = draws.counts((count,), low=1, high=config.max_trees)
    most = int(trees.max())
    relevant = draws.counts((count,), low=1, high=features)
    relevant = torch.where(draws.happens((count,), share=0.4), features, relevant)
    chosen = draws.uniform((count, features)).argsort(-1).argsort(-1) < relevant.unsqueeze(-1)
    importance = (draws.normal((count, features)) * draws.uniform((count, 1), high=1.5)).exp() * chosen
    leaf = _leaves(draws, table, config=config, importance=importance, depth=depth, trees=most)
    values = _leaf_values(draws, count=count, trees=most, depth=config.max_depth)
    weights = draws.normal((count, most)).mul(0.5).exp() * below(trees, size=most)
    scores = [(values[:, s].gather(2, leaf) * weights.unsqueeze(-1)).sum(1) for s in range(_NUM_SCORES)]
    facts = {"depth": depth, "trees": trees, "relevant": relevant}
    return Draft(
        columns=table,
        scores=standardised(torch.stack(scores, dim=1)),
        classes=torch.full((count, rows), -1),
        loudness=torch.ones(count),
        facts=facts,
    )


def _leaves(
    draws: Draws, table: Columns, *, config: ForestConfig, importance: torch.Tensor, depth: torch.Tensor, trees: int
) -> torch.Tensor:
    """[B, T, R] the leaf that each row reaches in each tree."""
    count, _, rows = table.values.shape
    questions = trees * config.max_depth
    index = torch.multinomial(importance, questions, replacement=True, generator=draws.generator)
    asked = table.values.gather(1, index.unsqueeze(-1).expand(-1, -1, rows))
    sample = draws.integers((count, questions, 3), low=0, high=rows - 1)
    border = asked.gather(2, sample).median(-1, keepdim=True).values
    category = table.kinds.gather(1, index) == ColumnKind.CATEGORY
    equal = category & draws.happens((count, questions), share=config.equality_share)
    answers = (asked > border).view(-1, rows)
    same = equal.view(-1).nonzero().squeeze(-1)
    answers[same] = asked.view(-1, rows)[same] == border.view(-1, 1)[same]
    answers = answers.view(count, trees, config.max_depth, rows)
    leaf = torch.zeros((count, trees, rows), dtype=torch.int64)
    own_depth = (depth.unsqueeze(-1) - draws.integers((count, trees), low=0, high=2)).clamp(min=1)
    for level in range(config.max_depth):
        leaf += (answers[:, :, level] & (own_depth > level).unsqueeze(-1)) << level
    return leaf


def _leaf_values(draws: Draws, *, count: int, trees: int, depth: int) -> torch.Tensor:
    """[B, S, T, 2^depth] what the leaves are worth: unrelated, additive in the answers, long-tailed, or one of all."""
    shape = (count, _NUM_SCORES, trees, 2**depth)
    style = draws.choice((count, 1, 1, 1), weights=(4, 4, 1, 1))
    bits = ((torch.arange(2**depth).unsqueeze(0) >> torch.arange(depth).unsqueeze(1)) & 1).float()
    additive = draws.normal((count, _NUM_SCORES, trees, depth)) @ bits
    free = draws.normal(shape)
    out = torch.where(style == 1, additive + 0.3 * free, free)
    out = torch.where(style == 2, free**3, out)
    single = torch.arange(2**depth) == draws.integers((count, _NUM_SCORES, trees, 1), low=0, high=7)
    return torch.where(style == 3, single * torch.sign(free), out)
