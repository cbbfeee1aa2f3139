"""Structural causal models over random graphs whose nodes follow from their parents in many ways.

Stands for tables whose columns come about in many steps of different kinds: thresholds and tariffs, dose and response,
interactions, cycles, codes. The features and the target are nodes of one graph, so the target may be a cause, an effect
or a sibling of the features; some columns show the same node in several ways, and some have nothing to do with it.
"""

import dataclasses

import torch

from priors.columns import draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, standardised
from priors.node_functions import NodeFunctionConfig
from priors.node_roles import NodeRoleConfig, NodeRoles, draw_roles
from priors.node_states import NodeNoiseConfig, NodeStates, run_graphs
from priors.node_views import NodeViewConfig, draw_views
from priors.random_graph import RandomGraphConfig, RandomGraphs, draw_graphs, fingerprints


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphSCMConfig:
    """Graphs that make tables."""

    graphs: RandomGraphConfig = RandomGraphConfig()
    """Sizes and laws of the graphs."""
    functions: NodeFunctionConfig = NodeFunctionConfig()
    """What nodes do with their parents."""
    noise: NodeNoiseConfig = NodeNoiseConfig()
    """Noise inside the graphs."""
    pair_share: float = 0.5
    """Share of tasks whose nodes are pairs of numbers that cause their children together (otherwise single numbers)."""
    roles: NodeRoleConfig = NodeRoleConfig()
    """Which nodes are target and columns."""
    views: NodeViewConfig = NodeViewConfig()
    """How columns show their nodes."""


def sample_graph_scm(draws: Draws, config: GraphSCMConfig, *, request: TableRequest) -> Draft:
    """Draws `request.count` tasks, each with a graph of its own.

    Returns:
        The draft. Its facts: "nodes", "edges", "roots", "depth" (edges of the longest path), "law" (position in
        `GraphLaw`), "graph" (fingerprint of the graph, a whole number below 2^24), "function" (position of the target's
        in `NodeFunction`), "relevant" (see `node_roles.num_relevant`), "causes" and "effects" (columns that show an
        ancestor, a descendant of the target), "own_noise" (share of the target node's variance that its parents do not
        give; 0 for a root).
    """
    graphs = draw_graphs(draws, config.graphs, count=request.count)
    states = run_graphs(
        draws,
        graphs,
        functions=config.functions,
        noise=config.noise,
        rows=request.rows,
        pair_share=config.pair_share,
    )
    roles = draw_roles(draws, config.roles, graphs=graphs, features=request.features)
    raw = draw_views(draws, config.views, graphs=graphs, states=states, roles=roles)
    target = graphs.sizes.cumsum(0) - graphs.sizes + roles.target
    return Draft(
        columns=draw_columns(draws, raw, config=request.columns),
        scores=_scores(draws, graphs=graphs, states=states, target=target),
        classes=draws.full((request.count, request.rows), -1, dtype=torch.int64),
        loudness=draws.uniform((request.count,), low=0.3, high=1.0),
        facts=_facts(graphs, states=states, roles=roles, target=target),
    )


def _scores(draws: Draws, *, graphs: RandomGraphs, states: NodeStates, target: torch.Tensor) -> torch.Tensor:
    """[B, 3, R] both components of the target's node, and the first of one of its parents (of a root, the product)."""
    pair = states.values[states.places[target]]
    parents = graphs.parents[target]
    number = (parents < len(graphs.tasks)).sum(-1)
    slot = (draws.uniform(number.shape) * number).long().unsqueeze(-1)
    root = number == 0
    parent = torch.where(root, target, parents.gather(1, slot).squeeze(-1))
    third = states.values[states.places[parent], 0]
    third = torch.where(root.unsqueeze(-1), pair.prod(1), third)
    return standardised(torch.cat([pair, third.unsqueeze(1)], 1))


def _facts(
    graphs: RandomGraphs, *, states: NodeStates, roles: NodeRoles, target: torch.Tensor
) -> dict[str, torch.Tensor]:
    degree = (graphs.parents < len(graphs.tasks)).sum(-1)
    zeros = torch.zeros_like(graphs.sizes)
    return {
        "nodes": graphs.sizes,
        "edges": zeros.index_add(0, graphs.tasks, degree),
        "roots": zeros.index_add(0, graphs.tasks, (degree == 0).long()),
        "depth": zeros.scatter_reduce(0, graphs.tasks, graphs.levels, "amax"),
        "law": graphs.laws,
        "graph": fingerprints(graphs),
        "function": states.functions[target],
        "relevant": roles.relevant,
        "causes": roles.causes,
        "effects": roles.effects,
        "own_noise": states.noise_shares[target],
    }
