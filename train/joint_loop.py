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
from train.joint import JointStep, LossWeights, joint_step
from train.optimizer_config import OptimizerConfig, schedule
from train.optimizers import Optimizer, make_optimizer
from train.skips import MAX_IN_ROW, SkipReason, count_skip, divergence
from train.step import compute_dtype, training_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmBudget:
    """What every arm of a comparison gets (seed 6.12).

    Args:
        num_steps: optimizer steps.
        first_batch: index of the first step's batch in the plan.
        optimizer: of a fresh optimizer.
        flag: of the optimizer's fields, as users write it.
    """

    num_steps: int
    first_batch: int
    optimizer: OptimizerConfig
    flag: str = "--optimizer"


Record = Callable[[dict[str, Any]], None]
"""Takes one flat record of a step, with its "step" (1-based)."""


def train_alone(network: Network, plan: BatchPlan, *, budget: ArmBudget, record: Record) -> None:
    """Trains one network on its own task.

    Raises:
        Failure: DIVERGED when too many steps were skipped (`train.skips`), or all.
    """
    optimizer, dtype, counts = _begin(network, budget)
    for step in range(budget.num_steps):
        batch = plan.batch(budget.first_batch + step)
        factor = schedule(step, num_steps=budget.num_steps, config=budget.optimizer)
        result = training_step(network, optimizer, batch=batch, factor=factor, dtype=dtype)
        counts.add(result.reason, detail=result.detail)
        figures = {"train/loss": result.loss, "train/gradient_norm": result.gradient_norm}
        record({"step": step + 1, **figures, "train/skipped": result.skipped})


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
        Failure: DIVERGED when too many steps were skipped (`train.skips`), or all.
    """
    optimizer, dtype, counts = _begin(network, budget)
    for step in range(budget.num_steps):
        index = budget.first_batch + step
        halves = {kind: [plans[kind].batch(index, rank=rank, world_size=2) for rank in range(2)] for kind in LabelKind}
        factor = schedule(step, num_steps=budget.num_steps, config=budget.optimizer)
        result = joint_step(network, optimizer, halves=halves, weights=weights, factor=factor, dtype=dtype)
        counts.add(result.reason)
        padding = {
            f"padding/{kind}/{name}": share
            for kind in LabelKind
            for name, share in padded_shares(plans[kind].batch(index)).items()
        }
        figures = step_record(result, weights)
        record({"step": step + 1, **figures, "train/learning_rate_factor": factor, **padding})


def step_record(result: JointStep, weights: LossWeights) -> dict[str, float]:
    """A joint step as flat figures: losses, and for every stage cosines, products and lengths of gradients."""
    found = {"train/loss": result.loss, "train/gradient_norm": result.gradient_norm}
    found["train/skipped"] = result.reason is not None
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


@dataclasses.dataclass(kw_only=True)
class _ArmSteps:
    """An arm's steps, counted."""

    budget: ArmBudget
    step: int = 0
    skipped: int = 0
    skipped_in_row: int = 0

    def add(self, reason: SkipReason | None, *, detail: str = "") -> None:
        """Counts a step.

        Raises:
            Failure: DIVERGED.
        """
        self.step += 1
        count_skip(self, reason)
        if reason is not None:
            most = min(MAX_IN_ROW, self.budget.num_steps)
            failure = divergence(self, reason, detail=detail, flag=self.budget.flag, most_in_row=most)
            if failure is not None:
                raise failure


def _begin(network: torch.nn.Module, budget: ArmBudget) -> tuple[Optimizer, torch.dtype, _ArmSteps]:
    network.train()
    device = next(network.parameters()).device
    return make_optimizer(network, budget.optimizer), compute_dtype(device), _ArmSteps(budget=budget)
