"""Trees: targets that jump at thresholds of single features.

Stands for rules of thumb, tariffs and protocols, and for the many tables on which boosted trees are strong. A target is
the sum of 1 to many trees: many shallow trees make smooth additive effects, few deep ones make interactions. Trees are
oblivious (the same questions on every path, as in a scoring sheet) or branching (every node has its own question and
paths end at different depths, as in a random forest or a triage).
"""

import dataclasses

import torch

from priors.causes import draw_causes
from priors.columns import draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, standardised
from priors.trees import TreePlan, path_worth, walk

_NUM_SCORES = 3
_FREE, _ALONG_PATHS, _LONG_TAILED, _ONE_LEAF = range(4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForestConfig:
    """Sums of trees."""

    branching_share: float = 0.5
    """Share of tasks whose trees ask another question at every node (the others have oblivious trees)."""
    all_relevant_share: float = 0.65
    """Share of tasks in which trees may ask about all columns (elsewhere small numbers are common)."""
    max_trees: int = 24
    """Most trees of a task."""
    max_depth: int = 6
    """Most questions on a path of a tree."""
    equality_share: float = 0.5
    """Share of questions about a category that ask for one level (the others split the codes in two)."""
    early_share: float = 0.15
    """Share of a branching tree's inner nodes below the root that are leaves already."""


def sample_forest(draws: Draws, config: ForestConfig, *, request: TableRequest) -> Draft:
    """Draws tasks whose scores are sums of trees over the columns as they are written down.

    Facts: "trees", "depth" (most questions of a tree), "branching" (1 or 0), and "relevant", the number of columns of
    which some question parts some rows.
    """
    count, rows, features = request.count, request.rows, request.features
    raw = draw_causes(draws, request.causes, count=count, causes=features, rows=rows)
    table = draw_columns(draws, raw, config=request.columns)
    depth = draws.integers((count,), low=1, high=config.max_depth)
    trees = draws.counts((count,), low=1, high=config.max_trees)
    branching = draws.happens((count,), share=config.branching_share)
    importance = _importance(draws, config, count=count, features=features)
    scores = torch.zeros((count, _NUM_SCORES, rows), device=raw.device)
    split = torch.zeros((count, features), dtype=torch.bool, device=raw.device)
    for oblivious in (True, False):
        planted = trees * (branching != oblivious)
        plan = _plan(draws, config, trees=planted, depth=depth, importance=importance, oblivious=oblivious)
        if len(plan.task):
            leaves = walk(draws, table, plan=plan)
            split |= leaves.split
            worth = _worth(draws, plan=plan, count=count)
            grown = worth.gather(2, leaves.index.unsqueeze(1).expand(-1, _NUM_SCORES, -1))
            scores.index_add_(0, plan.task, grown)
    return Draft(
        columns=table,
        scores=standardised(scores),
        classes=draws.full((count, rows), -1, dtype=torch.int64),
        loudness=draws.full((count,), 1.0),
        facts={"depth": depth, "trees": trees, "branching": branching, "relevant": split.sum(-1)},
    )


def _importance(draws: Draws, config: ForestConfig, *, count: int, features: int) -> torch.Tensor:
    """[B, C] how often a column is asked about: all columns, or 0 for all but a few."""
    relevant = draws.counts((count,), low=1, high=features)
    relevant = torch.where(draws.happens((count,), share=config.all_relevant_share), features, relevant)
    chosen = draws.uniform((count, features)).argsort(-1).argsort(-1) < relevant.unsqueeze(-1)
    return (draws.normal((count, features)) * draws.uniform((count, 1), high=1.5)).exp_() * chosen


def _plan(
    draws: Draws,
    config: ForestConfig,
    *,
    trees: torch.Tensor,
    depth: torch.Tensor,
    importance: torch.Tensor,
    oblivious: bool,
) -> TreePlan:
    """Packs `trees` [B] trees a task, each at most two questions shallower than `depth` [B]."""
    task = draws.arange(len(trees)).repeat_interleave(trees)
    own = (depth[task] - draws.integers(task.shape, low=0, high=2)).clamp_(min=1)
    own, order = own.sort(descending=True, stable=True)
    return TreePlan(
        task=task[order],
        depth=own,
        levels=int(own[0]) if len(own) else 0,
        oblivious=oblivious,
        importance=importance,
        equality_share=config.equality_share,
        early_share=config.early_share,
    )


def _worth(draws: Draws, *, plan: TreePlan, count: int) -> torch.Tensor:
    """[T, S, 2^levels] what the leaves are worth: unrelated, adding up along paths, long-tailed, or one leaf of all."""
    number, size = len(plan.task), 2**plan.levels
    style = draws.choice((count,), weights=(4, 4, 1, 1))[plan.task]
    worth = draws.normal((number, _NUM_SCORES, size))
    smooth, steep, single = ((style == code).nonzero().squeeze(-1) for code in (_ALONG_PATHS, _LONG_TAILED, _ONE_LEAF))
    along = path_worth(draws, trees=len(smooth), levels=plan.levels, scores=_NUM_SCORES, oblivious=plan.oblivious)
    worth[smooth] = worth[smooth].mul_(0.3).add_(along)
    worth[steep] = worth[steep] ** 3
    shift = (plan.levels - plan.depth[single]).view(-1, 1, 1)
    spot = draws.integers((len(single), _NUM_SCORES, 1), low=0, high=7)  # among the first leaves of a tree's own
    spot = (spot % 2 ** plan.depth[single].view(-1, 1, 1)) << shift
    worth[single] = (draws.arange(size) == spot) * torch.sign(worth[single])
    return worth.mul_(draws.normal((number, 1, 1)).mul_(0.5).exp_())
