"""The certificate of non-interference: whatever the values, a prediction depends on its query and its context alone.

Where other audits compare runs, this one follows one run's data flow (`eval.taint`) from every source: the features and
the labels of each context, each query row, each query label, padding, weights. Shown is: for these shapes, masks and
column kinds, in this mode and precision, and every value of features, labels and weights for which the network takes
the same operations, refuses nothing and keeps finite numbers, prediction (table b, query i) is a function of query row
(b, i), the context of table b, and the weights. Branches taken on values count as dependences, apart from the network's
own checks, which can only raise.

Not shown: what happens before the gate and after the prediction (the audits by example judge that); other shapes than
the traced ones, so nothing of what a network does to more than `_SHAPES` rows; train mode; infinities and NaNs in
between; and what `eval.taint` does not follow: threads, Python numbers kept from an earlier table, a refusal that the
network catches. Numpy is followed as far as its door: what goes through it counts as a dependence.
Shapes: B tables, N context rows, M query rows.
"""

import dataclasses
import enum
import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval.case import AuditResult, Case, visibility_truth
from eval.specimens import Shape, specimen
from eval.subject import Subject
from eval.taint import WEIGHTS, TaintTracker, Untraceable
from eval.taint_rules import union
from eval.taint_sources import Sources
from eval.tracing import Axis, Reading, Stage, Trace, read_fields, tracing
from model.icl_transformer import AttentionPath
from model.network import NetworkInputs
from priors.task import Episode, TaskBatch

