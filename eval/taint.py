"""Taint: beside every tensor, for every element, the set of sources that its value may depend on.

A set is an int64 whose bits are sources. `TaintTracker` watches the operations of a forward pass as they run and
applies a rule to each; sets of views and of tensors written in place are right because they lie beside the storage, not
beside the tensor. An element with the empty set is *known*: whatever the sources hold, it has the value that it has in
this run (a mask, a shape). Only known elements may cut a dependence, and only in three ways: a key whose bias is a
known minus infinity has weight 0, a known 0 in a matrix product takes its partner out, and a known condition selects.
Weights are a source too, so nothing is cut by a weight that happens to be 0, nor by a Python number.

Sound and coarse: an operation without a rule mixes everything that it takes into everything that it gives, and is
named in `mixed`. A tainted value that leaves torch (a branch, a number, an array) taints everything after it
(`control`); the exceptions are checks that raise or change nothing, counted in `guards`. Infinities and NaNs in between
are beyond this calculus: a weight of 0 cuts finite values alone.
"""

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from eval.taint_rules import FACTORIES, RULES, Call, pointwise, union

WEIGHTS = 1
"""The source of parameters and buffers."""
FOREIGN = 2
"""The source of tensors that are neither inputs nor weights, such as what was kept from an earlier table."""

_ESCAPES = {
    Tensor.numpy,
    Tensor.tolist,
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.__reduce_ex__,
    Tensor.data_ptr,
    Tensor.storage,
    Tensor.untyped_storage,
}
_CHECKED = {F.one_hot: "one_hot"}  # they look at values, and raise or go on


class Untraceable(RuntimeError):
    """An operation that sees storages in another way than as elements of one size."""


@dataclasses.dataclass(kw_only=True)
class _Shadow:
    """Sets beside one storage. Args: storage, kept alive so that its address is not reused; element_size in bytes;
    taint [elements] or one set for all."""

    storage: Any
    element_size: int
    taint: Tensor | int


