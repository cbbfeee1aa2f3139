"""Heads on frozen hidden states: one protocol for all, three disjoint sets of tasks, weights that stay."""

import dataclasses

import numpy as np
import pytest
import torch

from eval.frozen_heads import HEADS, METRICS, FrozenConfig, HeadScore, compare_heads, frozen_states, summarise
from eval.small_network import trained_network
from model.network import Network
from priors.generation import held_out_episodes
from priors.mixture import PriorConfig
from priors.task import TaskKind

_CONFIG = FrozenConfig(
    num_steps=120,
    num_seeds=2,
    num_tasks=24,
    num_calibration_tasks=8,
    num_test_tasks=12,
    prior=PriorConfig(max_rows=96, max_features=6),
)


@pytest.fixture(scope="module")
def network() -> Network:
    return trained_network(TaskKind.CLASSIFICATION, num_steps=80)[0]


@pytest.fixture(scope="module")
def scores(network: Network) -> list[HeadScore]:
    return compare_heads(network, _CONFIG)


def test_every_head_is_scored_on_the_same_tasks_and_seeds(scores: list[HeadScore]) -> None:
    """6.E, 6.12: retrieval against linear and MLP, one head against many, three forms; accuracy, NLL, ECE."""
    assert [(score.head, score.seed) for score in scores] == [(head, seed) for head in HEADS for seed in (0, 1)]
    sizes = {len(values) for score in scores for values in score.per_task.values()}
    assert sizes == {_CONFIG.num_test_tasks}
    assert all(set(score.per_task) == set(METRICS) for score in scores)
    assert {"retrieval", "retrieval, one head (Mini)", "linear", "mlp", "kernel"} <= set(HEADS)


def test_heads_with_parameters_learn(network: Network, scores: list[HeadScore]) -> None:
    """6.E: those that read rows lose NLL; the kernel has nothing to learn.

    Slot heads are trained too, but a fixed map from state to slot need not gain on new tasks, whose slots are random.
    """
    untrained = compare_heads(network, dataclasses.replace(_CONFIG, num_steps=0))
    for name in HEADS:
        nll = [summarise(part, "nll")[name].mean for part in (untrained, scores)]
        if name == "kernel":
            assert nll[0] == nll[1]
        elif name in ("linear", "mlp"):
            assert nll[1] != nll[0], name
        else:
            assert nll[1] < nll[0], name


def test_the_comparison_is_repeatable(network: Network, scores: list[HeadScore]) -> None:
    """6.12: same seeds, same figures."""
    again = compare_heads(network, _CONFIG, heads={"mlp": HEADS["mlp"]})
    first = [score for score in scores if score.head == "mlp"]
    for one, other in zip(first, again, strict=True):
        assert one.temperature == other.temperature
        assert all(np.array_equal(one.per_task[metric], other.per_task[metric]) for metric in METRICS)


def test_the_backbone_stays_frozen(network: Network) -> None:
    """6.12: hidden states are computed once, without a gradient; no weight of the network moves."""
    before = {name: value.clone() for name, value in network.state_dict().items()}
    compare_heads(network, dataclasses.replace(_CONFIG, num_steps=5), heads={"linear": HEADS["linear"]})
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    states = frozen_states(network, held_out_episodes(_CONFIG.prior, seed=11, count=2))
    assert not any(state.query.requires_grad or state.context.requires_grad for state in states)


def test_the_temperature_comes_from_other_tasks_than_the_scores() -> None:
    """6.7: three sets of tasks that share none."""
    sets = [held_out_episodes(_CONFIG.prior, seed=seed, count=8) for seed in (11, 12, 13)]
    tables = [{episode.task.x.tobytes() for episode in episodes} for episodes in sets]
    assert not tables[0] & tables[1] and not tables[0] & tables[2] and not tables[1] & tables[2]


def test_intervals_are_over_tasks_and_differences_are_paired() -> None:
    """6.12: a head that is better by the same amount on every task has a difference without spread."""
    noise = np.random.default_rng(0).normal(size=50)
    parts = [
        HeadScore(head=head, seed=seed, parameters=1, temperature=1.0, per_task={"nll": noise + gap + 0.1 * seed})
        for head, gap in (("first", 0.0), ("second", -0.3))
        for seed in range(2)
    ]
    found = summarise(parts, "nll")
    assert found["second"].against == pytest.approx((-0.3, -0.3, -0.3))
    assert found["first"].against == (0.0, 0.0, 0.0)
    assert found["first"].high - found["first"].low == pytest.approx(2 * 1.96 * noise.std(ddof=1) / np.sqrt(50))
