"""Tests of priors.node_functions: every function occurs and does what its name says."""

import dataclasses
import math

import pytest
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
from tools.failure import BadInput, ExitCode

NODES, PARENTS, COMPONENTS, ROWS = 64, 3, 2, 400


def used_inputs() -> torch.Tensor:
    """[n, I] bool: a third of the nodes each with one, two and three parents."""
    number = torch.arange(NODES) % PARENTS + 1
    return (torch.arange(PARENTS) < number.unsqueeze(-1)).repeat_interleave(COMPONENTS, dim=-1)


def make(function: NodeFunction, *, seed: int = 0) -> NodeParameters:
    """Nodes with one to three parents."""
    return draw_parameters(Draws(seed), function, used=used_inputs(), components=COMPONENTS)


def points(*, seed: int = 1, number: int = ROWS) -> torch.Tensor:
    """[n, I, R] standard normal, 0 where an input does not count."""
    values = torch.randn((NODES, PARENTS * COMPONENTS, number), generator=torch.Generator().manual_seed(seed))
    return values * used_inputs().unsqueeze(-1)


def line(*, seed: int = 2, step: float = 0.1) -> torch.Tensor:
    """[n, I, R] equally spaced points on a random line through each node's inputs."""
    direction, start = points(seed=seed, number=1), points(seed=seed + 1, number=1)
    return start + direction * torch.linspace(-step * ROWS / 2, step * ROWS / 2, ROWS)


def bend(values: torch.Tensor) -> torch.Tensor:
    """[n, D] largest second difference along the rows, in units of the values' range."""
    spread = values.amax(-1) - values.amin(-1)
    return values.diff(n=2, dim=-1).abs().amax(-1) / spread


def num_values(values: torch.Tensor) -> torch.Tensor:
    """[n] number of distinct rows of D components."""
    return torch.tensor([len(node.T.unique(dim=0)) for node in values])


def test_linear_nodes_are_linear() -> None:
    parameters = make(NodeFunction.LINEAR)
    one, other = points(seed=1), points(seed=2)
    both = evaluate(NodeFunction.LINEAR, parameters, inputs=2 * one - 3 * other)
    parts = [evaluate(NodeFunction.LINEAR, parameters, inputs=part) for part in (one, other)]
    assert (both - (2 * parts[0] - 3 * parts[1])).abs().max() < 1e-4
    assert (both.std(-1) > 0.1).all()


def test_quadratic_nodes_are_polynomials_of_degree_two_on_every_line() -> None:
    values = evaluate(NodeFunction.QUADRATIC, make(NodeFunction.QUADRATIC), inputs=line().double().float())
    spread = values.amax(-1) - values.amin(-1)
    assert (values.diff(n=3, dim=-1).abs().amax(-1) / spread).max() < 1e-4
    second = values.diff(n=2, dim=-1).mean(-1) / spread * ROWS**2
    assert (second.abs() > 0.3).float().mean() > 0.9


def test_products_are_straight_in_one_parent_and_interact() -> None:
    parameters = make(NodeFunction.PRODUCT)
    several = used_inputs()[:, COMPONENTS]
    base, alone = points(seed=3, number=1), points(seed=4, number=1)
    alone[:, COMPONENTS:] = 0  # moves the first parent only
    ray = base + alone * torch.linspace(-3, 3, ROWS)
    assert bend(evaluate(NodeFunction.PRODUCT, parameters, inputs=ray))[several].max() < 1e-3
    other = points(seed=5, number=1)
    other[:, :COMPONENTS] = 0
    corners = [
        evaluate(NodeFunction.PRODUCT, parameters, inputs=base + a * alone + b * other) for a in (0, 1) for b in (0, 1)
    ]
    mixed = corners[3] - corners[2] - corners[1] + corners[0]
    assert (mixed[several].abs() > 1e-3).float().mean() > 0.95
    single = evaluate(NodeFunction.PRODUCT, parameters, inputs=ray)[~several]
    curved = single[..., ::100].diff(n=2, dim=-1)
    assert (curved.abs().amax(-1) > 1e-3).float().mean() > 0.9 and curved.diff(dim=-1).abs().max() < 1e-3


