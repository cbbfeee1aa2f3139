"""Views of nodes: the columns through which a table shows the nodes of a graph.

Stands for what real tables do with one quantity: a second instrument with noise of its own, another part of the same
thing, a bent or folded scale, a value read off in steps, a blend with something else; and for columns that have nothing
to do with the rest.
"""

import dataclasses

import torch

from priors.draws import Draws, apply_by_code, standardised
from priors.node_roles import NodeRoles
from priors.node_states import COMPONENTS, NodeStates
from priors.random_graph import RandomGraphs


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeViewConfig:
    """How nodes are seen."""

    second_share: float = 0.3
    """Share of columns that show the second component of their node."""
    changed_share: float = 0.15
    """Share of the columns of a node's first view that are changed."""
    repeated_share: float = 0.85
    """Share of the further views of a node that are changed."""
    noisy: float = 3.0
    """Weight of noisy views among the changed ones."""
    blended: float = 2.0
    """Weight of blends of both components of the node."""
    bent: float = 2.0
    """Weight of bent scales (squares, saturation, waves)."""
    stepped: float = 1.0
    """Weight of values in steps."""


def draw_views(
    draws: Draws, config: NodeViewConfig, *, graphs: RandomGraphs, states: NodeStates, roles: NodeRoles
) -> torch.Tensor:
    """[B, C, R] raw columns of mean 0 and variance 1."""
    count, features = roles.nodes.shape
    rows = states.values.shape[-1]
    first = graphs.sizes.cumsum(0) - graphs.sizes
    second = draws.happens((count, features), share=config.second_share).long()
    components = states.values.view(-1, rows)
    place = (states.places[first.unsqueeze(-1) + roles.nodes] * COMPONENTS + second).view(-1)
    flat = components.index_select(0, place)
    share = torch.where(roles.repeated, config.repeated_share, config.changed_share)
    changed = (draws.uniform((count, features)) < share) & ~roles.strangers
    picked = changed.view(-1).nonzero().squeeze(-1)
    if len(picked):
        other = components[place[picked] ^ 1]  # components of a node are neighbours
        flat[picked] = _changed(draws, config, seen=flat[picked], other=other)
    odd = roles.strangers.view(-1).nonzero().squeeze(-1)
    if len(odd):
        flat[odd] = _strangers(draws, tasks=odd // features, count=count, rows=rows)
    return flat.view(count, features, rows)


def _changed(draws: Draws, config: NodeViewConfig, *, seen: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """[n, R] views `seen`, each changed in a way of its own; `other` is the other component of the same node."""
    number = len(seen)
    weights = (config.noisy, config.blended, config.bent, config.stepped)
    way = draws.choice((number,), weights=weights)
    angle = draws.uniform((number, 1), low=0.2, high=1.4)
    other = torch.where((way == 0).unsqueeze(-1), draws.normal(seen.shape), other)
    angle = torch.where((way == 0).unsqueeze(-1), draws.log_uniform((number, 1), low=0.03, high=1.0), angle)
    mixed = (way <= 1).unsqueeze(-1)
    seen = torch.where(mixed, angle.cos() * seen + angle.sin() * other, seen)
    bend = draws.integers((number,), low=1, high=len(_BENDS) - 1) * (way == 2)
    seen = apply_by_code(seen, bend, functions=_BENDS)
    step = draws.log_uniform((number, 1), low=0.3, high=2.0)
    return standardised(torch.where((way == 3).unsqueeze(-1), (seen / step).round() * step, seen))


def _strangers(draws: Draws, *, tasks: torch.Tensor, count: int, rows: int) -> torch.Tensor:
    """[n, R] columns that depend on nothing but, in part, on a driver that the strangers of a task share."""
    driver = draws.normal((count, rows))
    share = draws.uniform((count, 1)).square()[tasks]
    return share.sqrt() * driver[tasks] + (1 - share).sqrt() * draws.normal((len(tasks), rows))


_BENDS = (
    lambda z: z,
    torch.square,
    torch.abs,
    lambda z: torch.tanh(2 * z),
    lambda z: torch.sin(2 * z),
    lambda z: torch.exp(0.7 * z.clamp(max=5.0)),
    lambda z: torch.sign(z) * z.abs().sqrt(),
)
