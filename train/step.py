"""One training step: loss, backward, gradients averaged over workers, and an update that all workers take or skip."""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn

from eval.records import network_inputs
from model.classification_head import ClassLogProbabilities
from model.network import Network, NetworkInputs
from model.regression_heads import RegressionPrediction
from priors.task import TaskBatch
from train.optimization import MuonAdamW


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step did.

    Args:
        loss: mean over the global batch's queries (see `query_losses`).
        gradient_norm: global norm before clipping.
        skipped: whether the update was left out because the loss or a gradient was not finite.
    """

    loss: float
    gradient_norm: float
    skipped: bool


def query_losses(
    prediction: ClassLogProbabilities | RegressionPrediction, y_query: Tensor, *, smoothing: float = 0.0
) -> Tensor:
    """What training minimises for y_query [B, M], [B, M]. Queries whose class the context lacks count as zero.

    Classes: cross-entropy in nats, which without smoothing is the NLL. Regression: what the head's prediction
    minimises, on the axis of the targets scaled by their context, so tasks of any unit weigh the same.
    """
    if isinstance(prediction, ClassLogProbabilities):
        return prediction.losses(y_query, smoothing=smoothing)
    return prediction.losses(y_query)


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it fast, else float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    capability = torch.backends.cpu.get_cpu_capability()
    fast = capability == "AVX512" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def training_step(
    network: Network,
    optimizer: MuonAdamW,
    *,
    batch: TaskBatch,
    factor: float,
    dtype: torch.dtype,
    thin: Callable[[NetworkInputs], NetworkInputs] = lambda inputs: inputs,
    smoothing: float = 0.0,
) -> StepResult:
    """Trains on this worker's share of a batch; with several workers, gradients and losses are averaged first.

    Args:
        network: is changed.
        optimizer: of its parameters.
        batch: the share.
        factor: of the peak learning rates.
        dtype: of the forward pass.
        thin: what is left out of the context.
        smoothing: of class labels.
    """
    device = next(network.parameters()).device
    inputs = thin(network_inputs(batch, device))
    with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
        prediction = network(inputs)
    loss = query_losses(prediction, torch.from_numpy(batch.y_query).to(device), smoothing=smoothing).mean()
    for parameter in network.parameters():
        parameter.grad = None
    loss.backward()
    mean_loss = average_gradients(network, loss.detach())
    norm = float(nn.utils.get_total_norm([parameter.grad for parameter in network.parameters()]))
    skipped = not (math.isfinite(norm) and math.isfinite(mean_loss))
    if not skipped:
        if norm > optimizer.config.clip_norm:
            torch._foreach_mul_([p.grad for p in network.parameters()], optimizer.config.clip_norm / norm)
        optimizer.step(factor)
    return StepResult(loss=mean_loss, gradient_norm=norm, skipped=skipped)


def average_gradients(network: nn.Module, loss: Tensor) -> float:
    """Averages gradients and loss over the workers by one all-reduce of one flat buffer; returns the loss."""
    parameters = list(network.parameters())
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return float(loss)
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters] + [loss.float().view(1)])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    offset = 0
    for parameter in parameters:
        parameter.grad.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
        offset += parameter.numel()
    return float(flat[-1])
