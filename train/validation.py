"""Held-out synthetic tasks, scored between steps: what chooses the checkpoint."""

import collections
from collections.abc import Sequence

import numpy as np
import torch

from eval.records import network_inputs
from model.network import Network
from priors.task import Episode, TaskBatch, collate
from train.step import compute_dtype, query_losses


def same_shape_batches(episodes: Sequence[Episode]) -> list[TaskBatch]:
    """Collates episodes of equal rows, columns and context together, so that nothing is padded."""
    groups: dict[tuple[int, int, int], list[Episode]] = collections.defaultdict(list)
    for episode in episodes:
        groups[(*episode.task.x.shape, episode.num_context)].append(episode)
    return [collate(group) for group in groups.values()]


@torch.no_grad()
def validation_figures(network: Network, batches: Sequence[TaskBatch]) -> dict[str, float]:
    """Mean NLL in nats over tasks ("nll"; regression: on the scaled axis), and the same per family ("nll/...")."""
    network.eval()
    device = next(network.parameters()).device
    dtype = compute_dtype(device)
    losses: dict[str, list[float]] = collections.defaultdict(list)
    for batch in batches:
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            prediction = network(network_inputs(batch, device))
        per_task = query_losses(prediction, torch.from_numpy(batch.y_query).to(device)).mean(-1).tolist()
        for family, loss in zip(batch.families, per_task, strict=True):
            losses[family].append(loss)
    figures = {f"nll/{family}": float(np.mean(values)) for family, values in sorted(losses.items())}
    return {"nll": float(np.mean([loss for values in losses.values() for loss in values])), **figures}