def test_mlp_nodes_bend_yet_grow_no_faster_than_their_inputs() -> None:
    parameters = make(NodeFunction.MLP)
    near, far, farther = (evaluate(NodeFunction.MLP, parameters, inputs=points() * scale) for scale in (1, 1e4, 2e4))
    assert ((farther - 2 * far).abs().amax((1, 2)) <= 1e-2 * (1e4 + far.abs().amax((1, 2)))).all()
    linear = (
        evaluate(NodeFunction.MLP, parameters, inputs=-points())
        + near
        - 2 * evaluate(NodeFunction.MLP, parameters, inputs=points() * 0)
    )
    assert (linear.abs().amax((1, 2)) > 0.05).all()
    bounded = far.abs().amax((1, 2)) < 100
    assert 0.15 < bounded.float().mean() < 0.6  # smooth units alone, in a third of the nodes


def test_trees_have_few_values_and_step_at_thresholds_of_single_inputs() -> None:
    parameters = make(NodeFunction.TREE)
    values = evaluate(NodeFunction.TREE, parameters, inputs=points())
    assert num_values(values).max() <= 2**8 and num_values(values).median() >= 6
    assert ((parameters.inward != 0).sum(-1) == 1).all()
    for place in range(PARENTS * COMPONENTS):
        ray = points(seed=6, number=1).expand(-1, -1, ROWS).clone()
        ray[:, place] = torch.linspace(-4, 4, ROWS)
        steps = (evaluate(NodeFunction.TREE, parameters, inputs=ray).diff(dim=-1) != 0).any(1).sum(-1)
        assert steps.max() <= 8  # at most one a question
        assert place >= COMPONENTS or (steps > 0).float().mean() > 0.3


def test_the_depth_of_trees_varies() -> None:
    silent = make(NodeFunction.TREE).offset.isinf().sum((1, 2))
    assert set(silent.tolist()) == {0, 2, 4, 6}


def test_discretised_nodes_have_two_to_eight_values_each_on_a_convex_region() -> None:
    parameters = make(NodeFunction.DISCRETISE)
    inputs = points()
    values = evaluate(NodeFunction.DISCRETISE, parameters, inputs=inputs)
    assert num_values(values).max() == 8 and (num_values(values) >= 2).float().mean() > 0.85
    assert (parameters.offset <= 0).all()  # far centres lose
    partner = inputs.roll(1, dims=-1)
    same = (values == values.roll(1, dims=-1)).all(1)
    between = evaluate(NodeFunction.DISCRETISE, parameters, inputs=(inputs + partner) / 2)
    assert same.float().mean() > 0.1
    assert (between == values).all(1)[same].float().mean() > 0.9999


def test_periodic_nodes_come_back_after_one_period_up_to_a_trend() -> None:
    parameters = make(NodeFunction.PERIODIC)
    wave = parameters.inward[:, 0]
    period = 2 * math.pi * wave / wave.square().sum(-1, keepdim=True)
    start = evaluate(NodeFunction.PERIODIC, parameters, inputs=points())
    whole = evaluate(NodeFunction.PERIODIC, parameters, inputs=points() + period.unsqueeze(-1))
    half = evaluate(NodeFunction.PERIODIC, parameters, inputs=points() + period.unsqueeze(-1) / 2)
    rise = (whole - start).mean(-1, keepdim=True)
    assert (whole - start - rise).abs().max() < 1e-3
    assert ((half - start - rise / 2).abs().amax((1, 2)) > 0.5).all()
    flat = (rise.abs() < 1e-4).all(1).float().mean()
    assert 0.2 < flat < 0.8


def test_waves_are_draws_of_a_process_whose_covariance_falls_with_distance() -> None:
    """Over many nodes, values at near points agree, those at far points are unrelated, and each is bounded."""
    count = 2000
    used = torch.ones((count, 2), dtype=torch.bool)
    parameters = draw_parameters(Draws(0), NodeFunction.WAVES, used=used, components=1)
    places = torch.tensor([0.0, 0.05, 0.5, 30.0]).expand(count, 2, -1) * torch.tensor([1.0, 0.0]).view(1, 2, 1)
    values = evaluate(NodeFunction.WAVES, parameters, inputs=places)[:, 0]
    relation = values.T.corrcoef()[0]
    assert relation[1] > 0.95 > relation[2] > 0.3 > 0.1 > abs(float(relation[3]))
    assert values.abs().max() < 5 and 0.5 < values.std() < 1
    assert abs(float(values.mean())) < 0.1


