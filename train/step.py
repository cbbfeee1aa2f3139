"""One training step: loss, backward, gradients averaged over workers, and an update that all workers take or skip.

Whatever goes wrong in one worker's share travels with its gradients, so no worker leaves the others waiting (T7).
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, distributed, nn

from model.classification_head import ClassLogProbabilities
from model.network import Network, NetworkInputs
from model.precision import mixed_precision
from model.regression_heads import RegressionPrediction
from priors.task import TaskBatch, TaskKind
from tools.failure import BadInput
from train.device_feed import on_device
from train.optimizers import Optimizer
from train.skips import SkipReason, not_finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What stays the same from step to step.

    Args:
        smoothing: of class labels.
        accumulation: parts into which each worker's share is cut, one forward and backward pass after the other.
    """

    smoothing: float = 0.0
    accumulation: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step did; equal on every worker but for `detail`.

    Args:
        loss: mean over the global batch's queries (see `query_losses`).
        gradient_norm: global norm before clipping.
        tasks: of the global batch.
        reason: why the update was left out; None where it was made.
        detail: what this worker found wrong in its data, in words.
        stop: whether any worker wishes to stop.
    """

    loss: float
    gradient_norm: float
    tasks: int
    reason: SkipReason | None = None
    detail: str = ""
    stop: bool = False

    @property
    def skipped(self) -> bool:
        """Whether the update was left out."""
        return self.reason is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What a worker tells the others beside its gradients.

    Args:
        loss: mean over the share; a scalar tensor.
        tasks: how many it holds.
        is_faulty: whether it could not be trained on.
        stop: whether this worker wishes to stop.
    """

    loss: Tensor
    tasks: int
    is_faulty: bool = False
    stop: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """What all workers know after the exchange.

    Args:
        loss: mean over all tasks.
        tasks: how many all shares hold.
        gradient_norm: global norm of the averaged gradients.
        is_faulty: whether any share was.
        stop: whether any worker wishes to stop.
    """

    loss: float
    tasks: int
    gradient_norm: float
    is_faulty: bool
    stop: bool


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


