"""Tests of priors.random_graph: graphs are acyclic, of many sizes and shapes, and nearly all different."""

import dataclasses

import pytest
import torch

from priors.draws import Draws
from priors.random_graph import (
    GraphLaw,
    RandomGraphConfig,
    RandomGraphs,
    draw_graphs,
    fingerprints,
    num_distinct,
)
from tools.failure import BadInput, ExitCode

COUNT = 400


def make(*, count: int = COUNT, seed: int = 0, **changes: float) -> RandomGraphs:
    """Graphs of the default config, changed."""
    return draw_graphs(Draws(seed), dataclasses.replace(RandomGraphConfig(), **changes), count=count)


def only(law: GraphLaw, **changes: float) -> RandomGraphs:
    """Graphs of 20 to 40 nodes by one law."""
    weights = {other.value: float(other is law) for other in GraphLaw}
    return make(min_nodes=20, **weights, **changes)


def edges(graphs: RandomGraphs) -> torch.Tensor:
    """[2, E] flat indices of parent and child."""
    child, slot = (graphs.parents < len(graphs.tasks)).nonzero().T
    return torch.stack([graphs.parents[child, slot], child])


def density(graphs: RandomGraphs) -> torch.Tensor:
    """[B] edges per node."""
    _, child = edges(graphs)
    return graphs.tasks[child].bincount(minlength=len(graphs.sizes)) / graphs.sizes


def heaviest(graphs: RandomGraphs) -> float:
    """Mean over the tasks of the share of a graph's edges that start at its busiest node."""
    parent, child = edges(graphs)
    children = parent.bincount(minlength=len(graphs.tasks))
    most = torch.zeros_like(graphs.sizes).scatter_reduce(0, graphs.tasks, children, "amax")
    return float((most / graphs.tasks[child].bincount(minlength=len(graphs.sizes))).mean())


def test_parents_are_distinct_earlier_nodes_of_the_same_graph_so_no_graph_has_a_cycle() -> None:
    graphs = make()
    parent, child = edges(graphs)
    assert (graphs.tasks[parent] == graphs.tasks[child]).all()
    assert (graphs.positions[parent] < graphs.positions[child]).all()
    assert len(edges(graphs).T.unique(dim=0)) == len(parent)
    assert (graphs.levels[parent] < graphs.levels[child]).all()


def test_levels_and_sets_of_ancestors_follow_from_the_parents() -> None:
    graphs = make(count=60)
    first = (graphs.sizes.cumsum(0) - graphs.sizes).tolist()
    for task, size in enumerate(graphs.sizes.tolist()):
        levels, ancestors = [], []
        for node in range(size):
            row = graphs.parents[first[task] + node].tolist()
            parents = [other - first[task] for other in row if other < len(graphs.tasks)]
            levels.append(1 + max((levels[other] for other in parents), default=-1))
            ancestors.append({node}.union(*(ancestors[other] for other in parents)))
            assert int(graphs.parent_sets[task, node]) == sum(1 << other for other in parents)
            assert int(graphs.ancestor_sets[task, node]) == sum(1 << other for other in ancestors[-1])
        assert graphs.levels[first[task] : first[task] + size].tolist() == levels
        assert (graphs.ancestor_sets[task, size:] == 0).all()


def test_sizes_spread_over_the_whole_range_and_every_graph_has_an_edge() -> None:
    graphs = make()
    assert set(graphs.sizes.tolist()) == set(range(2, 41))
    assert graphs.sizes.float().quantile(0.25) < 10 and graphs.sizes.float().quantile(0.75) > 20
    assert (density(graphs) > 0).all()
    assert (graphs.parents < len(graphs.tasks)).sum(-1).max() == RandomGraphConfig().max_parents


def test_densities_and_depths_spread() -> None:
    graphs = make(min_nodes=10)
    assert density(graphs).quantile(0.1) < 0.9 and density(graphs).quantile(0.9) > 3
    uniform = density(only(GraphLaw.UNIFORM))
    assert uniform.quantile(0.1) < 1.2 and uniform.quantile(0.9) > 4
    depth = torch.zeros_like(graphs.sizes).scatter_reduce(0, graphs.tasks, graphs.levels, "amax")
    assert depth.min() <= 2 and depth.max() >= 12
    assert set(graphs.laws.tolist()) == set(range(len(GraphLaw)))


