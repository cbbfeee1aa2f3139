"""Tests of priors.node_roles: targets, columns, and the number of columns that matter."""

import dataclasses
import itertools

import torch

from priors.draws import Draws
from priors.node_roles import NodeRoleConfig, NodeRoles, draw_roles
from priors.random_graph import RandomGraphConfig, RandomGraphs, draw_graphs

COUNT = 300


def make(
    *, features: int = 6, count: int = COUNT, max_nodes: int = 20, seed: int = 0, **changes: float
) -> tuple[RandomGraphs, NodeRoles]:
    """Roles of the default config, changed, in graphs of up to `max_nodes`."""
    draws = Draws(seed)
    graphs = draw_graphs(draws, RandomGraphConfig(max_nodes=max_nodes), count=count)
    config = dataclasses.replace(NodeRoleConfig(), **changes)
    return graphs, draw_roles(draws, config, graphs=graphs, features=features)


def members(bits: int) -> set[int]:
    """Positions of the bits that are set."""
    return {place for place in range(bits.bit_length()) if bits >> place & 1}


def separated(parents: list[set[int]], *, ends: tuple[int, int], given: set[int]) -> bool:
    """Whether the graph d-separates two nodes, by the moral graph of the ancestors (Lauritzen et al., 1990)."""
    kept = set(ends) | given
    while more := set().union(*(parents[node] for node in kept)) - kept:
        kept |= more
    joined = {frozenset((parent, node)) for node in kept for parent in parents[node]}
    joined |= {frozenset(couple) for node in kept for couple in itertools.combinations(parents[node], 2)}
    reached, open_nodes = {ends[0]}, [ends[0]]
    while open_nodes:
        node = open_nodes.pop()
        fresh = {place for place in kept - given - reached if frozenset((node, place)) in joined}
        reached |= fresh
        open_nodes += fresh
    return ends[1] not in reached


def test_the_target_is_never_a_column_and_every_column_shows_a_node_of_its_graph() -> None:
    for features in (1, 6, 40):
        graphs, roles = make(features=features)
        assert (roles.nodes != roles.target.unsqueeze(-1)).all()
        assert (roles.nodes < graphs.sizes.unsqueeze(-1)).all() and (roles.nodes >= 0).all()
        assert (roles.target < graphs.sizes).all() and (roles.relevant >= 1).all()


def test_relevant_counts_the_columns_that_some_set_of_others_does_not_separate_from_the_target() -> None:
    """Against d-separation itself, over all sets of other shown nodes."""
    count = 1500
    graphs, roles = make(features=4, count=count, max_nodes=6, stranger_share=0.9)
    colliders = 0
    for task in range(count):
        parents = [members(int(bits)) for bits in graphs.parent_sets[task]]
        nodes, odd = roles.nodes[task].tolist(), roles.strangers[task].tolist()
        target = int(roles.target[task])
        shown = {node for node, hidden in zip(nodes, odd, strict=True) if not hidden}
        related = set()
        for node in shown:
            others = shown - {node}
            sets = [set(some) for size in range(len(others) + 1) for some in itertools.combinations(others, size)]
            tells = [not separated(parents, ends=(node, target), given=given) for given in sets]
            related |= {node} if any(tells) else set()
            colliders += any(tells) and not tells[0]
        expected = sum(node in related and not hidden for node, hidden in zip(nodes, odd, strict=True))
        assert int(roles.relevant[task]) == expected
    assert colliders >= 3 and (roles.relevant < 4).sum() > 50


def test_causes_and_effects_are_counted_among_the_columns() -> None:
    graphs, roles = make()
    for task in range(COUNT):
        sets = [members(int(bits)) for bits in graphs.ancestor_sets[task]]
        target = int(roles.target[task])
        shown = roles.nodes[task][~roles.strangers[task]].tolist()
        assert int(roles.causes[task]) == sum(node in sets[target] for node in shown)
        assert int(roles.effects[task]) == sum(target in sets[node] for node in shown)


def test_targets_are_causes_effects_and_siblings_of_the_columns() -> None:
    _, roles = make()
    assert (roles.causes >= 4).float().mean() > 0.1 and (roles.effects >= 4).float().mean() > 0.1
    siblings = roles.relevant - roles.causes - roles.effects
    assert (siblings >= 3).float().mean() > 0.1


def test_columns_are_causes_or_effects_of_the_target_where_asked_for() -> None:
    alone = {"stranger_share": 0.0, "all_shown_share": 1.0}
    for name, other in (("causes", "effects"), ("effects", "causes")):
        graphs, roles = make(features=3, **{f"{name}_share": 1.0, f"{other}_share": 0.0}, **alone)
        target = roles.target.unsqueeze(-1)
        kin = graphs.ancestor_sets.gather(1, target) if name == "causes" else graphs.ancestor_sets
        places = torch.arange(20) if name == "causes" else target
        enough = (kin >> places & 1).sum(-1) > 4
        assert enough.sum() > 30 and (getattr(roles, name)[enough] >= 2).all()
        assert (getattr(roles, name)[enough] == 3).float().mean() > 0.8


def test_strangers_are_some_columns_of_some_tasks_and_never_all() -> None:
    _, roles = make(features=10)
    share = roles.strangers.float().mean(-1)
    assert 0.3 < (share > 0).float().mean() < 0.6 and share.max() > 0.4
    assert (~roles.strangers).any(-1).all()
    _, roles = make(stranger_share=0.0)
    assert not roles.strangers.any()


def test_nodes_are_shown_once_before_any_is_shown_again() -> None:
    graphs, roles = make(features=8, all_shown_share=1.0)
    for nodes, repeated, size in zip(roles.nodes, roles.repeated, graphs.sizes.tolist(), strict=True):
        assert len(nodes[~repeated].unique()) == (~repeated).sum() == min(8, size - 1)
        assert set(nodes[repeated].tolist()) <= set(nodes[~repeated].tolist())
    _, fewer = make(features=8, all_shown_share=0.0)
    assert fewer.repeated.sum() > 1.5 * roles.repeated.sum()


def test_targets_stand_early_and_late_and_wishes_differ() -> None:
    graphs, roles = make()
    spot = roles.target / (graphs.sizes - 1)
    assert spot.quantile(0.2) < 0.3 and spot.quantile(0.8) > 0.7
    _, none = make(late_target=0.0)
    assert (none.target / (graphs.sizes - 1)).std() < spot.std()


def test_columns_are_closer_to_the_target_where_nearness_is_wanted() -> None:
    shares = []
    for near in (0.0, 6.0):
        graphs, roles = make(features=3, near=near, causes_share=0.0, effects_share=0.0)
        target = roles.target.unsqueeze(-1)
        parent = graphs.parent_sets.gather(1, target) >> roles.nodes & 1
        child = graphs.parent_sets.gather(1, roles.nodes) >> target & 1
        shares.append(float((parent | child).float().mean()))
    assert shares[1] > shares[0] + 0.1