def batch_losses(network: Network, batch: TaskBatch, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """`query_losses` of a network on a batch [B, M], on the device of its weights, with a forward pass in `dtype`."""
    device = next(network.parameters()).device
    there = on_device(batch, device)
    with mixed_precision(device, dtype):
        prediction = network(there.inputs)
    return query_losses(prediction, there.y_query)


def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it fast, else float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    capability = torch.backends.cpu.get_cpu_capability()
    fast = capability == "AVX512" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def training_step(
    network: Network,
    optimizer: Optimizer,
    *,
    batch: TaskBatch,
    factor: float,
    dtype: torch.dtype,
    options: StepOptions = StepOptions(),
    thin: Callable[[NetworkInputs, int], NetworkInputs] = lambda inputs, first: inputs,
    should_stop: Callable[[], bool] = lambda: False,
) -> StepResult:
    """Trains on this worker's share of a batch; with several workers, gradients and losses are averaged first.

    The mean is over tasks, so shares may differ in size.

    Args:
        network: is changed.
        optimizer: of its parameters.
        batch: the share; labels that are not finite, and what the network refuses, skip the step on all workers.
        factor: of the peak learning rates.
        dtype: of the forward pass.
        options: smoothing, accumulation.
        thin: what is left out of the context of a part of the share, given the place of the part's first task in it.
        should_stop: asked last before workers exchange their gradients.
    """
    for parameter in network.parameters():
        parameter.grad = None
    loss, detail = torch.full((), math.nan), _label_fault(batch)
    if not detail:
        try:
            loss = _backward(network, batch, dtype=dtype, options=options, thin=thin)
        except BadInput as refusal:
            detail = refusal.message
    share = Share(loss=loss, tasks=len(batch.families), is_faulty=bool(detail), stop=should_stop())
    agreement = average_gradients(network, share)
    norm, reason = agreement.gradient_norm, _reason(agreement)
    if reason is None:
        clipped_update(network, optimizer, norm=norm, factor=factor)
    return StepResult(
        loss=agreement.loss,
        gradient_norm=norm,
        tasks=agreement.tasks,
        reason=reason,
        detail=detail,
        stop=agreement.stop,
    )


def clipped_update(network: nn.Module, optimizer: Optimizer, *, norm: float, factor: float) -> None:
    """One update from the gradients in place, of global norm `norm`, scaled down to the optimizer's `clip_norm`."""
    if norm > optimizer.config.clip_norm:
        torch._foreach_mul_([p.grad for p in network.parameters()], optimizer.config.clip_norm / norm)
    optimizer.step(factor)


def average_gradients(network: nn.Module, share: Share) -> Agreement:
    """Averages gradients and losses over all workers' tasks by one all-reduce of one flat buffer.

    A faulty share adds nothing but its fault. With several workers, gradients then are views of the buffer. The device
    is waited for once, when the figures are read together.
    """
    parameters = list(network.parameters())
    for parameter in parameters:
        if parameter.grad is None or share.is_faulty:
            parameter.grad = torch.zeros_like(parameter)
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        loss, norm = _read(share.loss, _norm(parameters))
        return Agreement(loss=loss, tasks=share.tasks, gradient_norm=norm, is_faulty=share.is_faulty, stop=share.stop)
    facts = [torch.full((1,), float(fact), device=parameters[0].device) for fact in (1, share.is_faulty, share.stop)]
    loss = share.loss.to(facts[0].device).float().view(1)
    flat = torch.cat([*(parameter.grad.flatten() for parameter in parameters), loss, *facts]).mul_(share.tasks)
    distributed.all_reduce(flat)
    flat[:-3] /= flat[-3].clone()
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, part in zip(parameters, flat[:-4].split(sizes), strict=True):
        parameter.grad = part.view_as(parameter)
    mean, tasks, faults, stops, norm = _read(*flat[-4:].unbind(), _norm(parameters))
    return Agreement(loss=mean, tasks=int(tasks), gradient_norm=norm, is_faulty=faults > 0, stop=stops > 0)


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    return nn.utils.get_total_norm([parameter.grad for parameter in parameters])


def _read(*scalars: Tensor) -> list[float]:
    """Values of tensors of one device; a scalar on the CPU is that of a share that never reached the device."""
    device = scalars[-1].device
    return torch.stack([scalar.to(device).float() for scalar in scalars]).tolist()


def _backward(
    network: Network,
    batch: TaskBatch,
    *,
    dtype: torch.dtype,
    options: StepOptions,
    thin: Callable[[NetworkInputs, int], NetworkInputs],
) -> Tensor:
    """Leaves the gradient of the share's mean loss in the parameters and returns that loss."""
    device, tasks = next(network.parameters()).device, len(batch.families)
    parts = min(options.accumulation, tasks)
    total = torch.zeros((), device=device)
    for number in range(parts):
        first, stop = number * tasks // parts, (number + 1) * tasks // parts
        part = on_device(batch.part(first, stop), device)
        inputs = thin(part.inputs, first)
        with mixed_precision(device, dtype):
            prediction = network(inputs)
        losses = query_losses(prediction, part.y_query, smoothing=options.smoothing)
        loss = losses.mean() * ((stop - first) / tasks)
        loss.backward()
        total += loss.detach()
    return total


def _label_fault(batch: TaskBatch) -> str:
    """What is wrong with the labels of a batch, or "". Cells of features may be anything: a network takes them all."""
    for name, y in (("context", batch.y_context), ("query", batch.y_query)):
        wrong = ~np.isfinite(y)
        if batch.kind is TaskKind.CLASSIFICATION:
            wrong |= (y < 0) | (y >= batch.num_classes[:, None])
        if wrong.any():
            table, row = np.argwhere(wrong)[0]
            return f"label {y[table, row]:g} of {name} row {row} of a task of family {batch.families[table]}"
    return ""


def _reason(agreement: Agreement) -> SkipReason | None:
    if agreement.is_faulty:
        return SkipReason.DATA
    return not_finite(loss=agreement.loss, gradient_norm=agreement.gradient_norm)
