"""Views of nodes: the columns through which a table shows the nodes of a graph.

Stands for what real tables do with one quantity: a second instrument with noise of its own, another part of the same
thing, a bent or folded scale, a value read off in steps, a blend with something else; and for columns that have nothing
to do with the rest.
"""

import dataclasses
from collections.abc import Sequence

import torch

from priors.draws import Draws
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
    way = draws.choice((len(picked),), weights=(config.noisy, config.blended, config.stepped, config.bent))
    way, order = (way + (way == _BENT) * draws.integers(way.shape, low=0, high=len(_BENDS) - 1)).sort(stable=True)
    picked = picked[order]
    sizes = way.bincount(minlength=_BENT + len(_BENDS)).tolist()
    seen = flat[picked]
    _change(draws, seen.split(sizes), others=components[place[picked[sizes[0] :][: sizes[1]]] ^ 1])
    flat[picked] = torch.nn.functional.layer_norm(seen, (rows,), eps=1e-5)
    odd = roles.strangers.view(-1).nonzero().squeeze(-1)
    if len(odd):
        flat[odd] = _strangers(draws, tasks=odd // features, count=count, rows=rows)
    return flat.view(count, features, rows)


def _change(draws: Draws, seen: Sequence[torch.Tensor], *, others: torch.Tensor) -> None:
    """Changes views in place, [n, R] for each way; `others` are the other components of the nodes to be blended."""
    noisy, blended, stepped, *bent = seen
    noise = draws.normal(noisy.shape)
    for views, added, low, high in ((noisy, noise, 0.03, 1.0), (blended, others, 0.2, 1.4)):
        angle = draws.log_uniform((len(views), 1), low=low, high=high)
        views.mul_(angle.cos()).addcmul_(added, angle.sin())
    step = draws.log_uniform((len(stepped), 1), low=0.3, high=2.0)
    stepped.div_(step).round_()
    for bend, views in zip(_BENDS, bent, strict=True):
        views.copy_(bend(views))


def _strangers(draws: Draws, *, tasks: torch.Tensor, count: int, rows: int) -> torch.Tensor:
    """[n, R] columns that depend on nothing but, in part, on a driver that the strangers of a task share."""
    driver = draws.normal((count, rows))
    share = draws.uniform((count, 1)).square()[tasks]
    return share.sqrt() * driver[tasks] + (1 - share).sqrt() * draws.normal((len(tasks), rows))


_BENT = 3  # ways before the first bend: noisy, blended, stepped
_BENDS = (
    torch.square,
    torch.abs,
    lambda z: torch.tanh(2 * z),
    lambda z: torch.sin(2 * z),
    lambda z: torch.exp(0.7 * z.clamp(max=5.0)),
    lambda z: torch.sign(z) * z.abs().sqrt(),
)
