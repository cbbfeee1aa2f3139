"""What is inside a shard set: size, kinds of columns and realised properties of every task, summed up by family.

Free of torch. What a task's parameters do not say is unknown (NaN), never guessed.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from priors.group import TaskGroup
from priors.shards import ShardSet, as_store
from priors.task import ColumnKind

ALL = "all"
SIZES = ("rows", "features", "classes")
REALISED = ("noise_share", "relevant", "largest_class", "missing", "signal")
KINDS = {ColumnKind.NUMBER: "numbers", ColumnKind.ORDINAL: "ordinals", ColumnKind.CATEGORY: "categories"}
_NO_PROPERTY = frozenset({"position"})
_LOW, _HIGH = 0.05, 0.95
_FACT_DIGITS = 4  # decimals of the numbers among a task's parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskTable:
    """T tasks, a value of each property for each.

    Args:
        families: [T] names.
        values: property → [T] numbers; NaN where it is unknown or means nothing (classes of a regression task).
    """

    families: np.ndarray
    values: Mapping[str, np.ndarray]

    def of(self, family: str) -> Self:
        """The tasks of one family."""
        chosen = self.families == family
        values = {name: values[chosen] for name, values in self.values.items()}
        return type(self)(families=self.families[chosen], values=values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """How a property is distributed.

    Args:
        low: its 5 % quantile.
        median: its 50 % quantile.
        high: its 95 % quantile.
        known: tasks that have it; the quantiles are over these.
    """

    low: float
    median: float
    high: float
    known: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilySummary:
    """The tasks of a family, or all.

    Args:
        name: of the family, or `ALL`.
        tasks: how many.
        share: of all tasks.
        drawn: how many were drawn to have them, None where the set does not say.
        rejected: how many of those the filter turned down, None where the set does not say.
        without_signal: kept tasks whose signal is below the filter's threshold (a group is filled up with such when
            the filter turns down too many), None where the set had no filter or does not say.
        columns: share of columns of each of `KINDS`.
        spreads: property → its distribution, those alone that a task has.
    """

    name: str
    tasks: int
    share: float
    drawn: int | None
    rejected: int | None
    without_signal: int | None
    columns: Mapping[str, float]
    spreads: Mapping[str, Spread]

    @property
    def rejected_share(self) -> float | None:
        """Share of the drawn tasks that were turned down."""
        return self.rejected / self.drawn if self.drawn and self.rejected is not None else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetSummary:
    """A shard set.

    Args:
        place: where it lies: a path, or a URI without passwords.
        digest: of the set.
        source: digest of what its bytes are a function of.
        config: what its tasks were drawn from.
        seed: of the set.
        kind: what its tasks predict.
        bytes: of its Arrow files.
        whole: all tasks.
        families: the most frequent first; one whose tasks were all rejected has none.
    """

    place: str
    digest: str
    source: str
    config: Mapping[str, Any]
    seed: int
    kind: str
    bytes: int
    whole: FamilySummary
    families: tuple[FamilySummary, ...]

    @property
    def bytes_per_task(self) -> float:
        """Mean over all tasks."""
        return self.bytes / self.whole.tasks if self.whole.tasks else math.nan

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        summaries = (self.whole, *self.families)
        parts = {part.name: dataclasses.asdict(part) | {"rejected_share": part.rejected_share} for part in summaries}
        own = {name: getattr(self, name) for name in ("place", "digest", "source", "config", "seed", "kind", "bytes")}
        whole = parts.pop(ALL)
        return own | {"format_version": 1, "bytes_per_task": self.bytes_per_task, ALL: whole, "families": parts}


def tabulate(groups: Iterable[TaskGroup]) -> TaskTable:
    """Reads every task's properties: sizes, columns of each kind, and each number among its parameters."""
    families: list[str] = []
    parts: list[dict[str, np.ndarray]] = []
    for group in groups:
        families += [sys.intern(name) for name in group.families]
        rows = [_numbers(json.loads(text)) for text in group.parameters]
        names = {name for row in rows for name in row}
        part = {name: np.array([row.get(name, math.nan) for row in rows], np.float64) for name in names}
        part |= {name: (group.column_kinds == kind).sum(axis=1) for kind, name in KINDS.items()}
        part["rows"], part["features"] = np.full(len(group), group.rows), np.full(len(group), group.features)
        part["classes"] = np.where(group.num_classes > 0, group.num_classes, math.nan)
        parts.append(part)
    unknown = [np.full(len(part["rows"]), math.nan) for part in parts]
    values = {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, unknown, strict=True)])
        for name in sorted({name for part in parts for name in part})
    }
    return TaskTable(families=np.array(families, dtype=object), values=values)


def _numbers(parameters: Mapping[str, Any]) -> dict[str, float]:
    """The parameters that are numbers or flags."""
    return {
        name: float(value)
        for name, value in parameters.items()
        if isinstance(value, (int, float)) and name not in _NO_PROPERTY
    }


def summarise(table: TaskTable, *, shard_set: ShardSet) -> SetSummary:
    """Sums a set's tasks up by family; `table` holds all of them, in any order."""
    manifest = shard_set.manifest
    drawn = manifest.get("drawn") or None
    known = {"drawn": drawn, "rejected": None if drawn is None else manifest.get("rejected", {})}
    sums = {name: None if by is None else sum(by.values()) for name, by in known.items()}
    threshold = _threshold(manifest["config"])
    families = []
    for name in {*table.families, *(drawn or {})}:
        own = {key: None if by is None else by.get(name, 0) for key, by in known.items()}
        families.append(_summary(table.of(name), name=name, total=len(table.families), threshold=threshold, **own))
    families.sort(key=lambda part: (-part.tasks, part.name))
    return SetSummary(
        place=str(as_store(shard_set.folder)),
        digest=shard_set.digest,
        source=manifest["source"],
        config=manifest["config"],
        seed=manifest["seed"],
        kind=shard_set.kind.value,
        bytes=shard_set.num_bytes,
        whole=_summary(table, name=ALL, total=len(table.families), threshold=threshold, **sums),
        families=tuple(families),
    )


def _threshold(config: Mapping[str, Any]) -> float | None:
    """Least signal that the set's filter asked for, to as many digits as tasks hold; None without a filter."""
    prior = config.get("prior")
    own = prior.get("filter") if isinstance(prior, Mapping) else None
    threshold = own.get("threshold") if isinstance(own, Mapping) and own.get("enabled") else None
    return round(threshold, _FACT_DIGITS) if isinstance(threshold, (int, float)) else None


def _summary(
    table: TaskTable, *, name: str, total: int, threshold: float | None, drawn: int | None, rejected: int | None
) -> FamilySummary:
    columns = {kind: float(table.values[kind].sum()) for kind in KINDS.values() if kind in table.values}
    number, none = sum(columns.values()), np.zeros(0)
    spreads = {key: spread(values) for key, values in table.values.items() if key not in columns}
    return FamilySummary(
        name=name,
        tasks=len(table.families),
        share=len(table.families) / total if total else math.nan,
        drawn=drawn,
        rejected=rejected,
        without_signal=None if threshold is None else int((table.values.get("signal", none) < threshold).sum()),
        columns={kind: count / number for kind, count in columns.items()} if number else {},
        spreads={key: found for key, found in spreads.items() if found},
    )


def spread(values: np.ndarray) -> Spread | None:
    """The distribution of values [T], in quantiles that occur; NaN is left out, None where nothing else is there."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    low, median, high = np.quantile(known, (_LOW, 0.5, _HIGH), method="inverted_cdf").tolist()
    return Spread(low=low, median=median, high=high, known=len(known))
