"""The trial of heads is fair: what differs between them is the head."""

import numpy as np
import pytest
import torch

from eval import head_trial
from eval.head_trial import Arm, SeedTrial, TrialConfig, fresh_network, train_seed, training_batch
from eval.noisy_tasks import NoiseFamily
from model.network import Network
from model.regression_heads import RegressionHeadKind
from tools.failure import BadInput

TINY = TrialConfig(num_steps=4, batch_size=4, num_seeds=1, num_tasks=3, num_context=12, num_query=6)
HEADS = list(RegressionHeadKind)


def _body(network: Network) -> dict[str, torch.Tensor]:
    return {name: value for name, value in network.state_dict().items() if not name.startswith("head.")}


def _same(one: Network, other: Network) -> bool:
    return all(torch.equal(value, _body(other)[name]) for name, value in _body(one).items())


def _trained(seed: int = 0) -> SeedTrial:
    return list(train_seed(TINY, seed=seed))[-1]


def test_all_heads_of_a_seed_start_on_the_same_backbone() -> None:
    """6.12: same backbone, several seeds."""
    first, *others = (fresh_network(kind, seed=3) for kind in HEADS)
    assert all(_same(first, other) for other in others)
    assert not _same(first, fresh_network(HEADS[0], seed=4))


def test_batches_depend_on_seed_and_step_and_mix_both_families() -> None:
    """6.12: same tasks; nothing that a head does can change them."""
    batch = training_batch(TINY, seed=1, step=2)
    again, later, other = (training_batch(TINY, seed=a, step=b) for a, b in ((1, 2), (1, 3), (2, 2)))
    assert (batch.y_query == again.y_query).all()
    assert (batch.y_query != later.y_query).all() and (batch.y_query != other.y_query).all()
    assert set(batch.families) == {family.value for family in NoiseFamily}


def test_no_evaluation_task_is_a_training_task() -> None:
    """6.12: held-out split."""
    trained = {float(y) for step in range(4) for y in training_batch(TINY, seed=0, step=step).y_context[:, 0]}
    held_out = [t.episode.task for f in NoiseFamily for t in head_trial.evaluation_tasks(TINY, f)]
    assert not trained & {float(task.y[0]) for task in held_out}
    assert max(TrialConfig().num_steps * 100 * TrialConfig().batch_size, 0) < min(task.seed for task in held_out)


def test_the_frozen_arm_has_one_set_of_hidden_states_and_trains_heads_alone() -> None:
    """6.12: "and also the same frozen hidden states"."""
    trial = _trained()
    frozen, trained = trial.arms[Arm.FROZEN], trial.arms[Arm.WHOLE][RegressionHeadKind.BAR]
    batch = training_batch(TINY, seed=0, step=0)
    hidden = [head_trial.hidden_states(frozen[kind], batch)[0] for kind in HEADS]
    assert all(torch.equal(hidden[0], other) for other in hidden[1:])
    assert all(_same(frozen[kind], trained) for kind in HEADS)
    for kind in HEADS:
        start = fresh_network(kind, seed=0).head.layers[0].weight
        assert not torch.equal(frozen[kind].head.layers[0].weight, start)


def test_hidden_states_and_head_make_the_networks_own_prediction() -> None:
    network, batch = fresh_network(RegressionHeadKind.SCALAR, seed=0), training_batch(TINY, seed=0, step=0)
    hidden, location, scale = head_trial.hidden_states(network, batch)
    with torch.no_grad():
        expected = network(head_trial.network_inputs(batch)).mean()
        assert torch.allclose(network.head(hidden, location=location, scale=scale).mean(), expected, atol=1e-5)


def test_training_is_reproducible_lowers_the_loss_and_counts_its_steps() -> None:
    steps = list(train_seed(TINY, seed=0))
    assert steps[:-1] == list(range(1, 2 * TINY.num_steps + 1))
    first, second = steps[-1], _trained()
    for arm in Arm:
        for kind in HEADS:
            one, two = first.arms[arm][kind].state_dict(), second.arms[arm][kind].state_dict()
            assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert set(first.step_seconds) == set(HEADS) and min(first.step_seconds.values()) > 0


def test_the_rate_warms_up_and_ends_near_zero() -> None:
    """6.12: the same schedule for all; 1.5: warm-up, then decay."""
    weight = torch.nn.Linear(1, 1)
    optimizer = head_trial._Optimizer(weight, TrialConfig(num_steps=100, learning_rate=1.0))
    rates = []
    for _ in range(100):
        optimizer.step(weight(torch.ones(1, 1)).sum())
        rates.append(optimizer._inner.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(0.1) and 0.9 < max(rates) <= 1 and np.argmax(rates) in range(7, 12)
    assert rates[-1] < 1e-3 and (np.diff(rates[12:]) < 0).all()


@pytest.mark.parametrize("change", [{"num_steps": 0}, {"num_seeds": 0}, {"batch_size": 1}, {"learning_rate": 0.0}])
def test_sizes_that_mean_nothing_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        head_trial.check(TrialConfig(**change))
