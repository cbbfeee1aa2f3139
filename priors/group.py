"""A group: tasks of one shape as arrays with the task axis first. What families fill, shards store, batches slice."""

import dataclasses
import json
from typing import Self

import numpy as np

from priors.task import Task, TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskGroup:
    """B tasks of R rows and C features.

    Args:
        x: [B, R, C] float32; NaN is missing; ordinals and categories are codes 0..levels-1.
        y: [B, R] float32; class ids 0..K-1 (each in two rows at least, but in families with an exact
            posterior, whose tasks may lack some) or the raw regression target.
        column_kinds: [B, C] int8, values of `ColumnKind`.
        level_counts: [B, C] int32; 0 for a number.
        num_classes: [B] int32; K, or 0 for regression.
        families: B names.
        seeds: [B] int64; the seed of the group that the task was drawn in.
        parameters: B JSON objects; "position" is the task's index in the group that `seeds` made.
        kind: what y is.
    """

    x: np.ndarray
    y: np.ndarray
    column_kinds: np.ndarray
    level_counts: np.ndarray
    num_classes: np.ndarray
    families: tuple[str, ...]
    seeds: np.ndarray
    parameters: tuple[str, ...]
    kind: TaskKind

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        """R."""
        return self.x.shape[1]

    @property
    def features(self) -> int:
        """C."""
        return self.x.shape[2]

    def task(self, index: int) -> Task:
        """One task; its arrays are views of the group's."""
        return Task(
            x=self.x[index],
            y=self.y[index],
            column_kinds=self.column_kinds[index],
            level_counts=self.level_counts[index],
            kind=self.kind,
            num_classes=int(self.num_classes[index]),
            family=self.families[index],
            seed=int(self.seeds[index]),
            parameters=json.loads(self.parameters[index]),
        )

    def tasks(self) -> list[Task]:
        """All tasks."""
        return [self.task(index) for index in range(len(self))]

    def part(self, start: int, stop: int) -> Self:
        """Tasks start … stop − 1; arrays are views."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{n: v[start:stop] for n, v in fields.items() if n != "kind"})
