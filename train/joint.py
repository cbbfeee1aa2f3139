"""Joint training of both tasks on one backbone: weighted losses, and how the tasks' gradients lie to each other.

A batch is read in two halves. Their mean is the batch's gradient; the product of the two halves is an estimate of the
squared length of the expected gradient that is free of the noise which the length of one batch's gradient contains.
The cosine of two noisy gradients lies nearer to 0 than that of their expectations, so the cosine between the halves of
one task's batch is recorded beside it: what two batches of the *same* task reach.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from model.label_injection import LabelKind
from model.network import Network
from model.shared_backbone import SharedBackbone, is_shared
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from train.optimizers import Optimizer
from train.skips import SkipReason, not_finite
from train.step import batch_losses, clipped_update

Gradients = dict[str, Tensor]
"""Parameter's name → gradient."""

ALL = "backbone"
"""The stage that holds every shared parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossWeights:
    """Factors of the two losses."""

    classification: float = 1.0
    """Factor of the classification loss (nats per query)."""
    regression: float = 1.0
    """Factor of the regression loss (nats per query on the scaled axis, or what its head minimises)."""

    def __post_init__(self) -> None:
        """Refuses a weight under which a task would not be trained.

        Raises:
            Failure: BAD_FLAG, naming the task and the weight (no ValueError, which a command line's parser swallows).
        """
        for kind in LabelKind:
            if not (math.isfinite(self.of(kind)) and self.of(kind) > 0):
                raise Failure(ExitCode.BAD_FLAG, f"weights.{kind} is {self.of(kind)}: give a number above 0")

    def of(self, kind: LabelKind) -> float:
        """The weight of one task."""
        return self.classification if kind is LabelKind.CLASSIFICATION else self.regression


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskGradient:
    """One task's loss on a batch and its gradients, by name in that task's network.

    Args:
        loss: mean over queries, without its weight.
        mean: of the whole batch.
        halves: of the first and of the second half.
    """

    loss: float
    mean: Gradients
    halves: tuple[Gradients, Gradients]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageComparison:
    """How the gradients of two tasks lie to each other in one stage.

    Args:
        cosine: between the tasks; 0 where one has no gradient.
        dot: product of the two.
        norms: length of each task's gradient, without its weight.
        half_cosines: between the halves of each task's own batch.
        half_dots: product of those halves.
    """

    cosine: float
    dot: float
    norms: dict[LabelKind, float]
    half_cosines: dict[LabelKind, float]
    half_dots: dict[LabelKind, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointStep:
    """What one step did.

    Args:
        loss: what was minimised: the weighted sum.
        losses: of each task, without its weight.
        gradient_norm: of the weighted sum over all parameters, before clipping.
        stages: comparison in each stage of the backbone, and in all of it (`ALL`).
        reason: why the update was left out; None where it was made.
    """

    loss: float
    losses: dict[LabelKind, float]
    gradient_norm: float
    stages: dict[str, StageComparison]
    reason: SkipReason | None


def loss_gradients(network: Network, batch: TaskBatch, *, dtype: torch.dtype) -> tuple[float, Gradients]:
    """Mean loss over the batch's queries and its gradient for every parameter; nothing is changed."""
    named = dict(network.named_parameters())
    loss = batch_losses(network, batch, dtype=dtype).mean()
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    pairs = zip(named.items(), found, strict=True)
    return float(loss.detach()), {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}


def task_gradient(network: Network, halves: Sequence[TaskBatch], *, dtype: torch.dtype) -> TaskGradient:
    """Loss and gradients of a batch that is given as two halves of equal size."""
    first, second = (loss_gradients(network, half, dtype=dtype) for half in halves)
    mean = {name: (gradient + second[1][name]) / 2 for name, gradient in first[1].items()}
    return TaskGradient(loss=(first[0] + second[0]) / 2, mean=mean, halves=(first[1], second[1]))


def compare(tasks: Mapping[LabelKind, TaskGradient], names: Sequence[str]) -> StageComparison:
    """Compares the gradients of two tasks over the named shared parameters."""
    left, right = (_flat(tasks[kind].mean, names) for kind in LabelKind)
    halves = {kind: [_flat(half, names) for half in tasks[kind].halves] for kind in LabelKind}
    return StageComparison(
        cosine=cosine(left, right),
        dot=float(left @ right),
        norms={kind: float(g.norm()) for kind, g in zip(LabelKind, (left, right), strict=True)},
        half_cosines={kind: cosine(*pair) for kind, pair in halves.items()},
        half_dots={kind: float(pair[0] @ pair[1]) for kind, pair in halves.items()},
    )


def cosine(left: Tensor, right: Tensor) -> float:
    """Cosine of the angle between two vectors [n] of fp64; 0 where one of them is 0."""
    length = float(left.norm() * right.norm())
    return float(left @ right) / length if length else 0.0


def joint_step(
    network: SharedBackbone,
    optimizer: Optimizer,
    *,
    halves: Mapping[LabelKind, Sequence[TaskBatch]],
    weights: LossWeights,
    factor: float,
    dtype: torch.dtype,
) -> JointStep:
    """One update from the weighted sum of both tasks' losses.

    Args:
        network: both networks on their backbone.
        optimizer: over all of its parameters.
        halves: each task's batch, as two halves of equal size.
        weights: of the two losses.
        factor: of the peak learning rates.
        dtype: of the forward pass.
    """
    tasks = {kind: task_gradient(network.network(kind), halves[kind], dtype=dtype) for kind in LabelKind}
    stages = network.stages()
    stages[ALL] = list(network.shared())
    compared = {stage: compare(tasks, names) for stage, names in stages.items()}
    set_gradients(network, tasks, weights=weights)
    loss = sum(weights.of(kind) * task.loss for kind, task in tasks.items())
    norm = float(nn.utils.get_total_norm([parameter.grad for parameter in network.parameters()]))
    reason = not_finite(loss=loss, gradient_norm=norm)
    if reason is None:
        clipped_update(network, optimizer, norm=norm, factor=factor)
    losses = {kind: task.loss for kind, task in tasks.items()}
    return JointStep(loss=loss, losses=losses, gradient_norm=norm, stages=compared, reason=reason)


def set_gradients(network: SharedBackbone, tasks: Mapping[LabelKind, TaskGradient], *, weights: LossWeights) -> None:
    """Puts the gradient of the weighted sum of the losses into every parameter's `grad`."""
    shared = {name: sum(weights.of(kind) * tasks[kind].mean[name] for kind in LabelKind) for name in network.shared()}
    for kind, task in tasks.items():
        for name, parameter in network.network(kind).named_parameters():
            parameter.grad = shared[name] if is_shared(name) else weights.of(kind) * task.mean[name]


def _flat(gradients: Gradients, names: Sequence[str]) -> Tensor:
    return torch.cat([gradients[name].flatten() for name in names]).double()
