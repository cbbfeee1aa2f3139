"""What a family is asked for, and the draft that it hands on: columns without blemishes, and the target's makings."""

import dataclasses
from typing import Self

import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig, Columns
from priors.task import TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRequest:
    """What a family is to draw.

    Args:
        kind: what the target will be.
        count: B tasks.
        rows: R of every task.
        features: C of every task.
        max_classes: most classes of a task (classification).
        causes: how raw columns depend on each other.
        columns: how they are written down.
    """

    kind: TaskKind
    count: int
    rows: int
    features: int
    max_classes: int
    causes: CauseConfig
    columns: ColumnConfig

    def sized(self, count: int) -> Self:
        """The same for another number of tasks."""
        return dataclasses.replace(self, count=count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """B tasks before their targets are cut or scaled.

    Args:
        columns: the features.
        scores: [B, S, R] latent targets, mean 0 and variance 1 over the rows; the first is the main one.
        classes: [B, R] int64, classes that the family fixed itself; a task whose first is −1 is cut from `scores`.
        loudness: [B] factor on the noise of the target; below 1 where the family has noise of its own.
        facts: sampled parameters worth keeping, name → [B] tensor: "relevant", the number of columns that the target
            depends on; "own_noise", the share of the main score's variance that is noise, where the family adds some;
            "own_flips", the share of the classes that the family drew against its own rule.
    """

    columns: Columns
    scores: torch.Tensor
    classes: torch.Tensor
    loudness: torch.Tensor
    facts: dict[str, torch.Tensor]

    def at(self, index: torch.Tensor) -> Self:
        """The tasks at these places."""
        columns = {field.name: getattr(self.columns, field.name)[index] for field in dataclasses.fields(Columns)}
        return dataclasses.replace(
            self,
            columns=Columns(**columns),
            scores=self.scores[index],
            classes=self.classes[index],
            loudness=self.loudness[index],
            facts={name: values[index] for name, values in self.facts.items()},
        )


def join(parts: list[Draft]) -> Draft:
    """Puts drafts of the same shape one behind the other; facts that one lacks are NaN."""
    names = sorted({name for part in parts for name in part.facts})
    facts = {
        name: torch.cat(
            [
                part.facts.get(name, torch.full((len(part.scores),), torch.nan, device=part.scores.device)).float()
                for part in parts
            ]
        )
        for name in names
    }
    table = [part.columns for part in parts]
    fields = [field.name for field in dataclasses.fields(Columns)]
    return Draft(
        columns=Columns(**{name: torch.cat([getattr(part, name) for part in table]) for name in fields}),
        scores=torch.cat([part.scores for part in parts]),
        classes=torch.cat([part.classes for part in parts]),
        loudness=torch.cat([part.loudness for part in parts]),
        facts=facts,
    )
