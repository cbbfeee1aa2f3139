"""Whether a device computes what the CPU computes in fp32: predictions, losses, gradients and steps of the optimizer.

Errors are norms of differences over norms of the CPU's values. Bounds are for networks of the size `tiny` with random
weights, in which every path matters.
"""

import copy
import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.findings import Finding, TimeBudget
from model import presets
from model.class_distribution import ClassLogProbabilities
from model.classification_head import ClassificationHeadConfig, ClassificationHeadKind
from model.icl_transformer import AttentionPath
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from model.precision import mixed_precision
from model.regression_heads import (
    PointPrediction,
    RegressionHeadConfig,
    RegressionHeadKind,
    RegressionPrediction,
)
from priors.mixture import PriorConfig, sample_group
from priors.task import Episode, TaskBatch, TaskKind, collate
from train.device_feed import on_device
from train.optimizer_config import OptimizerConfig
from train.optimizers import make_optimizer
from train.step import query_losses, training_step

_NUM_STEPS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """Largest relative errors against the CPU in fp32.

    Args:
        output: of probabilities, masses, points or quantiles.
        loss: of the mean loss.
        gradient: of all gradients as one vector.
        moved: of all weights after some steps, over what they moved.
    """

    output: float
    loss: float
    gradient: float
    moved: float


BOUNDS = {
    torch.float32: Bounds(output=1e-3, loss=1e-4, gradient=1e-2, moved=0.2),
    torch.bfloat16: Bounds(output=0.08, loss=0.03, gradient=0.25, moved=0.8),
}


def check_network(device: torch.device, budget: TimeBudget) -> Iterator[Finding]:
    """Every head, every attention path, both precisions."""
    for config, name in _configs():
        batch = prior_batch(TaskKind(config.kind.value), rows=96, features=6, count=8)
        network = random_network(config)
        expected = _evaluate(network, batch, dtype=torch.float32)
        for dtype, bounds in BOUNDS.items():
            if not budget.allows_more():
                return
            label = f"{name}, {_short(dtype)}"
            moved = copy.deepcopy(network).to(device)
            for path in AttentionPath:
                moved.icl.path = path
                with torch.no_grad(), mixed_precision(device, dtype):
                    output = visible(moved(on_device(batch, device).inputs))
                error = relative_error(output, expected.output)
                yield Finding(name=f"output, {label}, {path} path", value=error, bound=bounds.output)
            moved.icl.path = AttentionPath.FAST
            found = _evaluate(moved, batch, dtype=dtype)
            yield Finding(name=f"loss, {label}", value=relative_error(found.loss, expected.loss), bound=bounds.loss)
            error = relative_error(found.gradient, expected.gradient)
            yield Finding(name=f"gradient, {label}", value=error, bound=bounds.gradient)


def check_steps(device: torch.device, budget: TimeBudget) -> Iterator[Finding]:
    """A few steps of the training's own code on one batch."""
    for kind in LabelKind:
        batch = prior_batch(TaskKind(kind.value), rows=96, features=6, count=8)
        network = random_network(presets.tiny(kind))
        expected = _steps(network, batch, device=torch.device("cpu"), dtype=torch.float32)
        start = _flat(network.parameters())
        for dtype, bounds in BOUNDS.items():
            if not budget.allows_more():
                return
            found = _steps(network, batch, device=device, dtype=dtype)
            error = float((found - expected).norm() / (expected - start).norm())
            name = f"weights after {_NUM_STEPS} steps, {kind}, {_short(dtype)}"
            yield Finding(name=name, value=error, bound=bounds.moved)


def check_prior(device: torch.device, budget: TimeBudget, *, count: int) -> Iterator[Finding]:
    """Tasks drawn on the device are of the prior that the CPU draws from: means of what describes a task agree.

    Both sides draw other tasks. A difference is in units of its standard error: 5 is very unlikely by chance.

    Args:
        device: where tasks are drawn.
        budget: when to stop.
        count: tasks on each side.
    """
    for kind in TaskKind:
        if not budget.allows_more():
            return
        expected = _described(kind, device="cpu", count=count, seed=0)
        for name, ours in _described(kind, device=str(device), count=count, seed=1).items():
            theirs = expected[name]
            spread = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
            distance = abs(ours.mean() - theirs.mean()) / max(spread, 1e-9)
            facts = {"device": float(ours.mean()), "cpu": float(theirs.mean())}
            yield Finding(name=f"{name}, {kind}", value=float(distance), unit="σ", bound=5.0, facts=facts)


