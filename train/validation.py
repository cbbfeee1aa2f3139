"""Held-out synthetic tasks, scored between steps: what chooses the checkpoint."""

import collections
from collections.abc import Sequence

import numpy as np
import torch

from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from model.regression_heads import RegressionHeadKind
from priors.mixture import VERSION, PriorConfig
from priors.task import Episode, TaskBatch, collate
from tools.config import digest
from train.step import batch_losses, compute_dtype

VALIDATION_SEED = 1  # of the held-out tasks that choose the checkpoint; those that report have other seeds


def validation_digest(prior: PriorConfig, *, count: int) -> str:
    """sha256 (hex) that names the held-out tasks: figures of different ones do not compare."""
    return digest({"prior": prior, "version": VERSION, "count": count, "seed": VALIDATION_SEED})


def same_shape_batches(episodes: Sequence[Episode]) -> list[TaskBatch]:
    """Collates episodes of equal rows, columns and context together, so that nothing is padded."""
    groups: dict[tuple[int, int, int], list[Episode]] = collections.defaultdict(list)
    for episode in episodes:
        groups[(*episode.task.x.shape, episode.num_context)].append(episode)
    return [collate(group) for group in groups.values()]


@torch.no_grad()
def validation_figures(network: Network, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Mean of what training minimises, over tasks ("nll") and per family ("nll/...").

    NLL in nats (regression: on the scaled axis, of winsorised targets, see `model.target_scaling`); squared error for a
    scalar head and pinball loss for a quantile head, whose figures are named "loss" instead.
    """
    network.eval()
    dtype = compute_dtype(next(network.parameters()).device)
    losses: dict[str, list[float]] = collections.defaultdict(list)
    for batch in batches:
        per_task = batch_losses(network, batch, dtype=dtype).mean(-1)
        for family, loss in zip(batch.families, per_task.tolist(), strict=True):
            losses[family].append(loss)
    name = loss_name(network.config)
    figures = {f"{name}/{family}": float(np.mean(values)) for family, values in sorted(losses.items())}
    return {name: float(np.mean([loss for values in losses.values() for loss in values])), **figures}


def loss_name(config: NetworkConfig) -> str:
    """What the training loss of a network is called: "nll" where it is one, else "loss"."""
    is_nll = config.kind is LabelKind.CLASSIFICATION or config.regression.kind is RegressionHeadKind.BAR
    return "nll" if is_nll else "loss"
