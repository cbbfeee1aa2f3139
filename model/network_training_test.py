"""Gradients reach every parameter, a few steps lower the loss, and bf16 agrees with fp32."""

import dataclasses

import pytest
import torch
from torch import Tensor

from model.label_injection import LabelKind
from model.network import Network, NetworkInputs
from model.specimens import distance, specimen_config, specimen_inputs, specimen_network, values

KINDS = list(LabelKind)


def _loss(network: Network, inputs: NetworkInputs, answers: Tensor) -> Tensor:
    """Mean NLL; in regression on the scaled axis."""
    prediction = network(inputs)
    if network.config.kind is LabelKind.CLASSIFICATION:
        return prediction.nll(answers).mean()
    scaled = (answers - prediction.location) / prediction.scale
    return -prediction.log_density_scaled(scaled).mean()


def _learnable(kind: LabelKind) -> tuple[NetworkInputs, Tensor]:
    """Tasks whose answer is the sign (or the value) of one of two columns, another one in each table."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 40, 2, generator=generator)
    chosen = x[torch.arange(16), :, torch.arange(16) % 2]
    y = (chosen > 0).float() if kind is LabelKind.CLASSIFICATION else 3.0 * chosen + 5.0
    inputs = NetworkInputs(
        x_context=x[:, :24],
        y_context=y[:, :24],
        x_query=x[:, 24:],
        column_kinds=torch.zeros(16, 2, dtype=torch.int8),
        num_classes=2 if kind is LabelKind.CLASSIFICATION else 0,
    )
    return inputs, y[:, 24:]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_parameter(kind: LabelKind) -> None:
    """No parameter is dead once the zero-initialised tensors are redrawn (class rows that no label uses aside)."""
    network = specimen_network(kind, dtype=torch.float64)
    inputs = specimen_inputs(kind, context=30, dtype=torch.float64)
    _loss(network, inputs, torch.ones(2, 4)).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        gradient = parameter.grad[:3] if name.endswith("classes.weight") else parameter.grad
        largest = gradient.abs().flatten(1).amax(1) if gradient.dim() > 1 else gradient.abs()
        assert (largest > 1e-12).all(), name  # a parameter that cancels out has gradients of rounding, about 1e-17


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_steps_lower_the_loss_from_initialisation(kind: LabelKind) -> None:
    """60 Adam steps on a toy batch, from the network's own initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network(specimen_config(kind))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    inputs, answers = _learnable(kind)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = _loss(network, inputs, answers)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0], losses[::10]


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_autocast_agrees_with_fp32(kind: LabelKind) -> None:
    """Probabilities within 0.02 where matrices are multiplied in bf16; the outputs themselves are fp32 or wider."""
    network, inputs = Network(specimen_config(kind)).eval(), specimen_inputs(kind, context=40)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    toy, answers = _learnable(kind)
    for _ in range(5):
        optimizer.zero_grad()
        _loss(network, toy, answers).backward()
        optimizer.step()
    with torch.no_grad():
        full = network(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            half = network(inputs)
    exact, rounded = values(full), values(half)
    if kind is LabelKind.REGRESSION:
        exact, rounded = full.log_mass.exp(), half.log_mass.exp()
    assert rounded.dtype is torch.float32
    assert 0.0 < distance(exact, rounded) < 2e-2


def test_the_same_inputs_give_the_same_bits() -> None:
    """5.1: prediction has no randomness and leaves nothing behind."""
    network, inputs = (part(LabelKind.CLASSIFICATION) for part in (specimen_network, specimen_inputs))
    first = network(inputs).log_p
    network(dataclasses.replace(inputs, x_query=inputs.x_query + 1))
    assert torch.equal(network(inputs).log_p, first)
