"""Random directed acyclic graphs, one per task, all different, drawn for a whole batch at once.

A node's parents stand before it in the task's order, so graphs are acyclic by construction. Every law gives the logit
of each possible edge as (child's part) + (parent's part), sharpened for chains and masked for layers; an edge exists
where the logit plus logistic noise is positive, and of too many parents the strongest stay.

- uniform: every edge is equally likely; the density differs between tasks;
- hubs: both parts are Cauchy draws, so a few nodes are causes, or effects, of nearly all (as in TabICL v2,
  arXiv 2602.11139);
- chains: parallel chains of steps with rare cross links (processes, growth, protocols);
- scale_free: the older a node, the more children, with P(parent of rank j) ~ j^-a (Fortunato, Flammini and Menczer,
  PRL 96, 2006);
- layered: parents stand in the layer before, seldom further up (organisations, pathways).
"""

import dataclasses
import enum
import math

import torch

from priors.draws import Draws
from tools.failure import BadInput, ExitCode

MOST_NODES = 62  # sets of nodes are bits of an int64


class GraphLaw(enum.StrEnum):
    """How edges are drawn; facts hold the position in this list."""

    UNIFORM = "uniform"
    HUBS = "hubs"
    CHAINS = "chains"
    SCALE_FREE = "scale_free"
    LAYERED = "layered"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomGraphConfig:
    """Graphs: their sizes, and how often each law is used (in any unit)."""

    min_nodes: int = 2
    """Fewest nodes of a graph."""
    max_nodes: int = 40
    """Most nodes of a graph (at most 62)."""
    size_power: float = 0.6
    """The logarithm of the size is spread like u^power, u uniform: below 1, few graphs are tiny."""
    max_parents: int = 6
    """Most parents of a node."""
    uniform: float = 1.0
    """Weight of graphs whose edges are all equally likely."""
    hubs: float = 2.0
    """Weight of graphs with Cauchy-like hubs."""
    chains: float = 0.7
    """Weight of parallel chains."""
    scale_free: float = 1.0
    """Weight of scale-free graphs."""
    layered: float = 1.0
    """Weight of layered graphs."""
    longest_chain: int = 14
    """Most nodes of a chain."""

    @property
    def weights(self) -> tuple[float, ...]:
        """In the order of `GraphLaw`."""
        return tuple(getattr(self, law.value) for law in GraphLaw)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomGraphs:
    """B graphs with M nodes in all; a node is known by its place in the flat list, task by task, causes first.

    Args:
        sizes: [B] int64, number of nodes.
        laws: [B] int64, positions in `GraphLaw`.
        tasks: [M] int64, whose graph.
        positions: [M] int64, place in the graph's order.
        parents: [M, P] int64, flat indices, the real ones first; M where there is none.
        levels: [M] int64, length of the longest path that ends here; 0 for a root.
        parent_sets: [B, N] int64, bit j of entry i says that node j is a parent of node i; 0 past the size.
        ancestor_sets: [B, N] int64, the same for ancestors, a node being one of its own.
    """

    sizes: torch.Tensor
    laws: torch.Tensor
    tasks: torch.Tensor
    positions: torch.Tensor
    parents: torch.Tensor
    levels: torch.Tensor
    parent_sets: torch.Tensor
    ancestor_sets: torch.Tensor


def draw_graphs(draws: Draws, config: RandomGraphConfig, *, count: int) -> RandomGraphs:
    """Draws `count` graphs; every one has at least one edge.

    Raises:
        BadInput: BAD_FLAG, sizes or weights are impossible.
    """
    check_graphs(config)
    sizes = _draw_sizes(draws, config, count=count)
    laws = draws.choice((count,), weights=config.weights)
    tasks = draws.arange(count).repeat_interleave(sizes)
    first = sizes.cumsum(0) - sizes
    positions = draws.arange(len(tasks)) - first[tasks]
    logits = _logits(draws, config, sizes=sizes, laws=laws, tasks=tasks, positions=positions)
    noise = draws.uniform(logits.shape).clamp_(1e-6, 1 - 1e-6).logit_()
    best = (logits + noise).topk(min(config.max_parents, config.max_nodes), dim=-1)
    connected = draws.uniform((count,), low=-0.2, high=1.2)[tasks] > draws.uniform((len(tasks),))
    connected |= positions == sizes[tasks] - 1  # no graph is without edges
    real = best.values > 0
    real[:, 0] |= connected & (best.values[:, 0] > -math.inf)
    parents = torch.where(real, best.indices + first[tasks].unsqueeze(-1), len(tasks))
    own = torch.ones_like(positions) << positions
    levels, ancestors = _closure(parents, own=own)
    members = torch.where(real, torch.ones_like(parents) << best.indices, 0).sum(-1)
    place = tasks * config.max_nodes + positions
    empty = draws.full((count * config.max_nodes,), 0, dtype=torch.int64)
    return RandomGraphs(
        sizes=sizes,
        laws=laws,
        tasks=tasks,
        positions=positions,
        parents=parents,
        levels=levels,
        parent_sets=empty.scatter(0, place, members).view(count, -1),
        ancestor_sets=empty.scatter(0, place, ancestors).view(count, -1),
    )


