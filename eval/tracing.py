"""What every stage of a network computed, read by forward hooks, so that a failing audit can name the first that moved.

Seed 5.F. Stages are found by the names of submodules and kept in the order in which they ran. Shapes: B tables, N
context rows, M query rows, T = N + M, S keys.
"""

import contextlib
import dataclasses
import enum
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from model.icl_transformer import ContextView
from model.network import Network


class Stage(enum.StrEnum):
    """Where something can go wrong, in the order of the data flow."""

    COLLATE = "collate"
    NORMALISATION = "normalisation"
    CELL = "cell embedding"
    COLUMN = "column embedding"
    ROW = "row embedding"
    INJECTION = "injection"
    MASK = "mask"
    POLARITY = "mask polarity"
    RANDOMNESS = "dropout or other randomness"
    BLOCKS = "residual and cache"
    SLICES = "slices"
    HEAD = "head"
    SCORER = "scorer"
    ESTIMATOR = "estimator"


class Axis(enum.Enum):
    """What a dimension of a tensor runs over."""

    CONTEXT = enum.auto()
    QUERY = enum.auto()
    SEQUENCE = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """One tensor seen on the way.

    Args:
        stage: where.
        name: the submodule (and the part of its output).
        value: the tensor, detached; dimension 0 is the batch.
        axes: which further dimensions run over rows.
    """

    stage: Stage
    name: str
    value: Tensor
    axes: Mapping[int, Axis]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """What really reached the attention of one block.

    Args:
        name: the submodule.
        x: [B, P + T, D] the rows that read: thinking rows, then the sequence.
        source: [B, S, D] the rows that are read.
        view: its bias, and where query rows begin.
        output: [B, P + T, D].
    """

    name: str
    x: Tensor
    source: Tensor
    view: ContextView
    output: Tensor

    @property
    def bias(self) -> Tensor | None:
        """What hides keys: broadcastable to [B, 1, P + T, S], or None."""
        return self.view.bias

    def visible(self) -> Tensor:
        """[B, P + T, P + T] bool: which rows may read which; only minus infinity counts as shut."""
        (batch, rows, _), keys = self.x.shape, self.source.shape[1]
        bias = torch.zeros((), dtype=self.x.dtype) if self.bias is None else self.bias
        seen = torch.zeros(batch, rows, max(rows, keys), dtype=torch.bool)
        seen[:, :, :keys] = (bias != -torch.inf).expand(batch, 1, rows, keys)[:, 0]
        return seen

    def clean(self) -> bool:
        """Whether the bias holds nothing but 0 and minus infinity."""
        return self.bias is None or bool(((self.bias == 0) | (self.bias == -torch.inf)).all())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """All readings of one forward pass, in the order in which they were taken.

    Args:
        readings: of every stage.
        attention: what reached the attention of each ICL block.
        num_thinking: P, learned rows that stand before the sequence there.
    """

    readings: tuple[Reading, ...]
    attention: tuple[AttentionCall, ...]
    num_thinking: int

    def find(self, name: str) -> Tensor:
        """The value of the reading called `name`.

        Raises:
            KeyError: when the network has no such part.
        """
        for reading in self.readings:
            if reading.name == name:
                return reading.value
        raise KeyError(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Which part of a trace is compared, as index lists; None means all.

    Args:
        tables: positions in the batch.
        context: context rows.
        query: query rows.
        num_context: N, where the query rows of a sequence begin.
    """

    tables: tuple[int, ...] | None = None
    context: tuple[int, ...] | None = None
    query: tuple[int, ...] | None = None
    num_context: int = 0

    def take(self, reading: Reading) -> Tensor:
        """The part of a reading's value that is compared."""
        value = reading.value
        if self.tables is not None and value.ndim:
            value = value[list(self.tables)] if len(value) > 1 else value
        for dimension, axis in reading.axes.items():
            if value.shape[dimension] > 1:
                index = self._index(axis, value.shape[dimension])
                value = value if index is None else value.index_select(dimension, index)
        return value

    def _index(self, axis: Axis, size: int) -> Tensor | None:
        if axis is Axis.CONTEXT:
            return None if self.context is None else torch.tensor(self.context, dtype=torch.long)
        if axis is Axis.QUERY:
            return None if self.query is None else torch.tensor(self.query, dtype=torch.long)
        if self.context is None and self.query is None:
            return None
        context = range(self.num_context) if self.context is None else self.context
        query = range(size - self.num_context) if self.query is None else self.query
        return torch.tensor([*context, *(self.num_context + row for row in query)], dtype=torch.long)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How far one reading moved between two passes: largest absolute difference, and that over the largest value."""

    stage: Stage
    name: str
    absolute: float
    relative: float


def differences(before: Trace, after: Trace, *, rows_before: Rows, rows_after: Rows) -> list[Difference]:
    """Compares two traces reading by reading, in the order of the first.

    A reading without a twin has moved infinitely far: a part that did not run was answered from memory (stage BLOCKS),
    and a mask that came or went is a mask that moved.
    """
    twins = {reading.name: reading for reading in after.readings}
    out = []
    for first in before.readings:
        second = twins.get(first.name)
        if second is None:
            stage = Stage.MASK if first.stage is Stage.MASK else Stage.BLOCKS
            out.append(Difference(stage=stage, name=first.name, absolute=math.inf, relative=math.inf))
            continue
        a, b = rows_before.take(first), rows_after.take(second)
        gap = largest_gap(a, b)
        size = float(a.double().nan_to_num(0, 0, 0).abs().max()) if a.numel() else 0.0
        out.append(Difference(stage=first.stage, name=first.name, absolute=gap, relative=gap / max(size, 1e-30)))
    return out


def largest_gap(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; equal NaNs and equal infinities differ by 0, unlike ones by infinity."""
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def first_moved(found: list[Difference], *, tolerance: float = 0.0) -> Difference | None:
    """The first reading that moved by more than `tolerance` relative to its size (0: element by element)."""
    return next((item for item in found if item.absolute > 0 and item.relative > tolerance), None)


@contextlib.contextmanager
def tracing(network: Network) -> Iterator[Callable[[], Trace]]:
    """Records every forward pass inside the block; call the yielded function for the trace so far.

    Readings hold the T rows of the sequence, without the thinking rows before them.
    """
    readings: list[Reading] = []
    calls: list[AttentionCall] = []
    handles = []

    def watch(name: str, reader: Callable[..., Iterator[Reading]]) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            output = output[:, network.icl.num_thinking :] if re.fullmatch(r"icl\.blocks\.\d+", name) else output
            readings.extend(reader(name, args=args, kwargs=kwargs, output=output))

        return hook

    def watch_attention(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            x, source, view = args[0].detach().clone(), args[1].detach().clone(), kwargs["view"]
            calls.append(AttentionCall(name=name, x=x, source=source, view=view, output=output.detach().clone()))
            if view.bias is not None:
                bias = view.bias.detach().clone()[..., network.icl.num_thinking :]
                bias = bias if bias.shape[2] == 1 else bias[:, :, network.icl.num_thinking :]
                keys = Axis.SEQUENCE if view.bias.shape[-1] == x.shape[1] else Axis.CONTEXT
                axes = {2: Axis.SEQUENCE, 3: keys}
                readings.append(Reading(stage=Stage.MASK, name=f"{name}.bias", value=bias, axes=axes))

        return hook

    for name, module in network.named_modules():
        if re.fullmatch(r"icl\.blocks\.\d+\.attention", name):
            handles.append(module.register_forward_hook(watch_attention(name), with_kwargs=True))
        for pattern, reader in _READERS.items():
            if re.fullmatch(pattern, name):
                handles.append(module.register_forward_hook(watch(name, reader), with_kwargs=True))
    try:
        yield lambda: Trace(readings=tuple(readings), attention=tuple(calls), num_thinking=network.icl.num_thinking)
    finally:
        for handle in handles:
            handle.remove()


_FIELD_AXES: dict[str, Mapping[int, Axis]] = {
    "x_context": {1: Axis.CONTEXT},
    "y_context": {1: Axis.CONTEXT},
    "context_mask": {1: Axis.CONTEXT},
    "x_query": {1: Axis.QUERY},
    "query_mask": {1: Axis.QUERY},
    "label_mask": {1: Axis.CONTEXT},
    "log_p": {1: Axis.QUERY},
    "log_mass": {1: Axis.QUERY},
    "value": {1: Axis.QUERY},
    "values": {1: Axis.QUERY},
}


def read_fields(value: Any, *, stage: Stage, name: str, only: frozenset[str] | None = None) -> Iterator[Reading]:
    """Readings of the fields of a dataclass; numbers become tensors, what is neither is left out."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if not isinstance(item, Tensor | int | float) or (only is not None and field.name not in only):
            continue
        tensor = item.detach().clone() if isinstance(item, Tensor) else torch.tensor(item)
        yield Reading(stage=stage, name=f"{name}.{field.name}", value=tensor, axes=_FIELD_AXES.get(field.name, {}))


def _output(stage: Stage, axes: Mapping[int, Axis]) -> Callable[..., Iterator[Reading]]:
    def reader(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Iterator[Reading]:
        yield Reading(stage=stage, name=name, value=output.detach().clone(), axes=axes)

    return reader


def _normalisation(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Iterator[Reading]:
    yield from read_fields(args[2], stage=Stage.NORMALISATION, name=f"{name}.statistics")
    yield Reading(stage=Stage.NORMALISATION, name=name, value=output.detach().clone(), axes={1: Axis.SEQUENCE})


def _column_labels(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Iterator[Reading]:
    axes = {1: Axis.CONTEXT}
    yield Reading(stage=Stage.NORMALISATION, name=f"{name}.labels", value=args[0].detach().clone(), axes=axes)
    yield Reading(stage=Stage.COLUMN, name=name, value=output.detach().clone(), axes=axes)


def _injection(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Iterator[Reading]:
    context_rows, labels, query_rows = (part.detach().clone() for part in args[:3])
    yield Reading(stage=Stage.ROW, name=f"{name}.context_rows", value=context_rows, axes={1: Axis.CONTEXT})
    yield Reading(stage=Stage.ROW, name=f"{name}.query_rows", value=query_rows, axes={1: Axis.QUERY})
    yield Reading(stage=Stage.NORMALISATION, name=f"{name}.labels", value=labels, axes={1: Axis.CONTEXT})
    yield Reading(stage=Stage.INJECTION, name=name, value=output.detach().clone(), axes={1: Axis.SEQUENCE})


def _icl(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Iterator[Reading]:
    context, query = (part.detach().clone() for part in output)
    yield Reading(stage=Stage.SLICES, name=f"{name}.h_context", value=context, axes={1: Axis.CONTEXT})
    yield Reading(stage=Stage.SLICES, name=f"{name}.h_query", value=query, axes={1: Axis.QUERY})


def _head(name: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Iterator[Reading]:
    yield from read_fields(output, stage=Stage.HEAD, name=name)


_READERS: dict[str, Callable[..., Iterator[Reading]]] = {
    r"cell_features": _normalisation,
    r"cell_embedding": _output(Stage.CELL, {1: Axis.SEQUENCE}),
    r"column_labels": _column_labels,
    r"column_blocks\.\d+": _output(Stage.COLUMN, {2: Axis.SEQUENCE}),
    r"row_blocks\.\d+": _output(Stage.ROW, {1: Axis.SEQUENCE}),
    r"row_readout": _output(Stage.ROW, {1: Axis.SEQUENCE}),
    r"icl\.injection": _injection,
    r"icl\.blocks\.\d+": _output(Stage.BLOCKS, {1: Axis.SEQUENCE}),
    r"icl\.norm": _output(Stage.BLOCKS, {1: Axis.SEQUENCE}),
    r"icl": _icl,
    r"head": _head,
}
