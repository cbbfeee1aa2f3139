"""Steps on both tasks at once, and the same steps on one of them alone: same batches, optimizer and schedule."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from model.label_injection import LabelKind
from model.network import Network
from model.shared_backbone import SharedBackbone
from priors.batches import BatchPlan
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from train.joint import JointStep, LossWeights, joint_step
from train.optimization import OptimizerConfig, schedule
from train.optimizers import Optimizer, make_optimizer
from train.step import compute_dtype, training_step

_MAX_SKIPPED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmBudget:
    """What every arm of a comparison gets (seed 6.12).

    Args:
        num_steps: optimizer steps.
        first_batch: index of the first step's batch in the plan.
        optimizer: of a fresh optimizer.
    """

    num_steps: int
    first_batch: int
    optimizer: OptimizerConfig


Record = Callable[[dict[str, Any]], None]
"""Takes one flat record of a step, with its "step" (1-based)."""


def train_alone(network: Network, plan: BatchPlan, *, budget: ArmBudget, record: Record) -> None:
    """Trains one network on its own task.

    Raises:
        Failure: DIVERGED when more than 10 steps were not finite.
    """
    optimizer, dtype, skipped = _begin(network, budget)
    for step in range(budget.num_steps):
        batch = plan.batch(budget.first_batch + step)
        factor = schedule(step, num_steps=budget.num_steps, config=budget.optimizer)
        result = training_step(network, optimizer, batch=batch, factor=factor, dtype=dtype)
        skipped = _checked(skipped + result.skipped, step)
        record({"step": step + 1, "train/loss": result.loss, "train/gradient_norm": result.gradient_norm})


def train_jointly(
    network: SharedBackbone,
    plans: Mapping[LabelKind, BatchPlan],
    *,
    budget: ArmBudget,
    weights: LossWeights,
    record: Record,
) -> None:
    """Trains both networks on their backbone: each step sees one batch of each task.

    Raises:
        Failure: DIVERGED when more than 10 steps were not finite.
    """
    optimizer, dtype, skipped = _begin(network, budget)
    for step in range(budget.num_steps):
        index = budget.first_batch + step
        halves = {kind: [plans[kind].batch(index, rank=rank, world_size=2) for rank in range(2)] for kind in LabelKind}
        factor = schedule(step, num_steps=budget.num_steps, config=budget.optimizer)
        result = joint_step(network, optimizer, halves=halves, weights=weights, factor=factor, dtype=dtype)
        skipped = _checked(skipped + result.skipped, step)
        padding = {
            f"padding/{kind}/{name}": share
            for kind in LabelKind
            for name, share in padded_shares(plans[kind].batch(index)).items()
        }
        figures = step_record(result, weights)
        record({"step": step + 1, **figures, "train/learning_rate_factor": factor, **padding})


def step_record(result: JointStep, weights: LossWeights) -> dict[str, float]:
    """A joint step as flat figures: losses, and for every stage cosines, products and lengths of gradients."""
    found = {"train/loss": result.loss, "train/gradient_norm": result.gradient_norm, "train/skipped": result.skipped}
    for kind in LabelKind:
        found[f"train/{kind}/loss"] = result.losses[kind]
        found[f"train/{kind}/weighted_loss"] = weights.of(kind) * result.losses[kind]
    for stage, compared in result.stages.items():
        found[f"cosine/{stage}"], found[f"dot/{stage}"] = compared.cosine, compared.dot
        for kind in LabelKind:
            found[f"half_cosine/{kind}/{stage}"] = compared.half_cosines[kind]
            found[f"half_dot/{kind}/{stage}"] = compared.half_dots[kind]
            found[f"gradient_norm/{kind}/{stage}"] = compared.norms[kind]
    return found


def padded_shares(batch: TaskBatch) -> dict[str, float]:
    """Shares of a batch that only fill it up: output columns of absent classes ("outputs"), and query rows ("queries").

    A batch of classification tasks answers in as many columns as its widest task has classes.
    """
    widest = int(batch.num_classes.max(initial=0))
    outputs = 1 - float(batch.num_classes.mean()) / widest if widest else 0.0
    return {"outputs": outputs, "queries": 1 - float(batch.query_mask.mean())}


def _begin(network: torch.nn.Module, budget: ArmBudget) -> tuple[Optimizer, torch.dtype, int]:
    network.train()
    device = next(network.parameters()).device
    return make_optimizer(network, budget.optimizer), compute_dtype(device), 0


def _checked(skipped: int, step: int) -> int:
    if skipped > _MAX_SKIPPED:
        what = f"training diverged: {skipped} of {step + 1} steps were not finite"
        raise Failure(ExitCode.DIVERGED, f"{what}: lower the learning rates (--optimizer.matrix-lr)")
    return skipped