class TaintTracker(TorchDispatchMode):
    """Follows every operation inside the `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.control = 0
        self.guards: collections.Counter[str] = collections.Counter()
        self.mixed: collections.Counter[str] = collections.Counter()
        self.branches: list[str] = []
        self.num_operations = 0
        self.checking: str | None = None
        self._shadows: dict[int, _Shadow] = {}
        self._escapes = _Escapes(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and importing the compiler takes seconds."""
        return False

    def __enter__(self) -> Self:
        """Starts to follow."""
        super().__enter__()
        self._escapes.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        """Stops."""
        self._escapes.__exit__(*problem)
        super().__exit__(*problem)

    def mark(self, tensor: Tensor, taint: Tensor | int) -> None:
        """Sets the sources of a tensor: an int for all elements, or [broadcastable to its shape]."""
        self._register(tensor, 0 if isinstance(taint, Tensor) else taint)
        if isinstance(taint, Tensor):
            self._write(tensor, taint)

    def of(self, tensor: Tensor) -> Tensor:
        """The sets [same shape, int64] of a tensor; one that was never seen is foreign.

        A tensor carries the branches that were taken before it was made. Which of two tensors a branch chose shows in a
        clone that is made after it, inside the block.
        """
        shadow = self._shadow(tensor)
        if isinstance(shadow.taint, int):
            return torch.tensor(shadow.taint).expand(tensor.shape)
        return shadow.taint.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and its rule."""
        with torch._C.DisableTorchFunction():
            return self._follow(func, args, kwargs or {})

    def _follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.num_operations += 1
        name = str(func.overloadpacket)
        tensors = [item for item in tree_flatten((args, kwargs))[0] if isinstance(item, Tensor)]
        for tensor in tensors:
            if name == "aten.lift_fresh" and not self._seen(tensor):
                self._register(tensor, self.control)
            self._shadow(tensor)
        call = Call(name=name, func=func, args=args, kwargs=kwargs, of=self.of, writes=func._schema.is_mutable)
        wanted = self._wanted(call, tensors)
        out = func(*args, **kwargs)
        outputs = tree_flatten(out)[0]
        if any(not isinstance(item, Tensor | None) for item in outputs) or _shape_of_values(call):
            self._leave(name, tensors)
        if call.writes:
            self._store_written(call, wanted, tensors)
        if any(isinstance(item, Tensor) and not self._seen(item) for item in outputs):
            self._store_fresh(call, wanted, outputs=outputs, tensors=tensors)
        return out

    def _wanted(self, call: Call, tensors: list[Tensor]) -> list[Tensor] | None:
        """The sets of the outputs, or None where no rule gives them; taken before values are overwritten."""
        if not tensors or call.name in FACTORIES:
            return []
        if call.name in RULES:
            return RULES[call.name](call)
        if torch.Tag.pointwise in call.func.tags:
            return pointwise(call)
        return None

    def _store_fresh(
        self, call: Call, wanted: list[Tensor] | None, *, outputs: list[Any], tensors: list[Tensor]
    ) -> None:
        if wanted is None:
            self.mixed[call.name] += 1
            everything = self._union(tensors)
            wanted = [torch.tensor(everything)] * len(outputs)
        if not wanted:  # a factory: known, unless it draws or leaves memory as it is
            unknown = torch.Tag.nondeterministic_seeded in call.func.tags or "empty" in call.name
            wanted = [torch.tensor(WEIGHTS if unknown else 0)] * len(outputs)
        fresh = [isinstance(output, Tensor) and not self._seen(output) for output in outputs]
        for output, taint, is_fresh in zip(outputs, wanted, fresh, strict=False):
            if is_fresh:  # what a rule leaves out stays unseen, hence foreign
                self.mark(output, self.of(output) | taint if self._seen(output) else taint)

    def _store_written(self, call: Call, wanted: list[Tensor] | None, tensors: list[Tensor]) -> None:
        targets = _written(call)
        if wanted is None:
            self.mixed[call.name] += 1
            wanted = [torch.tensor(self._union(tensors))] * len(targets)
        for target, taint in zip(targets, wanted or [torch.tensor(WEIGHTS)] * len(targets), strict=False):
            self._write(target, taint)

    def _leave(self, name: str, tensors: list[Tensor]) -> None:
        """A value leaves torch: harmless in a check, else everything after depends on it."""
        if not tensors:
            return
        guard = self.checking or _guard()
        taint = self._union(tensors)
        if guard is not None:
            self.guards[guard] += 1
        elif taint & ~self.control:
            self.control |= taint
            self.branches.append(name)

    def escaped(self, name: str, tensor: Tensor) -> None:
        """A tensor's values are read from outside torch."""
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            self._leave(name, [tensor])

    def _union(self, tensors: list[Tensor]) -> int:
        total = 0
        for tensor in tensors:
            total |= union(self.of(tensor))
        return total

    def _seen(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._shadows

    def _shadow(self, tensor: Tensor) -> _Shadow:
        key = tensor.untyped_storage()._cdata
        if key not in self._shadows:
            self._register(tensor, FOREIGN)
        shadow = self._shadows[key]
        if shadow.element_size != tensor.element_size():
            raise Untraceable(f"a storage of {shadow.element_size}-byte elements is read as {tensor.dtype}")
        return shadow

    def _register(self, tensor: Tensor, taint: int) -> None:
        storage = tensor.untyped_storage()
        self._shadows[storage._cdata] = _Shadow(storage=storage, element_size=tensor.element_size(), taint=taint)

    def _write(self, tensor: Tensor, taint: Tensor) -> None:
        shadow = self._shadow(tensor)
        if isinstance(shadow.taint, int):
            if taint.dim() == 0 and tensor.numel() * shadow.element_size == shadow.storage.nbytes():
                shadow.taint = int(taint) | self.control
                return
            size = shadow.storage.nbytes() // shadow.element_size
            shadow.taint = torch.full((size,), shadow.taint, dtype=torch.int64)
        self.of(tensor).copy_(taint | self.control if self.control else taint)


class _Escapes(TorchFunctionMode):
    """Sees what the dispatcher does not: values that are read as Python lists or arrays, and functions that check."""

    def __init__(self, tracker: TaintTracker) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function."""
        if func in _ESCAPES:
            self.tracker.escaped(func.__name__, args[0])
        if func in _CHECKED:
            with self._checking(_CHECKED[func]):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def _checking(self, name: str) -> Iterator[None]:
        self.tracker.checking = name
        try:
            yield
        finally:
            self.tracker.checking = None


def _guard() -> str | None:
    """The check that asks for a value: if the innermost frame outside torch is a `check_…` of the model, which returns
    nothing, so that it can only raise.
    """
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in (__name__, "torch") and not module.startswith("torch."):
            name = frame.f_code.co_qualname.split(".")[0]
            checks = module.startswith("model.") and name.startswith("check_")
            returns = getattr(frame.f_globals.get(name), "__annotations__", {}).get("return", ...)
            return name if checks and returns is None else None
        frame = frame.f_back
    return None


def _shape_of_values(call: Call) -> bool:
    """Whether the output's shape depends on values: indexing is of this kind by a mask alone."""
    if call.name == "aten.index":
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in call.args[1])
    return torch.Tag.dynamic_output_shape in call.func.tags


def _written(call: Call) -> list[Tensor]:
    """The arguments that an operation writes."""
    out = []
    for position, argument in enumerate(call.func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = call.args[position] if position < len(call.args) else call.kwargs.get(argument.name)
            out.extend(item for item in tree_flatten(value)[0] if isinstance(item, Tensor))
    return out
