"""Tests of priors.draft: joining drafts."""

import torch

from priors.columns import Columns
from priors.draft import Draft, join


def make_draft(count: int, facts: dict[str, torch.Tensor]) -> Draft:
    """A draft filled with its own size."""
    shape = (count, 2, 3)
    columns = Columns(
        values=torch.full(shape, float(count)),
        signal=torch.full(shape, float(count)),
        kinds=torch.full((count, 2), count, dtype=torch.int8),
        levels=torch.full((count, 2), count),
    )
    return Draft(
        columns=columns,
        scores=torch.full((count, 1, 3), float(count)),
        classes=torch.full((count, 3), count),
        loudness=torch.full((count,), float(count)),
        facts=facts,
    )


def test_joined_drafts_lie_one_behind_the_other_and_lacking_facts_are_nan() -> None:
    both = join([make_draft(1, {"a": torch.tensor([5])}), make_draft(2, {"b": torch.tensor([6, 7])})])
    for values in (both.columns.values, both.columns.signal, both.columns.kinds, both.columns.levels, both.scores):
        assert values.flatten(1)[:, 0].tolist() == [1, 2, 2]
    assert both.classes[:, 0].tolist() == both.loudness.tolist() == [1, 2, 2]
    assert both.facts["a"][0] == 5 and both.facts["a"][1:].isnan().all()
    assert both.facts["b"][0].isnan() and both.facts["b"][1:].tolist() == [6, 7]
