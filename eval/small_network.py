"""Networks for the tests of audits: small, either with all zero tensors re-drawn or trained for some seconds."""

import torch

from eval.records import network_inputs
from eval.specimens import Shape, specimen
from eval.subject import rerandomise
from model.icl_transformer import ICLConfig
from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkConfig
from priors.task import TaskKind, collate


def small_config(kind: TaskKind) -> NetworkConfig:
    """About 45 thousand parameters."""
    return NetworkConfig(
        kind=LabelKind(kind.value),
        cell=CellConfig(width=16, num_rounds=2, num_heads=2, num_inducing=4, num_tokens=2),
        icl=ICLConfig(width=32, num_blocks=2, num_heads=2),
    )


def small_network(kind: TaskKind, *, config: NetworkConfig | None = None, seed: int = 0) -> Network:
    """A network at initialisation, in evaluation mode; of `small_config` where no other is given."""
    return initial_network(config or small_config(kind), seed=seed).eval()


def rerandomised_network(kind: TaskKind, *, config: NetworkConfig | None = None, seed: int = 0) -> Network:
    """The same with its zero tensors re-drawn, so that every part of it matters."""
    return rerandomise(small_network(kind, config=config, seed=seed), seed=seed)


def trained_network(
    kind: TaskKind, *, config: NetworkConfig | None = None, num_steps: int = 150, seed: int = 0
) -> tuple[Network, list[float]]:
    """The same trained on random blobs or smooth functions, and its loss at every step."""
    network = small_network(kind, config=config, seed=seed).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.0)
    shape, losses = Shape(num_context=40, num_query=16, num_features=5), []
    for step in range(num_steps):
        first = (seed * num_steps + step) * 8 + 1000
        batch = collate([specimen(kind, shape, seed=first + index) for index in range(8)])
        loss = network(network_inputs(batch)).losses(torch.from_numpy(batch.y_query)).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return network.eval(), losses