def test_hubs_and_scale_free_graphs_have_busy_nodes_and_uniform_ones_have_not() -> None:
    uniform = heaviest(only(GraphLaw.UNIFORM))
    assert heaviest(only(GraphLaw.HUBS)) > 1.3 * uniform
    assert heaviest(only(GraphLaw.SCALE_FREE)) > 2 * uniform


def test_the_children_of_scale_free_graphs_go_to_the_oldest() -> None:
    graphs = only(GraphLaw.SCALE_FREE)
    parent, _ = edges(graphs)
    children = graphs.positions[parent].bincount(minlength=20)
    assert density(graphs).mean() > 1.05  # about as many parents for a late node as for an early one
    for older, younger in ((0, 1), (1, 4), (4, 15)):
        assert children[older] > 1.5 * children[younger]


def test_chains_are_made_of_steps_of_one_length_and_stay_short() -> None:
    graphs = only(GraphLaw.CHAINS)
    parent, child = edges(graphs)
    gap = graphs.positions[child] - graphs.positions[parent]
    steps = torch.zeros((COUNT, 41)).index_put_((graphs.tasks[child], gap), torch.ones(len(gap)), accumulate=True)
    assert (steps.amax(-1) / steps.sum(-1)).median() > 0.8
    assert len(steps.argmax(-1).unique()) >= 3
    assert graphs.levels.float().mean() > only(GraphLaw.SCALE_FREE).levels.float().mean()


def test_edges_of_layered_graphs_seldom_skip_a_level() -> None:
    share = []
    for law in (GraphLaw.LAYERED, GraphLaw.UNIFORM):
        graphs = only(law)
        parent, child = edges(graphs)
        share.append(float((graphs.levels[child] - graphs.levels[parent] == 1).float().mean()))
    assert share[0] > 0.8 and share[0] > share[1] + 0.25


def test_nearly_all_graphs_of_a_batch_are_different() -> None:
    for seed in range(10):
        assert num_distinct(fingerprints(make(count=64, seed=seed))) >= 58
    assert num_distinct(fingerprints(make(count=64, min_nodes=10))) == 64


def test_fingerprints_tell_graphs_apart_as_well_as_their_edges_do() -> None:
    graphs = make(count=2000)
    prints = fingerprints(graphs)
    assert num_distinct(prints) == len(torch.cat([graphs.parent_sets, graphs.sizes.unsqueeze(-1)], -1).unique(dim=0))
    assert prints.min() >= 0 and prints.max() < 2**24 and prints.max() > 2**23
    assert (prints.float().long() == prints).all()
    assert torch.equal(prints, fingerprints(make(count=2000)))


def test_removing_one_edge_changes_the_fingerprint() -> None:
    graphs = make(min_nodes=5)
    node = graphs.sizes - 1
    parents = graphs.parent_sets.clone()
    last = parents.gather(1, node.unsqueeze(-1))
    parents.scatter_(1, node.unsqueeze(-1), last & (last - 1))
    assert (fingerprints(dataclasses.replace(graphs, parent_sets=parents)) != fingerprints(graphs)).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"min_nodes": 1},
        {"min_nodes": 9, "max_nodes": 8},
        {"max_nodes": 63},
        {"max_parents": 0},
        {"hubs": -1.0},
        {law.value: 0.0 for law in GraphLaw},
    ],
)
def test_impossible_configs_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="give") as caught:
        make(**changes)
    assert caught.value.code is ExitCode.BAD_FLAG


def test_the_smallest_and_the_largest_graphs_are_possible() -> None:
    assert (make(max_nodes=2).sizes == 2).all()
    graphs = make(min_nodes=62, max_nodes=62, count=8)
    assert (graphs.ancestor_sets.bitwise_right_shift(61)[:, -1] & 1 == 1).all()
