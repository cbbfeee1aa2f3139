"""Taint: beside every tensor, for every element, the set of sources that its value may depend on.

A set is an int64 whose bits are sources. `TaintTracker` watches the operations of a forward pass as they run and
applies a rule to each; sets of views and of tensors written in place are right because they lie beside the storage, not
beside the tensor. An element with the empty set is *known*: whatever the sources hold, it has the value that it has in
this run (a mask, a shape). Only known elements may cut a dependence, and only in three ways: a key whose bias is a
known minus infinity has weight 0, a known 0 in a matrix product takes its partner out, and a known condition selects.
Weights are a source too, so nothing is cut by a weight that happens to be 0, nor by a Python number.

Coarse, so that it is sound: an operation without a rule mixes everything that it takes into everything that it gives,
and is named in `mixed`. A tainted value that leaves torch (a branch, a number, an array, a tensor made of numbers, an
error) taints everything after it (`control`); the exceptions are the network's own checks, which raise or change
nothing, counted in `guards`. What was made elsewhere (before, by numpy, on another thread) is `FOREIGN`, which stands
for any source whatever, and memory that numpy shares is foreign for good: what is written there has left torch.

Not followed, so beyond what sets show: other shapes than those of this run; another mode than that of this run (train
mode takes other operations); Python numbers and containers that were kept from an earlier run; what another thread
writes into a tensor of this one; a network that switches the watching off, or that catches a refusal (of a check, or of
an operation that fails for some values alone). Nor infinities and NaNs in between: a weight of 0 cuts finite values
alone.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from eval.taint_escapes import FOREIGN, Escapes, asking_check, tensors_in, trusted_checks
from eval.taint_rules import FACTORIES, RULES, Call, pointwise, union

WEIGHTS = 1
"""The source of parameters and buffers."""


_SECRET_WRITERS = {"aten.native_batch_norm": ("running_mean", "running_var")}  # their schema does not say so


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
        self.literals: int | None = None
        self.hidden: str | None = None
        self._checks = trusted_checks()
        self._shadows: dict[int, _Shadow] = {}
        self._escapes = Escapes(self)

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
        tensors = tensors_in((args, kwargs))
        writes = func._schema.is_mutable or name in _SECRET_WRITERS
        call = Call(name=name, func=func, args=args, kwargs=kwargs, of=self.of, writes=writes)
        with self._naming(name):
            for tensor in tensors:
                if name == "aten.lift_fresh" and not self._seen(tensor):
                    self._register(tensor, self._origin(tensor))
                self._shadow(tensor)
            wanted = self._wanted(call, tensors)
        try:
            out = func(*args, **kwargs)
        except Exception:
            self._leave(f"the error of {name}", tensors)  # the network may catch it
            raise
        with self._naming(name):
            outputs = list(out) if isinstance(out, list | tuple) else [out]
            for item in outputs:
                if isinstance(item, Tensor) and self._seen(item):
                    self._shadow(item)
            has_fresh = any(isinstance(item, Tensor) and not self._seen(item) for item in outputs)
            is_value = any(not isinstance(item, Tensor | None) for item in outputs)
            is_value = is_value or not (func._schema.returns or call.writes)  # it can only raise
            mixes = wanted is None and has_fresh
            self._leave(name, tensors if is_value else _shape_givers(call, tensors, mixes=mixes))
            if call.writes:
                self._store_written(call, wanted, tensors)
            if has_fresh:
                self._store_fresh(call, wanted, outputs=outputs, tensors=tensors)
        return out

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Whatever goes wrong beside an operation hides the data flow, and is kept should the network catch it."""
        try:
            yield
        except Exception as problem:
            self.hidden = self.hidden or f"{name}: {problem}"
            raise Untraceable(self.hidden) from problem

    def _origin(self, tensor: Tensor) -> int:
        """The sources of a tensor that Python hands to torch: Python numbers are known, memory of others is not."""
        if not tensor.untyped_storage().resizable():
            return FOREIGN | self.control
        return (self.literals or 0) | self.control

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
        if call.name == "aten.set_" or asking_check(self._checks) is not None:
            raise Untraceable("it replaces a storage" if call.name == "aten.set_" else "a check writes into a tensor")
        targets = _written(call)
        if wanted is None:
            self.mixed[call.name] += 1
        found = [] if wanted is None else wanted[: len(targets)]
        if len(found) < len(targets):
            rest = WEIGHTS if wanted == [] else self._union(tensors)
            found = [*found, *[torch.tensor(rest)] * (len(targets) - len(found))]
        for target, taint in zip(targets, found, strict=True):
            self._write(target, taint)
            if not target.untyped_storage().resizable():
                self.exposed(f"{call.name} into shared memory", target)

    def _leave(self, name: str, tensors: list[Tensor]) -> None:
        """A value leaves torch: harmless in a check, else everything after depends on it."""
        if not tensors:
            return
        guard = self.checking or asking_check(self._checks)
        taint = self._union(tensors)
        if guard is not None:
            self.guards[guard] += 1
        elif taint & ~self.control:
            self.control |= taint
            self.branches.append(name)

    def escaped(self, name: str, tensor: Tensor) -> None:
        """A tensor's values are read from outside torch."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), self._naming(name):
            self._leave(name, [tensor])

    def exposed(self, name: str, tensor: Tensor) -> None:
        """A tensor's memory is given away: who holds it may read it, and write into it unseen."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), self._naming(name):
            self._leave(name, [tensor])
            self._write(tensor, torch.tensor(self._union([tensor]) | FOREIGN))

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
        if isinstance(shadow.taint, Tensor):
            missing = shadow.storage.nbytes() // shadow.element_size - len(shadow.taint)
            if missing > 0:  # it grew: memory as it was left
                shadow.taint = torch.cat([shadow.taint, torch.full((missing,), FOREIGN)])
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


def _shape_givers(call: Call, tensors: list[Tensor], *, mixes: bool) -> list[Tensor]:
    """The arguments whose values give the output its shape: of indexing and selecting, the mask alone."""
    if call.name in ("aten.index", "aten.masked_select"):
        chosen = call.args[1] if call.name == "aten.index" else [call.args[1]]
        return [index for index in chosen if index is not None and index.dtype in (torch.bool, torch.uint8)]
    is_free = torch.Tag.dynamic_output_shape in call.func.tags or (mixes and not _has_shape_without_values(call))
    return tensors if is_free else []


def _has_shape_without_values(call: Call) -> bool:
    """Whether an operation gives its output a shape where its arguments hold no values."""
    args, kwargs = tree_map(
        lambda item: item.to("meta") if isinstance(item, Tensor) else item, (call.args, call.kwargs)
    )
    try:
        call.func(*args, **kwargs)
    except Exception:  # it looks at values, or cannot say
        return False
    return True


def _written(call: Call) -> list[Tensor]:
    """The arguments that an operation writes."""
    out = []
    for position, argument in enumerate(call.func._schema.arguments):
        is_secret = call.name in _SECRET_WRITERS and argument.name in _SECRET_WRITERS[call.name]
        if is_secret or (argument.alias_info is not None and argument.alias_info.is_write):
            value = call.args[position] if position < len(call.args) else call.kwargs.get(argument.name)
            out.extend(tensors_in(value))
    return out
