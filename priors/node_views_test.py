"""Tests of priors.node_views: columns show their nodes in the ways that the config says."""

import dataclasses

import torch

from priors.draws import Draws, standardised
from priors.node_functions import NodeFunctionConfig
from priors.node_roles import NodeRoleConfig, NodeRoles, draw_roles
from priors.node_states import NodeNoiseConfig, NodeStates, run_graphs
from priors.node_views import NodeViewConfig, draw_views
from priors.random_graph import RandomGraphConfig, RandomGraphs, draw_graphs

COUNT, FEATURES, ROWS = 40, 12, 400
WAYS = {"noisy": 0.0, "blended": 0.0, "bent": 0.0, "stepped": 0.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scene:
    """Views and what they are of; own and other are the standardised components of each column's node."""

    graphs: RandomGraphs
    states: NodeStates
    roles: NodeRoles
    raw: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor


def make(*, roles_config: NodeRoleConfig | None = None, **changes: float) -> _Scene:
    """40 tasks of 12 columns; without `second_share`, columns show first components only."""
    draws = Draws(0)
    graphs = draw_graphs(draws, RandomGraphConfig(min_nodes=4, max_nodes=20), count=COUNT)
    noise = NodeNoiseConfig(clean_share=0.0, least=0.05)
    functions = NodeFunctionConfig(tree=0.0, discretise=0.0)
    states = run_graphs(draws, graphs, functions=functions, noise=noise, rows=ROWS, pair_share=1.0)
    roles_config = roles_config or NodeRoleConfig(stranger_share=0.0)
    roles = draw_roles(draws, roles_config, graphs=graphs, features=FEATURES)
    config = NodeViewConfig(**{"second_share": 0.0, **changes})
    raw = draw_views(draws, config, graphs=graphs, states=states, roles=roles)
    first = (graphs.sizes.cumsum(0) - graphs.sizes).unsqueeze(-1)
    nodes = states.values[states.places[first + roles.nodes]]
    return _Scene(
        graphs=graphs,
        states=states,
        roles=roles,
        raw=raw,
        own=standardised(nodes[:, :, 0]),
        other=standardised(nodes[:, :, 1]),
    )


def changed(way: str) -> _Scene:
    """All columns are changed in one way."""
    return make(changed_share=1.0, repeated_share=1.0, **{**WAYS, way: 1.0})


def relation(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """[B, C] correlation over the rows."""
    return (standardised(one) * standardised(other)).mean(-1)


def test_unchanged_columns_are_the_components_of_their_nodes() -> None:
    scene = make(changed_share=0.0, repeated_share=0.0)
    assert (standardised(scene.raw) - scene.own).abs().max() < 1e-3
    scene = make(changed_share=0.0, repeated_share=0.0, second_share=1.0)
    assert (standardised(scene.raw) - scene.other).abs().max() < 1e-3


def test_columns_have_mean_0_and_variance_1() -> None:
    raw = make(second_share=0.5, roles_config=NodeRoleConfig()).raw
    assert raw.shape == (COUNT, FEATURES, ROWS) and raw.isfinite().all()
    assert (raw.std(-1) - 1).abs().median() < 0.05 and raw.mean(-1).abs().median() < 0.05


def test_noisy_views_are_their_node_and_noise_of_every_strength() -> None:
    scene = changed("noisy")
    close = relation(scene.raw, scene.own)
    assert close.min() > 0.4 and (close > 0.99).any() and (close < 0.7).any()
    rest = scene.raw - close.unsqueeze(-1) * scene.own
    assert relation(rest, scene.other).abs().mean() < 0.1


def test_blends_are_combinations_of_both_components_of_the_node() -> None:
    scene = changed("blended")
    x = torch.stack([scene.own, scene.other], -2)
    fit = torch.linalg.lstsq(x.transpose(-1, -2), scene.raw.unsqueeze(-1)).solution
    assert (scene.raw - (fit.transpose(-1, -2) @ x).squeeze(-2)).square().mean(-1).max() < 1e-3
    assert (fit.squeeze(-1).abs().amin(-1) > 0.05).float().mean() > 0.9


def test_bent_views_are_curved_functions_of_their_node() -> None:
    scene = changed("bent")
    order = scene.own.argsort(-1)
    jump = scene.raw.gather(-1, order).diff(dim=-1).abs().median(-1).values
    assert jump.max() < 0.1  # neighbours stay neighbours
    close = relation(scene.raw, scene.own).abs()
    assert close.quantile(0.1) < 0.3 and (close < 0.999).all()


def test_stepped_views_have_few_values_in_the_order_of_their_node() -> None:
    scene = changed("stepped")
    number = torch.tensor([[len(column.unique()) for column in task] for task in scene.raw])
    assert number.max() <= 60 and number.float().median() < 12
    ordered = scene.raw.gather(-1, scene.own.argsort(-1))
    assert (ordered.diff(dim=-1) >= 0).all()


def test_further_views_of_a_node_are_changed_more_often_than_first_ones() -> None:
    scene = make()
    same = (standardised(scene.raw) - scene.own).abs().amax(-1) < 1e-3
    assert same[~scene.roles.repeated].float().mean() > 0.75 > 0.3 > same[scene.roles.repeated].float().mean()


def test_strangers_depend_on_each_other_but_on_no_node() -> None:
    scene = make(roles_config=NodeRoleConfig(stranger_share=1.0, most_strangers=1.0))
    odd = scene.roles.strangers
    assert odd.sum() > 100
    assert relation(scene.raw, scene.own)[odd].abs().mean() < 0.06
    pairs = []
    for columns, chosen in zip(scene.raw, odd, strict=True):
        if chosen.sum() > 1:
            pairs.append(columns[chosen].corrcoef().triu(1).abs().max())
    assert torch.stack(pairs).median() > 0.15 and torch.stack(pairs).max() > 0.7
