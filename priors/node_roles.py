"""Who is who in a graph: which node is the target, which nodes are columns, and which columns matter.

Depending on the graph and on the draw, columns are causes of the target, effects, siblings, spouses, or strangers.
"""

import dataclasses

import torch

from priors.draws import Draws, below
from priors.random_graph import RandomGraphs


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeRoleConfig:
    """How target and columns are chosen among the nodes of a graph."""

    late_target: float = 1.5
    """Standard deviation of a task's wish (in logits) for a target late, or early, in the graph's order."""
    near: float = 3.0
    """Strongest preference (in logits) for columns close to the target; uniform from 0."""
    causes_share: float = 0.25
    """Share of tasks whose columns are causes of the target where there are enough."""
    effects_share: float = 0.15
    """Share of tasks whose columns are effects of the target where there are enough."""
    all_shown_share: float = 0.6
    """Share of tasks that show as many nodes as there are columns for; the others show fewer, in several views."""
    stranger_share: float = 0.45
    """Share of tasks in which some columns have nothing to do with the graph."""
    most_strangers: float = 0.6
    """Largest mean share of such columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeRoles:
    """Args, of B tasks.

    target: [B] int64, position of the target in its graph.
    nodes: [B, C] int64, position of the node behind each column.
    repeated: [B, C] bool, the column is one more view of a node that another column shows.
    strangers: [B, C] bool, the column shows something unrelated instead.
    relevant: [B] int64, number of columns related to the target, see `num_relevant`.
    causes: [B] int64, number of columns whose node is an ancestor of the target.
    effects: [B] int64, number of columns whose node is a descendant of the target.
    """

    target: torch.Tensor
    nodes: torch.Tensor
    repeated: torch.Tensor
    strangers: torch.Tensor
    relevant: torch.Tensor
    causes: torch.Tensor
    effects: torch.Tensor


def draw_roles(draws: Draws, config: NodeRoleConfig, *, graphs: RandomGraphs, features: int) -> NodeRoles:
    """Chooses target and columns; the target is no column, and at least one column shares an ancestor with it."""
    count, most = graphs.ancestor_sets.shape
    place = draws.arange(most)
    real = below(graphs.sizes, size=most)
    related = _related(graphs)
    kin = related.sum(-1) - 1
    spot = place / (graphs.sizes - 1).unsqueeze(-1) - 0.5
    wish = kin.clamp(min=1).log() + config.late_target * draws.normal((count, 1)) * 2 * spot
    target = (wish + draws.gumbel(wish.shape)).masked_fill(kin < 1, -torch.inf).argmax(-1)
    order = _order(draws, config, graphs=graphs, related=related, target=target, real=real)
    shown = (graphs.sizes - 1).clamp(max=features)
    fewer = draws.counts((count,), low=1, high=shown)
    shown = torch.where(draws.happens((count,), share=config.all_shown_share), shown, fewer).unsqueeze(-1)
    column = draws.uniform((count, features)).argsort(-1)  # the first, the second … view of the batch, shuffled
    repeated = column >= shown
    again = (draws.uniform((count, features)) * shown).long()
    nodes = order.gather(1, torch.where(repeated, again, column).clamp(max=most - 1))
    rate = draws.uniform((count, 1), high=config.most_strangers) * draws.happens(
        (count, 1), share=config.stranger_share
    )
    strangers = (draws.uniform((count, features)) < rate) & (column > 0)  # the first of the order stays
    own = target.unsqueeze(-1)
    return NodeRoles(
        target=target,
        nodes=nodes,
        repeated=repeated,
        strangers=strangers,
        relevant=num_relevant(graphs, target=target, nodes=nodes, hidden=strangers),
        causes=(_holds(graphs.ancestor_sets.gather(1, own), nodes) & ~strangers).sum(-1),
        effects=(_holds(graphs.ancestor_sets.gather(1, nodes), own) & ~strangers).sum(-1),
    )


def num_relevant(
    graphs: RandomGraphs, *, target: torch.Tensor, nodes: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    """[B] number of columns that tell something about the target, alone or together with other columns.

    Counted is a column that is not `hidden` [B, C] and whose node is linked to the target by a chain of shown nodes,
    each of which shares an ancestor with the next (a node is an ancestor of its own). A chain of one step is a path
    without colliders; in a longer one the inner nodes are colliders, which being shown opens. These are the columns
    that the graph makes weakly or strongly relevant in the sense of Kohavi and John (Artificial Intelligence 97, 1997):
    given some set of other columns, they are not d-separated from the target. Columns of one node count one each.

    Args:
        graphs: B graphs.
        target: [B], positions of the targets.
        nodes: [B, C], positions of the columns' nodes.
        hidden: [B, C] bool, columns that do not show their node.
    """
    count, most = graphs.ancestor_sets.shape
    related = _related(graphs)
    shown = torch.zeros((count, most), dtype=torch.int64, device=nodes.device)
    shown = shown.scatter_add_(1, nodes, (~hidden).long()) > 0
    reached = shown & related.gather(1, target.view(-1, 1, 1).expand(-1, 1, most)).squeeze(1)
    while True:
        further = shown & (reached | (related & reached.unsqueeze(1)).any(-1))
        if torch.equal(further, reached):
            return (reached.gather(1, nodes) & ~hidden).sum(-1)
        reached = further


def _related(graphs: RandomGraphs) -> torch.Tensor:
    """[B, N, N] bool, two nodes share an ancestor."""
    sets = graphs.ancestor_sets
    return (sets.unsqueeze(2) & sets.unsqueeze(1)) != 0


def _holds(sets: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """bool, whether the sets of bits contain the positions."""
    return (sets >> places & 1).bool()


def _order(
    draws: Draws,
    config: NodeRoleConfig,
    *,
    graphs: RandomGraphs,
    related: torch.Tensor,
    target: torch.Tensor,
    real: torch.Tensor,
) -> torch.Tensor:
    """[B, N] positions, those to be shown first in front; the very first is related to the target, which is last."""
    count, most = graphs.ancestor_sets.shape
    place, own = draws.arange(most).expand(count, -1), target.unsqueeze(-1)
    cause = _holds(graphs.ancestor_sets.gather(1, own), place)
    effect = _holds(graphs.ancestor_sets, own)
    adjacent = _holds(graphs.parent_sets.gather(1, own), place) | _holds(graphs.parent_sets, own)
    kin = related.gather(1, own.unsqueeze(-1).expand(-1, 1, most)).squeeze(1)
    plain = 1 - config.causes_share - config.effects_share
    side = draws.choice((count, 1), weights=(config.causes_share, config.effects_share, plain))
    wanted = (cause & (side == 0)) | (effect & (side == 1))
    near = draws.uniform((count, 1), high=config.near)
    score = near * (adjacent.float() + kin.float()) + 20.0 * wanted + draws.gumbel((count, most))
    score = score.masked_fill(place == own, -1e6)
    best = score.masked_fill(~kin, -1e9).argmax(-1, keepdim=True)
    return score.scatter(1, best, 1e6).masked_fill(~real, -1e9).argsort(-1, descending=True)
