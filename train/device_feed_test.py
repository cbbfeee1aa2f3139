"""Tests of batches on their way to the device. The copies themselves need a GPU: see bench/gpu_test.py."""

import numpy as np
import pytest
import torch

from priors.task import TaskBatch, TaskKind
from train.device_feed import DeviceFeed, on_device, staged
from train.toy import toy_batch

_CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_staged_batch_is_read_and_not_its_arrays(kind: TaskKind) -> None:
    batch = staged(toy_batch(kind), lambda tensor: tensor.clone())
    batch.x_context[:] = 0
    read, plain = on_device(batch, _CPU), on_device(toy_batch(kind), _CPU)
    for name in ("x_context", "y_context", "x_query", "column_kinds"):
        assert torch.equal(getattr(read.inputs, name), getattr(plain.inputs, name))
    assert torch.equal(read.y_query, plain.y_query) and read.inputs.num_classes == plain.inputs.num_classes
    assert not on_device(toy_batch(kind), _CPU).inputs.x_context.equal(torch.zeros(4, 10, 3))


def test_a_part_of_a_staged_batch_is_that_part_of_arrays_and_tensors() -> None:
    whole = toy_batch(TaskKind.CLASSIFICATION)
    part = staged(whole, lambda tensor: tensor.clone()).part(1, 3)
    np.testing.assert_array_equal(part.x_query, whole.x_query[1:3])
    np.testing.assert_array_equal(part.staged.inputs.x_query.numpy(), whole.x_query[1:3])
    np.testing.assert_array_equal(part.staged.y_query.numpy(), whole.y_query[1:3])
    assert part.families == whole.families[1:3] and part.kind is whole.kind


def test_on_a_cpu_every_batch_is_handed_on_when_it_is_asked_for() -> None:
    asked: list[int] = []

    def batch(step: int) -> TaskBatch:
        asked.append(step)
        return toy_batch(TaskKind.REGRESSION, seed=step)

    with DeviceFeed(batch, device=_CPU, num_steps=5) as feed:
        feed.expect(2)
        assert asked == []
        got = feed.batch(2)
    assert asked == [2]
    np.testing.assert_array_equal(got.x_context, toy_batch(TaskKind.REGRESSION, seed=2).x_context)
