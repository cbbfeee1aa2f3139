"""What the dispatcher does not see: values that Python reads from a tensor, and checks that may read them.

`Escapes` watches the functions of torch; it tells a `Watcher` (see `eval.taint`) what leaves torch, and what enters.
"""

import contextlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from model import bucket_borders, input_checks, levels

FOREIGN = 2
"""The source of tensors that are neither inputs nor weights, such as what was kept from an earlier table: it may stand
for anything."""

_MODULES = (input_checks, levels, bucket_borders)
"""Where the checks are that are trusted to raise or do nothing."""

_READ = {Tensor.tolist, Tensor.__reduce_ex__, Tensor.__repr__, Tensor.__format__}
_NUMBERS = {Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.__bool__, Tensor.__complex__}
_EXPOSED = {
    Tensor.numpy,
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.data_ptr,
    Tensor.storage,
    Tensor.untyped_storage,
    Tensor.share_memory_,
}
_CALLED_BACK = {Tensor.apply_, Tensor.map_, Tensor.map2_}
_SPLIT = {torch.tensor_split, Tensor.tensor_split}
_CONSTRUCTORS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor, Tensor.new}
_INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
_LITERAL = _CONSTRUCTORS | _INDEXING
_NUMBER_LIKE = (bool, int, float, complex, str, np.generic, slice, types.EllipsisType, torch.Size, range)
_PLAIN = (*_NUMBER_LIKE, torch.dtype, torch.device, Tensor)


class Watcher(Protocol):
    """Who is told.

    Args:
        checking: the check that runs, if a function of torch is one.
        literals: what a tensor is made of that torch makes of Python values now: known (0) or not.
        num_operations: how many operations ran.
    """

    checking: str | None
    literals: int | None
    num_operations: int

    def escaped(self, name: str, tensor: Tensor) -> None:
        """Values are read."""

    def exposed(self, name: str, tensor: Tensor) -> None:
        """Memory is given away."""


class Escapes(TorchFunctionMode):
    """Sees values that are read as Python lists, numbers or arrays, and functions that check.

    Args:
        tracker: who is told.
    """

    def __init__(self, tracker: Watcher) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function."""
        kwargs = kwargs or {}
        if func in _NUMBERS:
            return self._number(func, args)
        self._tell(func, args, kwargs)
        literals = 0 if func in _LITERAL and _is_plain((args, kwargs)) else FOREIGN
        with self._during(literals, checking="one_hot" if _only_checks(func, args, kwargs) else None):
            return func(*args, **kwargs)

    def _tell(self, func: Any, args: Any, kwargs: Any) -> None:
        name = getattr(func, "__name__", str(func))
        if func in _READ:
            self.tracker.escaped(name, args[0])
        elif func in _EXPOSED:
            self.tracker.exposed(name, args[0])
        elif func in _CALLED_BACK:
            for tensor in reversed(tensors_in(args)):  # the first is written, by a function that saw the others
                self.tracker.exposed(name, tensor)
        elif func in _SPLIT:
            for tensor in tensors_in((args[1:], kwargs)):
                self.tracker.escaped(name, tensor)
        elif func in _CONSTRUCTORS:
            for tensor in tensors_in([item for item in (*args, *kwargs.values()) if not isinstance(item, Tensor)]):
                self.tracker.escaped(name, tensor)
        elif func in _INDEXING:
            for item in args[1] if isinstance(args[1], tuple) else args[1:2]:
                for tensor in tensors_in(item) if isinstance(item, list) else ():
                    self.tracker.escaped(name, tensor)

    def _number(self, func: Any, args: Any) -> Any:
        """The dispatcher sees a number read, unless a constructor reads it."""
        before = self.tracker.num_operations
        number = func(*args)
        if self.tracker.num_operations == before:
            self.tracker.escaped(func.__name__, args[0])
        return number

    @contextlib.contextmanager
    def _during(self, literals: int, *, checking: str | None) -> Iterator[None]:
        before = self.tracker.checking, self.tracker.literals
        self.tracker.checking, self.tracker.literals = checking, literals
        try:
            yield
        finally:
            self.tracker.checking, self.tracker.literals = before


def trusted_checks() -> dict[types.CodeType, str]:
    """The code of the checks of the model, which return nothing and write nothing, so that they can only raise."""
    out = {}
    for module in _MODULES:
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__
            if own and name.startswith("check_") and function.__annotations__.get("return", ...) is None:
                out[function.__code__] = name
    return out


def asking_check(checks: dict[types.CodeType, str]) -> str | None:
    """The check that asks for a value: the innermost frame outside torch and this calculus, if it is of `checks`."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in _OWN and module != "torch" and not module.startswith("torch."):
            return checks.get(frame.f_code)
        frame = frame.f_back
    return None


_OWN = (__name__, "eval.taint", "contextlib")


def _only_checks(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """one_hot looks at its classes, and raises or goes on; without their number it makes it of them."""
    classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    return func is F.one_hot and isinstance(classes, int) and classes >= 0


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in lists, tuples and dictionaries, however deep."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [item for part in value for item in tensors_in(part)] if isinstance(value, list | tuple) else []


def _is_plain(value: Any) -> bool:
    return all(item is None or isinstance(item, _PLAIN) for item in tree_flatten(value)[0])