@pytest.mark.parametrize("function", list(NodeFunction))
def test_nodes_listen_to_every_parent_that_counts_and_to_no_other_input(function: NodeFunction) -> None:
    parameters = make(function)
    inputs, used = points(), used_inputs()
    values = evaluate(function, parameters, inputs=inputs)
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(9))
    assert torch.equal(evaluate(function, parameters, inputs=inputs + noise * ~used.unsqueeze(-1)), values)
    for parent in range(PARENTS):
        mask = torch.zeros((PARENTS * COMPONENTS, 1))
        mask[parent * COMPONENTS : (parent + 1) * COMPONENTS] = 1
        moved = (evaluate(function, parameters, inputs=inputs + 2 * noise * mask) != values).any(1).float().mean(-1)
        assert (moved[used[:, parent * COMPONENTS]] > 0.02).float().mean() > 0.9


@pytest.mark.parametrize("function", list(NodeFunction))
def test_a_row_depends_on_no_other_row(function: NodeFunction) -> None:
    parameters, inputs = make(function), points()
    values = evaluate(function, parameters, inputs=inputs)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(3))
    assert (evaluate(function, parameters, inputs=inputs[..., order]) - values[..., order]).abs().max() < 1e-4
    assert (evaluate(function, parameters, inputs=inputs[..., :7]) - values[..., :7]).abs().max() < 1e-4
    assert values.shape == (NODES, COMPONENTS, ROWS) and values.isfinite().all()


@pytest.mark.parametrize("function", list(NodeFunction))
def test_nodes_of_one_function_differ_and_can_be_taken_apart(function: NodeFunction) -> None:
    parameters, inputs = make(function), points(number=50)
    inputs[:] = inputs[2]  # three parents for all
    values = evaluate(function, parameters, inputs=inputs)
    assert len(values.flatten(1).unique(dim=0)) == NODES
    some = evaluate(function, parameters.between(10, 20, inputs=inputs.shape[1]), inputs=inputs[10:20])
    assert (some - values[10:20]).abs().max() < 1e-4
    alone = inputs.clone()
    alone[:, COMPONENTS:] = 0
    first = evaluate(function, parameters.between(0, NODES, inputs=COMPONENTS), inputs=alone[:, :COMPONENTS])
    assert (first - evaluate(function, parameters, inputs=alone)).abs().max() < 1e-4


def test_functions_are_mixed_within_tasks_and_tasks_have_preferences() -> None:
    tasks = torch.arange(200).repeat_interleave(30)
    codes = draw_functions(Draws(0), NodeFunctionConfig(), tasks=tasks, count=200).view(200, 30)
    counts = torch.nn.functional.one_hot(codes, len(NodeFunction)).sum(1)
    assert (counts.sum(0) > 0).all() and (counts > 0).sum(-1).median() >= 5
    even = draw_functions(Draws(0), NodeFunctionConfig(favour=0.0), tasks=tasks, count=200).view(200, 30)
    assert counts.amax(-1).float().mean() > torch.nn.functional.one_hot(even).sum(1).amax(-1).float().mean() + 1
    wanted = torch.tensor(NodeFunctionConfig().weights)
    assert (even.flatten().bincount() / 6000 - wanted / wanted.sum()).abs().max() < 0.02


def test_a_function_of_weight_0_never_occurs() -> None:
    tasks = torch.zeros(2000, dtype=torch.int64)
    config = dataclasses.replace(NodeFunctionConfig(), mlp=0.0, tree=0.0)
    seen = set(draw_functions(Draws(0), config, tasks=tasks, count=1).tolist())
    left = {code for code, name in enumerate(NodeFunction) if name not in (NodeFunction.MLP, NodeFunction.TREE)}
    assert seen == left


@pytest.mark.parametrize("changes", [{"mlp": -1.0}, {name.value: 0.0 for name in NodeFunction}])
def test_impossible_weights_are_refused(changes: dict[str, float]) -> None:
    config = dataclasses.replace(NodeFunctionConfig(), **changes)
    with pytest.raises(BadInput, match="give none below 0") as caught:
        draw_functions(Draws(0), config, tasks=torch.zeros(3, dtype=torch.int64), count=1)
    assert caught.value.code is ExitCode.BAD_FLAG
