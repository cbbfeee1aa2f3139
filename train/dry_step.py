"""A training step without numbers: its FLOPs, what it keeps for the backward pass, and how often it stops the device.

It runs the real network on torch's meta device, where tensors have shapes and no memory. Library code looks at values
of tensors on the CPU alone, so what runs here is what runs on a GPU, but for the attention kernels: a fused kernel,
which `attend` asks for there, multiplies the same matrices and does not keep the attention weights, so those of
`attend` are left out of what is kept. Folded attention and the retrieval head keep theirs there too.
"""

import dataclasses
import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from model.attention import attend
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig, NetworkInputs

_DEVICE = torch.device("meta")
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
_SIZED_BY_VALUES = frozenset({"nonzero", "masked_select", "unique", "_unique2", "unique_dim", "bincount"})
_UPLOADS = (torch.tensor, torch.as_tensor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableShape:
    """Sizes of the tables of a batch: tasks B, context rows N, query rows M, features C."""

    tasks: int
    context: int
    queries: int
    features: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryStep:
    """What a training step takes.

    Args:
        flops: multiplications and additions of the forward and the backward pass, two for each pair.
        saved_bytes: what the forward pass keeps for the backward pass, in fp32, without the attention weights that a
            fused kernel does not keep: an upper bound for bf16, in which most of it takes half.
    """

    flops: int
    saved_bytes: int


def dry_step(config: NetworkConfig, shape: TableShape) -> DryStep:
    """Counts forward and backward pass of a batch of unpadded tables."""
    network, saved, dropped = _network(config), {}, set()
    own = {_storage(parameter) for parameter in network.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.grad_fn is not None and tensor.grad_fn.name().startswith("SoftmaxBackward") and _in_attend():
            dropped.add(_storage(tensor))
        saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, HostTalk():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = network(_inputs(config, shape)).losses(_empty(shape.tasks, shape.queries)).mean()
        loss.backward()
    network.zero_grad()
    kept = sum(size for storage, size in saved.items() if storage not in own and storage not in dropped)
    return DryStep(flops=counter.get_total_flops(), saved_bytes=kept)


def dry_network(config: NetworkConfig) -> Network:
    """A network of shapes alone."""
    with _DEVICE:
        return Network(config)


_network = functools.lru_cache(maxsize=8)(dry_network)


def _in_attend() -> bool:
    """Whether it is `attend` that keeps something."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not attend.__code__:
        frame = frame.f_back
    return frame is not None


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_DEVICE)


def _inputs(config: NetworkConfig, shape: TableShape) -> NetworkInputs:
    tasks, features = shape.tasks, shape.features
    return NetworkInputs(
        x_context=_empty(tasks, shape.context, features),
        y_context=_empty(tasks, shape.context),
        x_query=_empty(tasks, shape.queries, features),
        column_kinds=_empty(tasks, features, dtype=torch.int8),
        num_classes=min(10, config.icl.max_classes) if config.kind is LabelKind.CLASSIFICATION else 0,
    )


class HostTalk:
    """A context manager that answers for tensors without numbers, and notes each time that a GPU would be waited for.

    Reading a value, tensors whose size depends on values, and copies to or from memory that is not pinned all stop the
    host until everything is done that was asked of the device before. A value that is read is `answer`.

    Args:
        answer: what every value is.
    """

    def __init__(self, answer: float = 1.0) -> None:
        self.waits: list[str] = []
        self._modes = (_Calls(self.waits), _Kernels(self.waits, answer))

    def __enter__(self) -> "HostTalk":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Kernels(TorchDispatchMode):
    """Sees what reaches the device."""

    def __init__(self, waits: list[str], answer: float) -> None:
        super().__init__()
        self._waits, self._answer = waits, answer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args and isinstance(args[0], Tensor) else None
        on_device = first is not None and first.device.type == "meta"
        if on_device and func in _READS:
            self._waits.append(f"{_caller()} reads a value")
            return type(self._answer)(self._answer) if first.is_floating_point() else bool(self._answer)
        if on_device and func.overloadpacket.__name__ in _SIZED_BY_VALUES:
            self._waits.append(f"{_caller()} {func.overloadpacket.__name__}")
        if func is torch.ops.aten._to_copy.default and first is not None:
            target = torch.device(kwargs.get("device") or first.device).type
            if target != first.device.type and not kwargs.get("non_blocking"):
                self._waits.append(f"{_caller()} copies {first.device.type} → {target}")
            if on_device and target == "cpu":
                return torch.full(first.shape, self._answer, dtype=kwargs.get("dtype") or first.dtype)
        return func(*args, **kwargs)


class _Calls(TorchFunctionMode):
    """Sees constants made on the host for the device."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        uploads = func in _UPLOADS and device is not None and torch.device(device).type == "meta"
        if uploads and not isinstance(args[0], Tensor):
            self._waits.append(f"{_caller()} uploads a constant")
        return func(*args, **kwargs)


def _caller() -> str:
    """File and line of ours from which the call came."""
    frames = [frame for frame in traceback.extract_stack() if "/torch/" not in frame.filename]
    place = next(frame for frame in reversed(frames) if not frame.filename.endswith("dry_step.py"))
    return f"{place.filename.rpartition('/')[2]}:{place.lineno}"
