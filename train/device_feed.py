"""Batches on their way to the device: the next one is made and copied while the step before it runs.

On a GPU a thread makes the next batch, copies it through pinned memory on a stream of its own, and the step waits for
nothing but that copy. Two batches are on the device at a time. On a CPU a batch is where it is needed already.
"""

import concurrent.futures
import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from eval.records import network_inputs
from model.network import NetworkInputs
from priors.task import TaskBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceBatch:
    """What a step reads of a batch, where it computes.

    Args:
        inputs: what the network may see.
        y_query: [B, M] float32, for the loss alone.
    """

    inputs: NetworkInputs
    y_query: Tensor

    def part(self, start: int, stop: int) -> "DeviceBatch":
        """Tasks start … stop − 1, as views."""
        tensors = {name: tensor[start:stop] for name, tensor in _tensors(self.inputs).items()}
        return DeviceBatch(inputs=dataclasses.replace(self.inputs, **tensors), y_query=self.y_query[start:stop])


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagedBatch(TaskBatch):
    """A batch in host memory together with its copy on the device."""

    staged: DeviceBatch

    def part(self, start: int, stop: int) -> "StagedBatch":
        """Tasks start … stop − 1; arrays and tensors are views."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(TaskBatch)}
        cut = {name: value[start:stop] for name, value in fields.items() if name != "kind"}
        return StagedBatch(**{**fields, **cut}, staged=self.staged.part(start, stop))


def on_device(batch: TaskBatch, device: torch.device) -> DeviceBatch:
    """What a step on `device` reads: the copy that is there already, or a plain copy that the host waits for."""
    if isinstance(batch, StagedBatch):
        return batch.staged
    return DeviceBatch(inputs=network_inputs(batch, device), y_query=torch.from_numpy(batch.y_query).to(device))


def staged(batch: TaskBatch, copy: Callable[[Tensor], Tensor]) -> StagedBatch:
    """The batch with what `copy` makes of each of its tensors."""
    inputs = network_inputs(batch)
    moved = {name: copy(tensor) for name, tensor in _tensors(inputs).items()}
    on_it = DeviceBatch(inputs=dataclasses.replace(inputs, **moved), y_query=copy(torch.from_numpy(batch.y_query)))
    fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(TaskBatch)}
    return StagedBatch(**fields, staged=on_it)


class DeviceFeed:
    """Hands out the batches of `batch` on the device, in ascending order of step. A context manager.

    Args:
        batch: the batch of a step; called from another thread where the device is a GPU.
        device: of the network.
        num_steps: index behind the last step; no batch is made ahead beyond it.
    """

    def __init__(self, batch: Callable[[int], TaskBatch], *, device: torch.device, num_steps: int) -> None:
        self._batch, self._device, self._num_steps = batch, device, num_steps
        self._next: tuple[int, concurrent.futures.Future[tuple[StagedBatch, torch.cuda.Event]]] | None = None
        self._pool = self._stream = None
        if device.type == "cuda":
            self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="feed")
            self._stream = torch.cuda.Stream(device)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def expect(self, step: int) -> None:
        """Begins with the batch of a step, before it is asked for."""
        if self._pool is not None and step < self._num_steps and (self._next is None or self._next[0] != step):
            self._next = (step, self._pool.submit(self._stage, step))

    def batch(self, step: int) -> TaskBatch:
        """The batch of a step; that of the next one is begun.

        Raises:
            Failure: what the source of the batches raises.
        """
        if self._pool is None:
            return self._batch(step)
        self.expect(step)
        ready, copied = self._next[1].result()
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        for tensor in (*_tensors(ready.staged.inputs).values(), ready.staged.y_query):
            tensor.record_stream(current)  # its memory is not used anew before the step is done
        self.expect(step + 1)
        return ready

    def _stage(self, step: int) -> tuple[StagedBatch, torch.cuda.Event]:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            batch = self._batch(step)  # what draws on the device does so beside the step
            ready = staged(batch, lambda tensor: tensor.pin_memory().to(self._device, non_blocking=True))
            return ready, self._stream.record_event()


def _tensors(inputs: NetworkInputs) -> dict[str, Tensor]:
    named = {field.name: getattr(inputs, field.name) for field in dataclasses.fields(inputs)}
    return {name: value for name, value in named.items() if isinstance(value, Tensor)}