_SHAPES = (
    Shape(num_context=5, num_query=3, num_features=4, num_classes=2),
    Shape(num_context=4, num_query=2, num_features=3, num_classes=2),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Violation:
    """Where a forbidden source first appears. Args: stage, name of the module's reading, and a message of one line."""

    stage: Stage
    name: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """What one traced pass shows.

    Args:
        violation: the first forbidden dependence, or None.
        missing: a dependence that must be there and is not (the certificate would be blind), or None.
        predictions: for each table and query, the sources of its prediction.
        num_operations: how many were followed.
        guards: values that were looked at by checks alone, with counts.
        branches: operations by which a tainted value left torch: all that came after depends on it.
        mixed: operations without a rule, with counts.
    """

    violation: Violation | None
    missing: str | None
    predictions: tuple[tuple[str, ...], ...]
    num_operations: int
    guards: dict[str, int]
    branches: tuple[str, ...]
    mixed: dict[str, int]


class Precision(enum.StrEnum):
    """In what numbers a pass is followed."""

    OWN = "the subject's own precision"
    BF16 = "bf16 autocast"


@torch.no_grad()
def certify(
    subject: Subject,
    episodes: Sequence[Episode],
    *,
    hides_labels: bool = False,
    precision: Precision = Precision.OWN,
) -> Certificate:
    """Follows one prediction of a few small tables from its inputs to its end.

    With `hides_labels` the first context row of every table is shown without its label, which is then a forbidden
    source, at every entry (seed 5.B).

    The network predicts the same tables once before, so that what it keeps from one table to the next is seen as
    foreign.

    Raises:
        ValueError: for more rows than 62 bits can tell apart.
        Untraceable: for what cannot be followed, such as operations on raw storages; the operation is named.
    """
    is_half = precision is Precision.BF16
    subject = subject.fresh(dtype=torch.float32 if is_half else None)
    network, batch = subject.network, subject.collate(list(episodes))
    sources, tracker = Sources(batch), TaintTracker()
    with torch.autocast("cpu", torch.bfloat16, enabled=True, cache_enabled=False) if is_half else nullcontext():
        network(_inputs(subject, batch, hides_labels=hides_labels))
        inputs = _inputs(subject, batch, hides_labels=hides_labels)
        for weight in (*network.parameters(), *network.buffers()):
            tracker.mark(weight, WEIGHTS)
        sources.mark(tracker, inputs)
        with tracker, tracing(network) as trace:
            prediction = network(inputs)
            exits = tuple(_exits(prediction, num_query=sources.query.shape[1]))
            found = trace()
    if tracker.hidden is not None:  # the network caught it
        raise Untraceable(tracker.hidden)
    violation = None
    for reading in (*found.readings, *exits):
        if violation is None:
            read = _with_axes(reading, num_query=sources.query.shape[1])
            violation = _violation(read, tracker.of(read.value), sources=sources)
    has_mask = subject.path is not AttentionPath.CACHED
    if violation is not None and violation.stage is Stage.BLOCKS and has_mask and _sees_too_much(found, batch):
        violation = dataclasses.replace(violation, stage=Stage.MASK)
    reached = _reached(exits, tracker, sources=sources)
    return Certificate(
        violation=violation,
        missing=_missing(reached, sources=sources),
        predictions=tuple(tuple(sources.described(int(taint)) for taint in row) for row in reached),
        num_operations=tracker.num_operations,
        guards=dict(tracker.guards),
        branches=tuple(tracker.branches),
        mixed=dict(tracker.mixed),
    )


def _inputs(subject: Subject, batch: TaskBatch, *, hides_labels: bool = False) -> NetworkInputs:
    """What the gate lets through, in the subject's precision and in memory of its own."""
    inputs, dtype = subject.gate(batch), subject.dtype
    if hides_labels:
        shown = torch.arange(inputs.y_context.shape[1]).expand(inputs.y_context.shape) > 0
        inputs = dataclasses.replace(inputs, label_mask=shown)
    values = {field.name: getattr(inputs, field.name) for field in dataclasses.fields(inputs)}
    own = {
        name: value.to(dtype, copy=True) if value.is_floating_point() else value.clone()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    return dataclasses.replace(inputs, **own)


def _exits(prediction: Any, *, num_query: int) -> list[Reading]:
    """The tensors of a prediction."""
    tensors = [f.name for f in dataclasses.fields(prediction) if isinstance(getattr(prediction, f.name), Tensor)]
    readings = read_fields(prediction, stage=Stage.HEAD, name="prediction", only=frozenset(tensors))
    return [_with_axes(reading, num_query=num_query) for reading in readings]


def _with_axes(reading: Reading, *, num_query: int) -> Reading:
    """What leaves the head runs over queries where its dimension 1 is of size M, whatever its name."""
    if reading.stage is not Stage.HEAD or reading.axes or reading.value.shape[1:2] != (num_query,):
        return reading
    return dataclasses.replace(reading, axes={1: Axis.QUERY})


def _violation(reading: Reading, taint: Tensor, *, sources: Sources) -> Violation | None:
    wrong = taint & ~sources.allowed(reading)
    if not wrong.any():
        return None
    place = [int(index) for index in wrong.nonzero()[0]]
    what = f"{reading.name}{place} depends on {sources.described(int(wrong[tuple(place)]))}"
    return Violation(stage=reading.stage, name=reading.name, message=what)


def _sees_too_much(trace: Trace, batch: TaskBatch) -> bool:
    """Whether an attention saw other keys than the real context rows."""
    truth = visibility_truth(batch, num_thinking=trace.num_thinking)
    return any(not torch.equal(call.visible(), truth) for call in trace.attention)


def _reached(exits: Sequence[Reading], tracker: TaintTracker, *, sources: Sources) -> Tensor:
    """[B, M] all sources of each query's prediction."""
    total = torch.zeros_like(sources.query)
    for reading in exits:
        if reading.axes:
            taint = tracker.of(reading.value).flatten(2) if reading.value.dim() > 2 else tracker.of(reading.value)
            for place in np.ndindex(*total.shape):
                total[place] |= union(taint[place])
    return total


def _missing(reached: Tensor, *, sources: Sources) -> str | None:
    """The positive control: every real prediction depends on its row, its context's features and labels."""
    wanted = sources.query | sources.context[:, None]  # the first row's label may be hidden, others are not
    absent = torch.where(sources.real_query, wanted & ~reached, 0)
    if not absent.any():
        return None
    table, query = (int(index) for index in absent.nonzero()[0])
    what = sources.described(int(absent[table, query]))
    return f"prediction {query} of table {table} does not depend on {what}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NanReach:
    """Where NaNs in the cells of one row come out.

    Args:
        context: [N, M] whether context row n reaches prediction i.
        query: [M, M] whether query row j reaches prediction i.
        stage: the head, where the hidden states that it is given are as they must be and its predictions are not.
    """

    context: np.ndarray
    query: np.ndarray
    stage: Stage = Stage.BLOCKS

    @property
    def problem(self) -> str | None:
        """What is wired as it must not be, or not wired as it must."""
        leaks = self.query & ~np.eye(len(self.query), dtype=bool)
        if leaks.any():
            source, reached = np.argwhere(leaks)[0]
            return f"a NaN in the cells of query row {source} reaches prediction {reached}"
        blind = [f"context row {n}" for n, row in enumerate(self.context) if not row.all()]
        blind += [f"query row {i}" for i, own in enumerate(np.diag(self.query)) if not own]
        return f"a NaN in the cells of {blind[0]} does not reach its predictions" if blind else None


@torch.no_grad()
def nan_certificate(subject: Subject, episode: Episode) -> NanReach:
    """Puts a NaN behind the handling of missing values and sees where it comes out.

    In the fast path nothing is multiplied by a mask, so a NaN reaches all that it is wired to, even through a weight of
    zero; on the reference path it would, besides, pass through forbidden keys (0 · NaN). Each of the N + M rows of the
    episode is tried in a copy of the table, all copies in one batch.
    """
    network = subject.fresh(path=AttentionPath.FAST).network
    num_context, num_query = episode.num_context, len(episode.answers())
    copies = num_context + num_query

    def poison(module: torch.nn.Module, args: tuple[Any, ...], cells: Tensor) -> Tensor:
        cells = cells.clone()
        cells[range(copies), range(copies)] = torch.nan
        return cells

    handle = network.cell_embedding.register_forward_hook(poison)
    try:
        with tracing(network) as trace:
            prediction = network(_inputs(subject, subject.collate([episode] * copies)))
            hidden = [reading for reading in trace().readings if reading.name == "icl.h_query"]
    finally:
        handle.remove()
    before = _nan_reach(hidden, num_context=num_context, num_query=num_query)
    found = _nan_reach(_exits(prediction, num_query=num_query), num_context=num_context, num_query=num_query)
    return dataclasses.replace(found, stage=Stage.HEAD if before.problem is None else Stage.BLOCKS)


def _nan_reach(readings: Sequence[Reading], *, num_context: int, num_query: int) -> NanReach:
    """Where readings over queries, of one copy of the table for each row, are NaN."""
    reached = torch.zeros((num_context + num_query, num_query), dtype=torch.bool)
    for reading in readings:
        if reading.axes:
            reached |= reading.value.isnan().reshape(*reached.shape, -1).any(-1)
    return NanReach(context=reached[:num_context].numpy(), query=reached[num_context:].numpy())


def certificate_episodes(subject: Subject) -> list[Episode]:
    """Two tables of a few rows, of different sizes, cut to what the network takes."""
    config = subject.network.config
    shapes = [dataclasses.replace(s, num_features=min(s.num_features, config.max_features)) for s in _SHAPES]
    return [specimen(subject.kind, shape, seed=index) for index, shape in enumerate(shapes)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Way:
    """One way in which a subject predicts. Args: subject, precision, and words before a message."""

    subject: Subject
    precision: Precision = Precision.OWN
    words: str = ""


def _ways(subject: Subject) -> list[_Way]:
    """The subject's own way first, then those that a network takes in training and service."""
    cached, half = dataclasses.replace(subject, path=AttentionPath.CACHED), Precision.BF16
    ways = [_Way(subject=subject), _Way(subject=subject, precision=half, words="under bf16 autocast: ")]
    if subject.path is AttentionPath.CACHED:
        return ways
    return [*ways, _Way(subject=cached, words="on the cached path: ")]


def certificate(case: Case) -> AuditResult:
    """Follows the data flow: prediction i depends on query row i and its context, whatever the values (5.1, 5.5, 5.9).

    A padded batch of two tables, the same with a hidden label in each, then one table without masks; each in the
    subject's own way, under bf16 autocast, and from a remembered context. A path is a leak even where its weight is 0.
    On the fast path NaNs are sent through as well, as a second witness.
    """
    name, tables = "certificate", certificate_episodes(case.subject)
    figures = {"operations": 0.0, "checks": 0.0, "operations_mixed": 0.0, "branches_on_values": 0.0}
    groups = ((tables, False), (tables, True), (tables[:1], False))
    for way, (group, hides_labels) in itertools.product(_ways(case.subject), groups):
        try:
            found = certify(way.subject, group, hides_labels=hides_labels, precision=way.precision)
        except Untraceable as problem:
            message = f"{way.words}the data flow is hidden: {problem}"
            return case.failed(name, stage=None, figures=figures, message=message)
        figures["operations"] += found.num_operations
        figures["checks"] += sum(found.guards.values())
        figures["operations_mixed"] += sum(found.mixed.values())
        figures["branches_on_values"] += len(found.branches)
        problem = _problem(found)
        if problem is not None:
            stage = None if found.violation is None else found.violation.stage
            return case.failed(name, stage=stage, figures=figures, message=way.words + problem)
    if case.subject.path is AttentionPath.FAST:
        reach = nan_certificate(case.subject, tables[0])
        if reach.problem is not None:
            return case.failed(name, stage=reach.stage, figures=figures, message=reach.problem)
    what = "a prediction depends on its own query row, its context and the weights, whatever their values"
    return case.passed(name, figures=figures, message=what)


def _problem(found: Certificate) -> str | None:
    """What is wrong with a pass, in one line."""
    if found.violation is not None:
        why = f"; branches: {', '.join(found.branches)}" if found.branches else ""
        return found.violation.message + why + (f"; mixed by {', '.join(found.mixed)}" if found.mixed else "")
    return None if found.missing is None else f"{found.missing}: the certificate is blind"
