"""What joint training does to two tasks: held-out losses of every arm, paired, and cosines of gradients per stage.

The arms of one task, all with the same batches, steps, optimizer and schedule (seeds 1.7, 6.12):
- single: its single-task network, trained on;
- joint: on the shared backbone, with the other task;
- alone: from where `joint` starts, without the other task. What separates it from `joint` is the other task alone.
For the task whose single-task network gives the backbone, `alone` is `single`.
"""

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from model.label_injection import LabelKind
from model.network import Network
from model.shared_backbone import SharedBackbone, share_backbone
from priors.batches import BatchPlan
from priors.task import TaskBatch
from train.joint import ALL, LossWeights
from train.joint_loop import ArmBudget, train_alone, train_jointly
from train.step import batch_losses

NUM_BLOCKS = 20
"""Runs of consecutive steps that a bootstrap draws from: neighbouring steps are alike."""
_RESAMPLES = 2000
_TAIL = 0.025


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arms:
    """Networks after training, and what was recorded.

    Args:
        start: both on the shared backbone, before the first step.
        joint: both on the shared backbone, after the last.
        alone: from `start`, each on its own task.
        single: the single-task networks, trained on.
        records: of the joint steps.
        seconds: wall-clock time by arm.
    """

    start: SharedBackbone
    joint: SharedBackbone
    alone: dict[LabelKind, Network]
    single: dict[LabelKind, Network]
    records: list[dict[str, Any]]
    seconds: dict[str, float]


def train_arms(
    singles: Mapping[LabelKind, Network],
    plans: Mapping[LabelKind, BatchPlan],
    *,
    budget: ArmBudget,
    weights: LossWeights,
    backbone: LabelKind,
    record: Callable[[dict[str, Any]], None],
) -> Arms:
    """Trains every arm from single-task networks, which stay as they are.

    Args:
        singles: one of each kind, with equal sizes.
        plans: the training batches of each task.
        budget: of every arm.
        weights: of the two losses.
        backbone: whose backbone the joint network starts from.
        record: takes every step's record, with its "arm".

    Raises:
        BadInput: CONFIG_MISMATCH for networks that cannot share a backbone.
        Failure: DIVERGED.
    """
    start = share_backbone(singles[LabelKind.CLASSIFICATION], singles[LabelKind.REGRESSION], backbone=backbone)
    joint, records, seconds = copy.deepcopy(start), [], {}

    def timed(arm: str, train: Callable[[Callable[[dict[str, Any]], None]], None]) -> None:
        begun = time.perf_counter()
        train(lambda figures: record({"arm": arm, **figures}))
        seconds[arm] = time.perf_counter() - begun

    def note(figures: dict[str, Any], out: Callable[[dict[str, Any]], None]) -> None:
        records.append(figures)
        out(figures)

    timed(
        "joint",
        lambda out: train_jointly(joint, plans, budget=budget, weights=weights, record=lambda f: note(f, out)),
    )
    alone, single = {}, {}
    for kind in LabelKind:
        alone[kind] = copy.deepcopy(start.network(kind))
        timed(f"alone/{kind}", lambda out, k=kind: train_alone(alone[k], plans[k], budget=budget, record=out))
        single[kind] = alone[kind]
        if kind is not backbone:
            single[kind] = copy.deepcopy(singles[kind])
            timed(f"single/{kind}", lambda out, k=kind: train_alone(single[k], plans[k], budget=budget, record=out))
    return Arms(start=start, joint=joint, alone=alone, single=single, records=records, seconds=seconds)


def num_arm_steps(num_steps: int) -> int:
    """Steps of all arms together: joint, each task alone, and one single-task network trained on."""
    return 4 * num_steps


@torch.no_grad()
def task_losses(network: Network, batches: Sequence[TaskBatch]) -> np.ndarray:
    """Mean loss over the queries of each task of `batches` [n], in fp32: what training minimises, before its weight."""
    network.eval()
    return torch.cat([batch_losses(network, batch).mean(-1) for batch in batches]).double().cpu().numpy()


def loss_table(
    arms: Arms, singles: Mapping[LabelKind, Network], *, held_out: Mapping[LabelKind, Sequence[TaskBatch]]
) -> dict[str, Any]:
    """Held-out losses by task: every arm's mean, and paired differences with intervals over tasks."""
    table = {}
    for kind in LabelKind:
        networks = {
            "single_before": singles[kind],
            "start": arms.start.network(kind),
            "joint": arms.joint.network(kind),
            "alone": arms.alone[kind],
            "single": arms.single[kind],
        }
        losses = {name: task_losses(network, held_out[kind]) for name, network in networks.items()}
        table[kind.value] = {
            "mean": {name: float(values.mean()) for name, values in losses.items()},
            "joint_minus_single": interval(losses["joint"] - losses["single"]),
            "joint_minus_alone": interval(losses["joint"] - losses["alone"]),
            "num_tasks": len(losses["joint"]),
        }
    return table


