"""Tests of priors.node_states: nodes follow from their parents and from as much noise as is said."""

import dataclasses

import pytest
import torch

from priors import node_states
from priors.draws import Draws, Shape
from priors.node_functions import NodeFunction, NodeFunctionConfig
from priors.node_states import COMPONENTS, NodeNoiseConfig, NodeStates, run_graphs
from priors.random_graph import RandomGraphConfig, RandomGraphs, draw_graphs

ROWS = 301
CLEAN = NodeNoiseConfig(clean_share=1.0)
LINEAR = NodeFunctionConfig(**{name.value: float(name is NodeFunction.LINEAR) for name in NodeFunction})


def make(
    *,
    functions: NodeFunctionConfig = LINEAR,
    noise: NodeNoiseConfig = CLEAN,
    pair_share: float = 1.0,
    draws: Draws | None = None,
    rows: int = ROWS,
) -> tuple[RandomGraphs, NodeStates]:
    """48 graphs of up to 20 nodes."""
    draws = draws or Draws(0)
    graphs = draw_graphs(draws, RandomGraphConfig(max_nodes=20), count=48)
    states = run_graphs(draws, graphs, functions=functions, noise=noise, rows=rows, pair_share=pair_share)
    return graphs, states


def unexplained(graphs: RandomGraphs, states: NodeStates, *, components: int = COMPONENTS) -> torch.Tensor:
    """[m, D] share of the variance of each node with parents that least squares on its parents leaves."""
    parents = torch.cat([states.places, torch.tensor([len(states.places)])])[graphs.parents]
    inner = graphs.levels > 0
    x = states.values[parents[inner]][:, :, :components].flatten(1, 2).double()  # [m, P D, R]
    y = states.values[states.places[inner]].double()
    gram = x @ x.transpose(1, 2) + 1e-6 * torch.eye(x.shape[1], dtype=torch.float64)
    fit = torch.linalg.solve(gram, x @ y.transpose(1, 2))
    return (y - fit.transpose(1, 2) @ x).square().mean(-1) / y.square().mean(-1)


def test_values_have_mean_0_and_variance_1_and_none_is_missing() -> None:
    _, states = make(functions=NodeFunctionConfig())
    real = states.values[states.places]
    assert real.isfinite().all() and real.mean(-1).abs().max() < 1e-4
    deviation = real.std(-1, correction=0)
    assert ((deviation - 1).abs() < 1e-3).float().mean() > 0.95 and deviation.max() < 1.001
    assert (states.values[-1] == 0).all()
    assert sorted(states.places.tolist()) == list(range(len(states.values) - 1))


def test_without_noise_linear_nodes_are_sums_of_their_parents() -> None:
    graphs, states = make()
    assert unexplained(graphs, states).max() < 1e-3
    assert (states.noise_shares == 0).all()


def test_nodes_of_single_numbers_ignore_the_second_component_of_their_parents() -> None:
    graphs, states = make(pair_share=0.0)
    assert unexplained(graphs, states, components=1).max() < 1e-3 and not states.pairs.any()
    graphs, states = make(pair_share=1.0)
    assert unexplained(graphs, states, components=1).max() > 0.1 and states.pairs.all()


def test_the_noise_of_a_node_is_as_strong_as_its_share() -> None:
    noise = NodeNoiseConfig(clean_share=0.0, least=0.01, most=0.9)
    graphs, states = make(noise=noise, rows=4000)
    said = states.noise_shares[graphs.levels > 0].unsqueeze(-1)
    seen = unexplained(graphs, states)
    assert said.min() < 0.03 and said.max() > 0.6
    assert (seen.sub(said).abs() / (said + 0.02)).median() < 0.05
    assert (states.noise_shares[graphs.levels == 0] == 0).all()


def test_tasks_differ_in_noise_and_some_have_none() -> None:
    graphs, states = make(noise=NodeNoiseConfig())
    of_task = torch.zeros(48).scatter_reduce(0, graphs.tasks, states.noise_shares, "amax")
    assert 0.1 < (of_task == 0).float().mean() < 0.5
    assert of_task.max() > 20 * of_task[of_task > 0].min()


def test_noise_may_have_long_tails() -> None:
    noise = NodeNoiseConfig(clean_share=0.0, least=0.9, most=0.9)
    tails = []
    for share in (0.0, 1.0):
        graphs, states = make(noise=dataclasses.replace(noise, long_tail_share=share))
        tails.append(float(states.values[states.places[graphs.levels > 0]].pow(4).mean()))
    assert tails[0] < 4 < 6 < tails[1]


def test_roots_have_many_distributions_and_are_independent() -> None:
    graphs, states = make(functions=NodeFunctionConfig())
    roots = states.values[states.places[graphs.levels == 0], 0]
    kurtosis = roots.pow(4).mean(-1)
    assert kurtosis.quantile(0.1) < 2 and kurtosis.quantile(0.9) > 4
    distinct = torch.tensor([len(root.unique()) for root in roots])
    assert (distinct <= 8).any() and (distinct > 250).any()
    relation = (roots @ roots.T / ROWS).fill_diagonal_(0).abs()
    assert relation.max() < 0.4 and relation.mean() < 0.1


def test_every_function_occurs_and_decides_the_values() -> None:
    graphs, states = make(functions=NodeFunctionConfig())
    assert set(states.functions.tolist()) == set(range(len(NodeFunction)))
    clumped = states.functions == list(NodeFunction).index(NodeFunction.DISCRETISE)
    number = torch.tensor([len(states.values[place, 0].unique()) for place in states.places])
    assert number[clumped].max() <= 8
    left = unexplained(graphs, states).amax(-1)
    linear = states.functions[graphs.levels > 0] == list(NodeFunction).index(NodeFunction.LINEAR)
    assert left[linear].max() < 1e-3 and left[~linear].median() > 0.05


def test_how_nodes_are_grouped_into_calls_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes with many parents hear all of them, whether evaluated apart from those with few or not."""
    values = []
    for least in (1, 10**9):
        monkeypatch.setattr(node_states, "_WORTH_A_CALL", least)
        values.append(make()[1].values)
    assert (values[0] - values[1]).abs().max() < 1e-3


class _Shuffled(Draws):
    """The same draws with the rows in another order."""

    def __init__(self, seed: int, order: torch.Tensor) -> None:
        super().__init__(seed)
        self.order = order

    def normal(self, shape: Shape) -> torch.Tensor:
        """Standard normal; rows permuted."""
        values = super().normal(shape)
        return values[..., self.order] if shape[-1] == len(self.order) else values


def test_shuffling_the_rows_of_the_noise_shuffles_the_rows_of_all_nodes() -> None:
    """Rows are exchangeable: nothing tells the last rows, which become queries, from the first."""
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    _, plain = make(functions=NodeFunctionConfig(), noise=NodeNoiseConfig())
    _, moved = make(functions=NodeFunctionConfig(), noise=NodeNoiseConfig(), draws=_Shuffled(0, order))
    gap = (moved.values - plain.values[..., order]).abs()
    assert (gap > 1e-2).float().mean() < 1e-3  # rounding may tip a row over a threshold
    assert (plain.values - plain.values[..., order]).abs().mean() > 0.5
