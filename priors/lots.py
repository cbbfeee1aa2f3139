"""Lots: tasks of one shape on their way from a family to a group, as tensors with the rows last."""

import dataclasses
import json
import math
from typing import Self

import numpy as np
import torch

from priors.exact_draft import ExactDraft
from priors.group import TaskGroup
from priors.task import TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lot:
    """B finished tasks.

    Args:
        values: [B, C, R] float32.
        y: [B, R] float32.
        kinds: [B, C] int8.
        levels: [B, C] int64.
        num_classes: [B] int64; 0 for regression.
        facts: name → [B] tensor of what was sampled and realised; NaN where it has no meaning.
    """

    values: torch.Tensor
    y: torch.Tensor
    kinds: torch.Tensor
    levels: torch.Tensor
    num_classes: torch.Tensor
    facts: dict[str, torch.Tensor]

    @classmethod
    def of_exact(cls, draft: ExactDraft, *, device: torch.device) -> Self:
        """The tasks of a family with a known posterior, as they are."""
        lot = cls(
            values=torch.from_numpy(draft.x).to(device).transpose(1, 2),
            y=torch.from_numpy(draft.y).to(device),
            kinds=torch.from_numpy(draft.column_kinds).to(device),
            levels=torch.from_numpy(draft.level_counts).long().to(device),
            num_classes=torch.from_numpy(draft.num_classes).long().to(device),
            facts={name: torch.from_numpy(np.asarray(values)).to(device) for name, values in draft.facts.items()},
        )
        return lot.noted(missing=torch.zeros_like(lot.y[:, 0]), **lot.largest_class())

    def __len__(self) -> int:
        return len(self.y)

    def at(self, index: torch.Tensor) -> Self:
        """The tasks at these places."""
        facts = {name: values[index] for name, values in self.facts.items()}
        tensors = {name: getattr(self, name)[index] for name in _TENSORS}
        return dataclasses.replace(self, **tensors, facts=facts)

    def noted(self, **facts: torch.Tensor) -> Self:
        """The same with more facts."""
        return dataclasses.replace(self, facts=self.facts | facts)

    def largest_class(self) -> dict[str, torch.Tensor]:
        """The share of the rows in the largest class, as a fact; nothing for regression."""
        if not int(self.num_classes.max()):
            return {}
        sizes = self.y.new_zeros((len(self), int(self.y.max()) + 1))
        return {
            "largest_class": sizes.scatter_add_(1, self.y.long(), torch.ones_like(self.y)).amax(-1) / self.y.shape[1]
        }

    def group(self, *, place: torch.Tensor, families: list[str], seed: int, kind: TaskKind) -> TaskGroup:
        """The tasks in the order `place` [B] as a group; their parameters hold all facts."""
        lot = self.at(place)
        facts = {name: values.double().tolist() for name, values in lot.facts.items()}
        parameters = []
        for i in range(len(lot)):
            known = {name: round(values[i], 4) for name, values in facts.items() if math.isfinite(values[i])}
            parameters.append(json.dumps({**known, "position": i}, sort_keys=True))
        return TaskGroup(
            x=lot.values.transpose(1, 2).contiguous().cpu().numpy(),
            y=lot.y.cpu().numpy(),
            column_kinds=lot.kinds.cpu().numpy(),
            level_counts=lot.levels.int().cpu().numpy(),
            num_classes=lot.num_classes.int().cpu().numpy(),
            families=tuple(families),
            seeds=np.full(len(lot), seed, np.int64),
            parameters=tuple(parameters),
            kind=kind,
        )


_TENSORS = ("values", "y", "kinds", "levels", "num_classes")


def joined(lots: list[Lot]) -> Lot:
    """Puts lots of one shape one behind the other; facts that one lacks are NaN."""
    if len(lots) == 1:
        return lots[0]
    names = sorted({name for lot in lots for name in lot.facts})
    facts = {
        name: torch.cat([lot.facts.get(name, lot.y.new_full((len(lot),), math.nan)).double() for lot in lots])
        for name in names
    }
    return Lot(**{name: torch.cat([getattr(lot, name) for lot in lots]) for name in _TENSORS}, facts=facts)