def prior_batch(kind: TaskKind, *, rows: int, features: int, count: int, seed: int = 0) -> TaskBatch:
    """Tasks of the default prior, drawn on the CPU, half of their rows as context."""
    group = sample_group(PriorConfig(kind=kind), seed=seed, rows=rows, features=features, count=count)
    return collate([Episode(task=task, num_context=rows // 2) for task in group.tasks()])


def random_network(config: NetworkConfig) -> Network:
    """A network whose every weight is random: a fresh one has zeros, behind which errors hide."""
    network, generator = Network(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
            else:
                parameter.copy_(parameter.mean().round() + 0.1 * noise)  # around 1 for a norm, else around 0
    return network


def visible(prediction: ClassLogProbabilities | RegressionPrediction) -> Tensor:
    """What a prediction says, as numbers without infinities."""
    if isinstance(prediction, ClassLogProbabilities):
        return prediction.probabilities()
    if isinstance(prediction, PointPrediction):
        return prediction.value
    return prediction.log_mass.exp() if hasattr(prediction, "log_mass") else prediction.values


def relative_error(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖, on the CPU in fp64."""
    found, expected = (part.detach().cpu().double() for part in (found, expected))
    return float((found - expected).norm() / expected.norm())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Evaluation:
    output: Tensor
    loss: Tensor
    gradient: Tensor


def _evaluate(network: Network, batch: TaskBatch, *, dtype: torch.dtype) -> _Evaluation:
    device = next(network.parameters()).device
    there = on_device(batch, device)
    with mixed_precision(device, dtype):
        prediction = network(there.inputs)
    loss = query_losses(prediction, there.y_query).mean()
    used = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, used, allow_unused=True, materialize_grads=True)
    return _Evaluation(output=visible(prediction), loss=loss, gradient=_flat(gradients))


def _steps(network: Network, batch: TaskBatch, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """All weights, on the CPU, after some steps from the network's own."""
    trained = copy.deepcopy(network).to(device)
    optimizer = make_optimizer(trained, OptimizerConfig())
    for _ in range(_NUM_STEPS):
        training_step(trained, optimizer, batch=batch, factor=0.1, dtype=dtype)
    return _flat(trained.parameters())


def _flat(tensors: Iterator[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.detach().cpu().float().flatten() for tensor in tensors])


def _configs() -> Iterator[tuple[NetworkConfig, str]]:
    for head in ClassificationHeadKind:
        config = presets.tiny(LabelKind.CLASSIFICATION)
        yield dataclasses.replace(config, classification=ClassificationHeadConfig(kind=head)), f"{head} head"
    for head in RegressionHeadKind:
        config = presets.tiny(LabelKind.REGRESSION)
        yield dataclasses.replace(config, regression=RegressionHeadConfig(kind=head)), f"{head} head"


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]


def _described(kind: TaskKind, *, device: str, count: int, seed: int) -> dict[str, np.ndarray]:
    """[count] of each task: what describes it."""
    group = sample_group(PriorConfig(kind=kind), seed=seed, rows=64, features=6, count=count, device=device)
    missing = np.isnan(group.x)
    filled = np.where(missing, 0.0, np.clip(group.x, -1e6, 1e6)).astype(np.float64)
    y = group.y.astype(np.float64)
    y = (y - y.mean(1, keepdims=True)) / (y.std(1, keepdims=True) + 1e-9)
    x = (filled - filled.mean(1, keepdims=True)) / (filled.std(1, keepdims=True) + 1e-9)
    found = {
        "missing cells": missing.mean((1, 2)),
        "columns that are categories": (group.column_kinds == 2).mean(1),
        "levels of a column": group.level_counts.mean(1).astype(np.float64),
        "strongest correlation with the target": np.abs((x * y[:, :, None]).mean(1)).max(1),
        "distinct values of a column": np.array([[len(np.unique(c)) for c in table.T] for table in group.x]).mean(1),
    }
    if kind is TaskKind.CLASSIFICATION:
        found["classes"] = group.num_classes.astype(np.float64)
    return found
