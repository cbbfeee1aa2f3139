"""Scalar, bar and quantile heads on tasks with known noise, under the rules of a fair comparison (seeds 6.C, 6.12).

All heads of a seed have the same initial backbone, batches, steps, optimizer and schedule, the same context-only
scaling of targets and the same tasks to answer, whose true conditional mean and quantiles are known. Two arms:
whole, where every head trains the network under it; frozen, where fresh heads read the same hidden states, of the
network that the bar head trained, and nothing else is trained. Shapes: N context rows, M query rows.
"""

import dataclasses
import enum
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from eval.noisy_tasks import NoiseFamily, NoisyTask, TaskSize, noisy_task
from eval.records import network_inputs
from eval.small_network import small_config, small_network
from model.network import Network
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind, make_regression_head
from model.target_scaling import target_statistics
from priors.task import TaskBatch, TaskKind, collate
from tools.failure import BadInput, ExitCode

EVALUATION_SEEDS = 1 << 40
"""Tasks that are answered have seeds from here on: no training task has one as large."""

_WARM_UP = 0.1


class Arm(enum.StrEnum):
    """What is trained."""

    WHOLE = "whole"
    FROZEN = "frozen"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """What the figures depend on."""

    num_steps: int = 500
    """Optimizer steps of every network."""
    batch_size: int = 16
    """Tasks in a batch, half of each family."""
    num_seeds: int = 3
    """Seeds of weights and batches."""
    num_tasks: int = 48
    """Tasks of each family that are answered; the same for every seed and head."""
    num_context: int = 64
    """N, in training and evaluation."""
    num_query: int = 32
    """M."""
    learning_rate: float = 4e-3
    """Highest rate of AdamW; linear warm-up over a tenth of the steps, then a cosine to 0."""


Heads = dict[RegressionHeadKind, Network]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedTrial:
    """Networks of one seed after training, and what they cost.

    Args:
        seed: of weights and batches.
        arms: network by arm and head.
        step_seconds: median wall-clock seconds of a training step by head, whole arm, all heads in turn.
    """

    seed: int
    arms: dict[Arm, Heads]
    step_seconds: dict[RegressionHeadKind, float]


def check(config: TrialConfig) -> None:
    """Refuses sizes that mean nothing.

    Raises:
        BadInput: BAD_FLAG, naming field and value.
    """
    least = {"num_steps": 1, "batch_size": 2, "num_seeds": 1, "num_tasks": 1, "num_context": 2, "num_query": 1}
    for name, low in least.items():
        if getattr(config, name) < low:
            raise BadInput(ExitCode.BAD_FLAG, f"{name} is {getattr(config, name)}: give {low} or more")
    if not config.learning_rate > 0:
        raise BadInput(ExitCode.BAD_FLAG, f"learning_rate is {config.learning_rate}: give more than 0")


def fresh_network(kind: RegressionHeadKind, *, seed: int) -> Network:
    """A small regression network: equal seeds give equal weights before the head, whatever the head."""
    config = small_config(TaskKind.REGRESSION)
    return small_network(
        TaskKind.REGRESSION,
        config=dataclasses.replace(config, regression=RegressionHeadConfig(kind=kind)),
        seed=seed,
    )


def training_batch(config: TrialConfig, *, seed: int, step: int) -> TaskBatch:
    """Batch `step` of a seed: the same for all heads and arms."""
    size = TaskSize(num_context=config.num_context, num_query=config.num_query)
    first, families = (seed * config.num_steps + step) * config.batch_size, list(NoiseFamily)
    picks = [(families[index % 2], first + index) for index in range(config.batch_size)]
    return collate([noisy_task(family, seed=number, size=size).episode for family, number in picks])


def evaluation_tasks(config: TrialConfig, family: NoiseFamily) -> list[NoisyTask]:
    """The tasks that are answered: other functions than any in training."""
    size = TaskSize(num_context=config.num_context, num_query=config.num_query)
    return [noisy_task(family, seed=EVALUATION_SEEDS + index, size=size) for index in range(config.num_tasks)]


def train_seed(config: TrialConfig, *, seed: int) -> Iterator[int | SeedTrial]:
    """Trains both arms of one seed; yields the number of steps done after each, and the result last."""
    whole = {kind: fresh_network(kind, seed=seed).train() for kind in RegressionHeadKind}
    optimizers = {kind: _Optimizer(whole[kind], config) for kind in RegressionHeadKind}
    seconds: dict[RegressionHeadKind, list[float]] = {kind: [] for kind in RegressionHeadKind}
    for step in range(config.num_steps):
        batch = training_batch(config, seed=seed, step=step)
        inputs, answers = network_inputs(batch), torch.from_numpy(batch.y_query)
        for kind, network in whole.items():
            start = time.perf_counter()
            optimizers[kind].step(network(inputs).losses(answers).mean())
            seconds[kind].append(time.perf_counter() - start)
        yield step + 1
    for network in whole.values():
        network.eval()
    frozen = _fresh_heads(whole[RegressionHeadKind.BAR], seed=seed)
    optimizers = {kind: _Optimizer(frozen[kind].head, config) for kind in RegressionHeadKind}
    for step in range(config.num_steps):
        batch = training_batch(config, seed=seed, step=step)
        hidden, location, scale = hidden_states(frozen[RegressionHeadKind.BAR], batch)
        for kind, network in frozen.items():
            prediction = network.head(hidden, location=location, scale=scale)
            optimizers[kind].step(prediction.losses(torch.from_numpy(batch.y_query)).mean())
        yield config.num_steps + step + 1
    middle = {kind: float(np.median(values)) for kind, values in seconds.items()}
    yield SeedTrial(seed=seed, arms={Arm.WHOLE: whole, Arm.FROZEN: frozen}, step_seconds=middle)


@torch.no_grad()
def hidden_states(network: Network, batch: TaskBatch) -> tuple[Tensor, Tensor, Tensor]:
    """What a regression head reads: hidden states [B, M, D] of queries; location, scale [B, 1] of context targets."""
    mask = torch.from_numpy(batch.context_mask)
    location, scale = target_statistics(torch.from_numpy(batch.y_context), mask)
    return network.hidden(network_inputs(batch)).query, location, scale


def _fresh_heads(trained: Network, *, seed: int) -> Heads:
    """The trained network with each head anew, as `fresh_network` starts it; only heads have gradients."""
    out = {}
    for kind in RegressionHeadKind:
        network = fresh_network(kind, seed=seed)
        head = make_regression_head(network.config.regression, width=network.config.icl.width)
        head.load_state_dict(network.head.state_dict())
        network.head = nn.Identity()
        body = {name: value for name, value in trained.state_dict().items() if not name.startswith("head.")}
        network.load_state_dict(body)
        network.requires_grad_(False)
        network.head = head
        out[kind] = network.eval()
    return out


class _Optimizer:
    """AdamW with a linear warm-up and a cosine; the same for every head and arm."""

    def __init__(self, module: nn.Module, config: TrialConfig) -> None:
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]
        self._rate, self._total, self._done = config.learning_rate, config.num_steps, 0
        self._inner = torch.optim.AdamW(self._weights, lr=config.learning_rate, weight_decay=0.0)

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of a loss."""
        share = (self._done + 1) / self._total
        factor = min(share / _WARM_UP, 0.5 * (1 + np.cos(np.pi * self._done / self._total)))
        for group in self._inner.param_groups:
            group["lr"] = self._rate * factor
        self._inner.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._inner.step()
        self._done += 1
