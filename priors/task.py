"""Tasks and batches of tasks: what priors make, shards hold, and training and evaluation read. Free of torch.

Shapes: B tasks, R rows, N context rows, M query rows, C features (legend in docs/design.md).
"""

import dataclasses
import enum
from typing import Any

import numpy as np


class TaskKind(enum.StrEnum):
    """What is predicted."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class ColumnKind(enum.IntEnum):
    """What the values of a feature mean."""

    ABSENT = -1  # padding: the task has no such column
    NUMBER = 0
    ORDINAL = 1  # codes 0..levels-1 whose order means something
    CATEGORY = 2  # codes 0..levels-1 whose order means nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One table with its answers.

    Args:
        x: [R, C] float32; NaN is missing, ±inf is legal; ordinals and categories are codes 0..levels-1.
        y: [R] float32; class ids 0..num_classes-1 or the raw regression target.
        column_kinds: [C] int8, values of `ColumnKind`.
        level_counts: [C] int32; levels of an ordinal or a category, 0 for a number.
        kind: what y is.
        num_classes: K, or 0 for regression.
        family: name of the prior family, or "real".
        seed: the seed that made exactly this task.
        parameters: sampled parameters and realised properties; JSON values only.
    """

    x: np.ndarray
    y: np.ndarray
    column_kinds: np.ndarray
    level_counts: np.ndarray
    kind: TaskKind
    num_classes: int
    family: str
    seed: int = 0
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything about one table that a predictor may see. There is no field for a query label.

    Args:
        x_context: [N, C] float32.
        y_context: [N] float32.
        x_query: [M, C] float32.
        column_kinds: [C] int8.
        level_counts: [C] int32.
        kind: classification or regression.
        num_classes: K, or 0.
    """

    x_context: np.ndarray
    y_context: np.ndarray
    x_query: np.ndarray
    column_kinds: np.ndarray
    level_counts: np.ndarray
    kind: TaskKind
    num_classes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """A task cut into context rows [:num_context] and query rows [num_context:]."""

    task: Task
    num_context: int

    def evidence(self) -> Evidence:
        """What a predictor gets."""
        task, cut = self.task, self.num_context
        return Evidence(
            x_context=task.x[:cut],
            y_context=task.y[:cut],
            x_query=task.x[cut:],
            column_kinds=task.column_kinds,
            level_counts=task.level_counts,
            kind=task.kind,
            num_classes=task.num_classes,
        )

    def answers(self) -> np.ndarray:
        """[M] the query labels, for the scorer alone."""
        return self.task.y[self.num_context :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskBatch:
    """B episodes collated; shorter ones are padded at the end of their rows and columns.

    Args:
        x_context: [B, N, C] float32; padding is 0.
        y_context: [B, N] float32; padding is 0.
        x_query: [B, M, C] float32.
        y_query: [B, M] float32: read by losses and scorers only.
        context_mask: [B, N] bool, True where a row is real.
        query_mask: [B, M] bool.
        column_kinds: [B, C] int8; `ColumnKind.ABSENT` marks padding.
        num_classes: [B] int32.
        kind: one kind for the whole batch.
        families: B names.
    """

    x_context: np.ndarray
    y_context: np.ndarray
    x_query: np.ndarray
    y_query: np.ndarray
    context_mask: np.ndarray
    query_mask: np.ndarray
    column_kinds: np.ndarray
    num_classes: np.ndarray
    kind: TaskKind
    families: tuple[str, ...]

    def part(self, start: int, stop: int) -> "TaskBatch":
        """Tasks start … stop − 1; arrays are views."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{n: v[start:stop] for n, v in fields.items() if n != "kind"})


def collate(episodes: list[Episode]) -> TaskBatch:
    """Stacks episodes of one kind into a batch, padding rows and columns at the end."""
    parts = [episode.evidence() for episode in episodes]
    batch, columns = len(parts), max(part.x_context.shape[1] for part in parts)
    rows = max(len(part.y_context) for part in parts)
    queries = max(len(part.x_query) for part in parts)
    out = TaskBatch(
        x_context=np.zeros((batch, rows, columns), np.float32),
        y_context=np.zeros((batch, rows), np.float32),
        x_query=np.zeros((batch, queries, columns), np.float32),
        y_query=np.zeros((batch, queries), np.float32),
        context_mask=np.zeros((batch, rows), bool),
        query_mask=np.zeros((batch, queries), bool),
        column_kinds=np.full((batch, columns), ColumnKind.ABSENT, np.int8),
        num_classes=np.array([part.num_classes for part in parts], np.int32),
        kind=parts[0].kind,
        families=tuple(episode.task.family for episode in episodes),
    )
    for index, (episode, part) in enumerate(zip(episodes, parts, strict=True)):
        n, c = part.x_context.shape
        m = len(part.x_query)
        out.x_context[index, :n, :c] = part.x_context
        out.y_context[index, :n] = part.y_context
        out.x_query[index, :m, :c] = part.x_query
        out.y_query[index, :m] = episode.answers()
        out.context_mask[index, :n] = True
        out.query_mask[index, :m] = True
        out.column_kinds[index, :c] = part.column_kinds
    return out
