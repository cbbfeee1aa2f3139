"""Runs the graphs of a batch: the values of all nodes, level by level, the nodes of one function together.

A node has D components, each of mean 0 and variance 1 over the rows:

    value = sqrt(1 - s) f(parents) + sqrt(s) noise

with the noise share s of the node. A root is a function of its own noise, so roots have many distributions too (normal,
skewed, in clumps, of few values).
"""

import dataclasses

import torch

from priors.draws import Draws
from priors.node_functions import (
    NodeFunction,
    NodeFunctionConfig,
    NodeParameters,
    draw_functions,
    draw_parameters,
    evaluate,
)
from priors.random_graph import RandomGraphs

COMPONENTS = 2
_FEW_PARENTS = 2
_WORTH_A_CALL = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeNoiseConfig:
    """Noise inside the graphs."""

    clean_share: float = 0.25
    """Share of tasks whose nodes follow exactly from their parents."""
    least: float = 1e-3
    """Smallest share of a node's variance that is noise, in the other tasks; log-uniform."""
    most: float = 0.5
    """Largest."""
    long_tail_share: float = 0.15
    """Share of tasks whose noise has long tails."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeStates:
    """Values of the nodes of B tasks, M in all, in the flat order of `RandomGraphs`.

    Args:
        values: [M + 1, D, R], in the order of evaluation; the last is 0.
        places: [M] int64, where in `values` each node is.
        functions: [M] int64, positions in `NodeFunction`.
        noise_shares: [M], share of a node's variance that its parents do not give; 0 for a root.
        pairs: [B] bool, whether children follow from both components of a node or from the first alone.
    """

    values: torch.Tensor
    places: torch.Tensor
    functions: torch.Tensor
    noise_shares: torch.Tensor
    pairs: torch.Tensor


def run_graphs(
    draws: Draws,
    graphs: RandomGraphs,
    *,
    functions: NodeFunctionConfig,
    noise: NodeNoiseConfig,
    rows: int,
    pair_share: float,
) -> NodeStates:
    """Draws node functions and noise, and evaluates all graphs.

    Args:
        draws: the random source.
        graphs: B of them.
        functions: how often each function is used.
        noise: how strong the noise is.
        rows: R of every task.
        pair_share: share of tasks in which both components of a node cause its children.
    """
    count, number = len(graphs.sizes), len(graphs.tasks)
    codes = draw_functions(draws, functions, tasks=graphs.tasks, count=count)
    pairs = draws.happens((count,), share=pair_share)
    crowded = (graphs.parents < number).sum(-1) > _FEW_PARENTS
    key = (graphs.levels * len(NodeFunction) + codes) * 2 + crowded
    order = key.argsort(stable=True)
    places = torch.empty_like(order).scatter_(0, order, draws.arange(number))
    shares = _noise_shares(draws, noise, graphs=graphs) * (graphs.levels > 0)
    inputs = torch.cat([places, draws.tensor([number])])[graphs.parents[order]]
    inputs[:, 0] = torch.where(graphs.levels[order] == 0, draws.arange(number), inputs[:, 0])
    used = (inputs < number).unsqueeze(-1) & torch.stack([torch.ones_like(pairs), pairs], -1)[graphs.tasks[order], None]
    parameters = []
    for code, function in enumerate(NodeFunction):
        chosen = (codes[order] == code).nonzero().squeeze(-1)
        parameters.append(draw_parameters(draws, function, used=used.flatten(1)[chosen], components=COMPONENTS))
    values = _noise(draws, noise, tasks=graphs.tasks[order], count=count, rows=rows)
    layout = key.bincount(minlength=2 * len(NodeFunction) * (int(graphs.levels.max()) + 1))
    layout = layout.view(-1, len(NodeFunction), 2)
    _fill(values, inputs=inputs, parameters=parameters, shares=shares[order], layout=layout.tolist())
    return NodeStates(values=values, places=places, functions=codes, noise_shares=shares, pairs=pairs)


def _noise_shares(draws: Draws, config: NodeNoiseConfig, *, graphs: RandomGraphs) -> torch.Tensor:
    """[M] share of noise: a level per task, and nodes around it."""
    count = len(graphs.sizes)
    level = draws.log_uniform((count,), low=config.least, high=config.most)
    level = level * ~draws.happens((count,), share=config.clean_share)
    spread = draws.uniform((count,))
    return (level[graphs.tasks] * (spread[graphs.tasks] * draws.normal(graphs.tasks.shape)).exp()).clamp_(max=0.9)


def _noise(draws: Draws, config: NodeNoiseConfig, *, tasks: torch.Tensor, count: int, rows: int) -> torch.Tensor:
    """[M + 1, D, R] of variance 1; the last is 0."""
    values = draws.normal((len(tasks) + 1, COMPONENTS, rows))
    values[-1] = 0
    long = draws.happens((count,), share=config.long_tail_share)[tasks].nonzero().squeeze(-1)
    values[long] *= values[long].abs() * 3**-0.5
    return values


def _fill(
    values: torch.Tensor,
    *,
    inputs: torch.Tensor,
    parameters: list[NodeParameters],
    shares: torch.Tensor,
    layout: list[list[list[int]]],
) -> None:
    """Replaces the noise in `values` by the nodes' values, one level after another.

    Args:
        values: [M + 1, D, R], in the order of level, function, and whether a node has more than a few parents.
        inputs: [M, P], where the parents of each node are.
        parameters: of the nodes of each function, in the same order.
        shares: [M], of noise.
        layout: number of nodes by level, function, and whether there are many parents.
    """
    rows = values.shape[-1]
    loud, clear = shares.sqrt().view(-1, 1, 1), (1 - shares).sqrt().view(-1, 1, 1)
    done = [0] * len(NodeFunction)
    start = 0
    for level in layout:
        for code, function in enumerate(NodeFunction):
            for size, parents in _portions(*level[code], most=inputs.shape[1]):
                stop = start + size
                seen = values.index_select(0, inputs[start:stop, :parents].reshape(-1)).view(size, -1, rows)
                chosen = parameters[code].between(done[code], done[code] + size, inputs=seen.shape[1])
                fresh = torch.nn.functional.layer_norm(evaluate(function, chosen, inputs=seen), (rows,), eps=1e-5)
                values[start:stop].mul_(loud[start:stop]).addcmul_(fresh, clear[start:stop])
                done[code] += size
                start = stop


def _portions(few: int, many: int, *, most: int) -> list[tuple[int, int]]:
    """Sizes of the calls for nodes with few and with many parents, and how many parents to read; small ones are one."""
    apart = few >= _WORTH_A_CALL or not many
    sizes = [(few, min(_FEW_PARENTS, most)), (many, most)] if apart else [(few + many, most)]
    return [(size, parents) for size, parents in sizes if size]
