"""A draft: what a family hands on. Columns without blemishes, and what the target is made of."""

import dataclasses

import torch

from priors.columns import Columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """B tasks before their targets are cut or scaled.

    Args:
        columns: the features.
        scores: [B, S, R] latent targets, mean 0 and variance 1 over the rows; the first is the main one.
        classes: [B, R] int64, classes that the family fixed itself; a task whose first is −1 is cut from `scores`.
        loudness: [B] factor on the noise of the target; below 1 where the family has noise of its own.
        facts: sampled parameters worth keeping, name → [B] tensor.
    """

    columns: Columns
    scores: torch.Tensor
    classes: torch.Tensor
    loudness: torch.Tensor
    facts: dict[str, torch.Tensor]


def join(parts: list[Draft]) -> Draft:
    """Puts drafts of the same shape one behind the other; facts that one lacks are NaN."""
    names = sorted({name for part in parts for name in part.facts})
    facts = {
        name: torch.cat([part.facts.get(name, torch.full((len(part.scores),), torch.nan)).float() for part in parts])
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
