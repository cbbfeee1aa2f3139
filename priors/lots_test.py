"""Tests of priors.lots: what is joined, picked and written down."""

import json
import math

import numpy as np
import torch

from priors.lots import Lot, joined
from priors.task import TaskKind


def lot(numbers: list[int], **facts: torch.Tensor) -> Lot:
    """Tasks of two columns and three rows whose every cell is the task's number."""
    count = len(numbers)
    ids = torch.tensor(numbers)
    return Lot(
        values=ids.float().view(-1, 1, 1).expand(count, 2, 3),
        y=torch.tensor([[0.0, 1.0, 1.0]]).repeat(count, 1),
        kinds=torch.zeros((count, 2), dtype=torch.int8),
        levels=torch.zeros((count, 2), dtype=torch.int64),
        num_classes=torch.full((count,), 2),
        facts={"id": ids, **facts},
    )


def test_tasks_keep_their_facts_through_joining_picking_and_ordering() -> None:
    both = joined([lot([1, 2, 3], depth=torch.tensor([5, 6, 7])), lot([4, 5])])
    group = both.at(torch.tensor([4, 1, 3])).group(
        place=torch.tensor([2, 0, 1]), families=["a", "b", "c"], seed=9, kind=TaskKind.CLASSIFICATION
    )
    assert group.x[:, 0, 0].tolist() == [4, 5, 2] and group.x.shape == (3, 3, 2)
    notes = [json.loads(text) for text in group.parameters]
    assert [note["id"] for note in notes] == [4, 5, 2] and [note["position"] for note in notes] == [0, 1, 2]
    assert [note.get("depth") for note in notes] == [None, None, 6]
    assert group.families == ("a", "b", "c") and (group.seeds == 9).all()
    assert (group.x.dtype, group.level_counts.dtype, group.num_classes.dtype) == (np.float32, np.int32, np.int32)


def test_the_largest_class_is_a_share_of_the_rows_and_absent_from_regression() -> None:
    found = lot([1]).largest_class()["largest_class"].item()
    assert math.isclose(found, 2 / 3, rel_tol=1e-6)
    numbers = Lot(**{**lot([1]).__dict__, "num_classes": torch.zeros(1, dtype=torch.int64)})
    assert numbers.largest_class() == {}