def check_graphs(config: RandomGraphConfig) -> None:
    """Refuses what no graph can be drawn from.

    Raises:
        BadInput: BAD_FLAG, naming the value and what is possible.
    """
    sizes = f"{config.min_nodes} to {config.max_nodes}"
    if not 2 <= config.min_nodes <= config.max_nodes <= MOST_NODES:
        raise BadInput(
            ExitCode.BAD_FLAG, f"graphs of {sizes} nodes are impossible: give a range within 2 to {MOST_NODES}"
        )
    if config.max_parents < 1:
        raise BadInput(
            ExitCode.BAD_FLAG, f"at most {config.max_parents} parents make no graph: give max_parents 1 or more"
        )
    if min(config.weights) < 0 or not 0 < sum(config.weights) < math.inf:
        raise BadInput(
            ExitCode.BAD_FLAG,
            f"the weights {config.weights} of the graph laws are impossible: give none below 0 and one above",
        )


def _draw_sizes(draws: Draws, config: RandomGraphConfig, *, count: int) -> torch.Tensor:
    spread = (config.max_nodes + 1) / config.min_nodes
    sizes = config.min_nodes * spread ** draws.uniform((count,)).pow_(config.size_power)
    return sizes.floor_().long().clamp_(max=config.max_nodes)


def _logits(
    draws: Draws,
    config: RandomGraphConfig,
    *,
    sizes: torch.Tensor,
    laws: torch.Tensor,
    tasks: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """[M, N] log odds of an edge from the node at each position of the same task; −inf where it cannot be."""
    count, most = len(sizes), config.max_nodes
    law = {name: (laws == code).unsqueeze(-1) for code, name in enumerate(GraphLaw)}
    cauchy = draws.uniform((2, count, most), low=-1.55, high=1.55).tan_()
    density = draws.log_uniform((count, 1), low=0.04, high=0.9).logit_()
    steep = draws.uniform((count, 1), low=0.5, high=2.0)
    older = -steep * (draws.arange(most) + 1).log()
    wanted = draws.log_uniform((count, 1), low=0.7, high=3.0).log_()
    sums = older.exp().cumsum(-1).log().roll(1, dims=-1)  # over the nodes before; the first has none to choose from
    child = torch.where(law[GraphLaw.HUBS], cauchy[0] + draws.normal((count, 1)) - 1.5, density.expand(-1, most))
    child = torch.where(law[GraphLaw.SCALE_FREE], wanted - sums, child)
    child = torch.where(law[GraphLaw.CHAINS], -4.5, child)
    parent = torch.where(law[GraphLaw.HUBS], cauchy[1], torch.where(law[GraphLaw.SCALE_FREE], older, 0.0))
    stride = draws.counts((count,), low=1, high=4).maximum(-(-sizes // config.longest_chain))
    width = draws.counts((count,), low=1, high=(sizes + 1) // 3)
    gap = positions.unsqueeze(-1) - draws.arange(most)
    behind = positions.div(width[tasks], rounding_mode="floor").unsqueeze(-1) - _over(draws.arange(most), width)[tasks]
    logits = child[tasks, positions].unsqueeze(-1) + parent[tasks]
    logits += 8.0 * (law[GraphLaw.CHAINS][tasks] & (gap == stride[tasks].unsqueeze(-1)))
    layered = law[GraphLaw.LAYERED][tasks]
    logits -= 4.0 * (layered & (behind > 1))
    return logits.masked_fill_((gap <= 0) | (layered & (behind <= 0)), -math.inf)


def _over(places: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    """[B, N] the layer of each position."""
    return places.div(width.unsqueeze(-1), rounding_mode="floor")


def _closure(parents: torch.Tensor, *, own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[M] levels and [M] sets of ancestors, by repeating what parents say until nothing changes."""
    levels = torch.zeros_like(own)
    sets = own
    lone = own[:1]
    while True:
        above = torch.cat([levels, lone * 0 - 1])[parents].amax(-1) + 1
        inherited = torch.cat([sets, lone * 0])[parents]
        fresh = own
        for column in inherited.unbind(-1):
            fresh = fresh | column
        if torch.equal(above, levels):
            return levels, fresh
        levels, sets = above, fresh


def fingerprints(graphs: RandomGraphs) -> torch.Tensor:
    """[B] int64 below 2^24 (exact in float32): a hash of size and adjacency; equal graphs have equal ones."""
    places = torch.arange(graphs.parent_sets.shape[1], device=graphs.sizes.device)
    salt = (places * 2 + 1) * 0x9E3779B97F4A7C1  # odd multiples; products wrap
    mixed = (graphs.parent_sets ^ (graphs.parent_sets >> 29)) * salt
    mixed = ((mixed ^ (mixed >> 31)) * 0x2545F4914F6CDD1D).sum(-1) + graphs.sizes * 0x9E3779B1
    return ((mixed ^ (mixed >> 30)) * 0x2127599BF4325C37 >> 37) & 0xFFFFFF


def num_distinct(prints: torch.Tensor) -> int:
    """Number of different graphs among fingerprints [B]."""
    return len(prints.unique())