def stage_table(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cosines by stage, over all joint steps but skipped ones.

    Of each stage: `cosine`, the mean over steps of the cosine between the two tasks' batch gradients, and
    `half_cosine`, the same between two halves of one task's batch, both with block-bootstrap intervals;
    `expected_cosine`, Σ g_c·g_r / √(Σ a_c·b_c · Σ a_r·b_r) with the halves a, b: an estimate of the cosine between
    expected gradients (it can leave [-1, 1] by chance; the halves share rows and features, so what their shape alone
    does to a gradient counts as length and makes it too small), None where a sum of products is not positive;
    `negative_share`, the share of steps with a cosine below 0; and `gradient_norm`, the mean length of each task's
    gradient.
    """
    stages = [name.removeprefix("cosine/") for name in records[0] if name.startswith("cosine/")]
    table = {}
    for stage in stages:
        cosines = _column(records, f"cosine/{stage}")
        halves = {kind: _column(records, f"half_cosine/{kind}/{stage}") for kind in LabelKind}
        table[stage] = {
            "cosine": interval(cosines, num_blocks=NUM_BLOCKS),
            "half_cosine": {kind.value: interval(v, num_blocks=NUM_BLOCKS) for kind, v in halves.items()},
            "expected_cosine": _expected_cosine(records, stage),
            "negative_share": float((cosines < 0).mean()),
            "gradient_norm": {
                kind.value: float(_column(records, f"gradient_norm/{kind}/{stage}").mean()) for kind in LabelKind
            },
        }
    return table


def task_table(
    records: Sequence[Mapping[str, Any]], networks: Mapping[LabelKind, Network], *, weights: LossWeights
) -> dict[str, Any]:
    """What is recorded of each task (seed 6.11): loss scale, task kind, output padding, the loss's weight.

    Skipped steps count nowhere: what they computed is not finite.
    """
    table = {}
    for kind in LabelKind:
        losses = _column(records, f"train/{kind}/loss")
        part = max(1, len(losses) // 10)
        table[kind.value] = {
            "task_kind": kind.value,
            "loss": _LOSSES[kind],
            "loss_weight": weights.of(kind),
            "loss_scale": {
                "first_tenth": float(losses[:part].mean()),
                "last_tenth": float(losses[-part:].mean()),
                "deviation": float(losses.std()),
                "gradient_norm": float(_column(records, f"gradient_norm/{kind}/{ALL}").mean()),
            },
            "output_padding": {
                "outputs": _OUTPUTS[kind],
                "padded_outputs": float(_column(records, f"padding/{kind}/outputs").mean()),
                "padded_queries": float(_column(records, f"padding/{kind}/queries").mean()),
            },
            "head": str(getattr(networks[kind].config, kind.value).kind),
        }
    return table


_LOSSES = {
    LabelKind.CLASSIFICATION: "mean over queries of -log p(class) in nats; 0 where the context lacks the class",
    LabelKind.REGRESSION: "mean over queries of the head's loss, targets scaled by the context's mean and deviation",
}
_OUTPUTS = {
    LabelKind.CLASSIFICATION: "one column for each class of the batch's widest task; absent classes have p = 0",
    LabelKind.REGRESSION: "the head's outputs, the same number for every task: nothing is padded",
}


def interval(values: np.ndarray, *, num_blocks: int | None = None, seed: int = 0) -> dict[str, float]:
    """Mean of values [n] and its 95 % percentile bootstrap interval (Efron 1979).

    Percentile intervals of few values are short: of 20 blocks of white noise they cover the mean in about 89 %.

    Args:
        values: independent ones, or a series.
        num_blocks: of a series: how many runs of consecutive values are drawn as wholes (Künsch 1989).
        seed: of the bootstrap.
    """
    blocks = np.array_split(values, min(num_blocks or len(values), len(values)))
    sums, counts = np.array([block.sum() for block in blocks]), np.array([len(block) for block in blocks])
    picks = np.random.default_rng(seed).integers(0, len(blocks), (_RESAMPLES, len(blocks)))
    low, high = np.quantile(sums[picks].sum(1) / counts[picks].sum(1), [_TAIL, 1 - _TAIL])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def _expected_cosine(records: Sequence[Mapping[str, Any]], stage: str, *, seed: int = 0) -> dict[str, float | None]:
    names = [f"dot/{stage}", *(f"half_dot/{kind}/{stage}" for kind in LabelKind)]
    columns = np.stack([_column(records, name) for name in names])
    blocks = np.stack([block.sum(1) for block in np.array_split(columns, min(NUM_BLOCKS, columns.shape[1]), axis=1)])
    picks = np.random.default_rng(seed).integers(0, len(blocks), (_RESAMPLES, len(blocks)))
    found: dict[str, float | None] = {"mean": None, "low": None, "high": None}
    whole, drawn = blocks.sum(0), blocks[picks].sum(1)
    if (whole[1:] > 0).all():
        found["mean"] = float(whole[0] / math.sqrt(whole[1] * whole[2]))
    if (drawn[:, 1:] > 0).all():
        ends = np.quantile(drawn[:, 0] / np.sqrt(drawn[:, 1] * drawn[:, 2]), [_TAIL, 1 - _TAIL])
        found["low"], found["high"] = float(ends[0]), float(ends[1])
    return found


def _column(records: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """A figure of every step that was not skipped."""
    return np.array([record[name] for record in records if not record["train/skipped"]], float)
