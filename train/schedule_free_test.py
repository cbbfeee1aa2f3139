"""Tests of schedule-free AdamW against its published recursion, written out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from train.optimizer_config import OptimizerConfig, OptimizerKind, schedule
from train.schedule_free import ScheduleFreeAdamW

_CONFIG = OptimizerConfig(kind=OptimizerKind.SCHEDULE_FREE, vector_lr=0.03, betas=(0.9, 0.95), weight_decay=0.1)


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _flat(tensors: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors]).numpy()


def _is_decayed(network: nn.Module) -> np.ndarray:
    return np.concatenate(
        [np.full(p.numel(), float(name.endswith("weight"))) for name, p in network.named_parameters()]
    )


def test_it_follows_algorithm_1_of_its_paper() -> None:
    """1.5: Defazio et al. 2024, with a warm-up; the reference in numpy and fp64."""
    network = _network()
    optimizer = ScheduleFreeAdamW(network, _CONFIG)
    y = _flat(list(network.parameters()))
    z, x, v, total = y.copy(), y.copy(), np.zeros_like(y), 0.0
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 13):
        for parameter in network.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        g = _flat([parameter.grad for parameter in network.parameters()])
        optimizer.step(min(1.0, t / 5))
        v = 0.95 * v + 0.05 * g**2
        gamma = 0.03 * min(1.0, t / 5) * math.sqrt(1 - 0.95**t)
        z = z - gamma * g / (np.sqrt(v) + 1e-8) - gamma * 0.1 * _is_decayed(network) * y
        total += gamma**2
        c = gamma**2 / total
        x = (1 - c) * x + c * z
        y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(_flat(list(network.parameters())), y, atol=2e-6)
        np.testing.assert_allclose(_flat(list(optimizer.averaged().values())), x, atol=2e-6)


def test_its_average_fits_a_target_better_than_the_weights_that_the_gradients_move() -> None:
    """What is deployed is x: with noisy gradients it lies nearer to the minimum than z."""
    layer = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(layer.weight)
    optimizer = ScheduleFreeAdamW(layer, OptimizerConfig(kind=OptimizerKind.SCHEDULE_FREE, vector_lr=0.05))
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        noise = torch.randn(layer.weight.shape, generator=generator)
        layer.weight.grad = layer.weight.detach() - 1.0 + noise
        optimizer.step(1.0)
    z = optimizer.state_tensors()["z/weight"]
    distances = [float((tensor - 1.0).norm()) for tensor in (optimizer.averaged()["weight"], z)]
    assert distances[0] < 0.5 * distances[1]


def test_its_rate_rises_and_never_falls() -> None:
    factors = [schedule(step, num_steps=100, config=_CONFIG) for step in range(100)]
    assert factors == [min(1.0, (step + 1) / 3) for step in range(100)]


@pytest.mark.parametrize("left_out", [None, "z", "x", "second", "weights", "num_updates"])
def test_state_restored_into_a_new_optimizer_goes_on_bit_by_bit(left_out: str | None) -> None:
    """T2: leaving out any part of the state shows."""

    def train(network: nn.Module, optimizer: ScheduleFreeAdamW, numbers: range) -> None:
        for number in numbers:
            for place, parameter in enumerate(network.parameters()):
                generator = torch.Generator().manual_seed(100 * number + place)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step(1.0)

    straight = _network()
    optimizer = ScheduleFreeAdamW(straight, _CONFIG)
    train(straight, optimizer, range(4))
    weights = {name: tensor.clone() for name, tensor in straight.state_dict().items()}
    saved = {name: tensor.clone() for name, tensor in optimizer.state_tensors().items()}
    train(straight, optimizer, range(4, 8))
    again = _network()
    fresh = ScheduleFreeAdamW(again, _CONFIG).state_tensors()
    again.load_state_dict(weights)
    other = ScheduleFreeAdamW(again, _CONFIG)
    mixed = {name: fresh[name] if left_out and name.split("/")[0] == left_out else saved[name] for name in saved}
    other.load_state_tensors(mixed, num_updates=0 if left_out == "num_updates" else 4)
    train(again, other, range(4, 8))
    equal = np.array_equal(_flat(list(again.parameters())), _flat(list(straight.parameters())))
    assert equal == (left_out is None)
