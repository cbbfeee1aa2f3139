"""The gate: everything that a prediction may depend on passes, and no answer is touched."""

import dataclasses
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch

from eval.records import network_inputs
from eval.specimens import specimens
from model.network import NetworkInputs
from priors.task import TaskBatch, TaskKind, collate

_ARRAYS = ("x_context", "y_context", "x_query", "column_kinds", "context_mask", "query_mask")


class _SealedBatch:
    """A batch whose answers nobody may read; it notes what was read."""

    def __init__(self, batch: TaskBatch) -> None:
        self._batch = batch
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> object:
        if name == "y_query":
            raise AssertionError("the gate read y_query")
        self.read.add(name)
        return getattr(self._batch, name)


def _padded(kind: TaskKind) -> TaskBatch:
    return collate(specimens(kind))


def _unpadded(kind: TaskKind) -> TaskBatch:
    return collate([specimens(kind)[0]] * 2)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_every_field_of_a_padded_batch_passes_as_it_is(kind: TaskKind) -> None:
    """5.A: what the network sees is what the records say, in their types."""
    batch = _padded(kind)
    inputs = network_inputs(batch)
    for name in _ARRAYS:
        given, got = getattr(batch, name), getattr(inputs, name)
        assert got.dtype == torch.from_numpy(given).dtype and got.shape == given.shape, name
        assert np.array_equal(got.numpy(), given, equal_nan=given.dtype.kind == "f"), name
    others = {"num_classes", "label_mask", "has_padding"}
    assert {field.name for field in dataclasses.fields(NetworkInputs)} == {*_ARRAYS, *others}
    assert inputs.has_padding is True and network_inputs(_unpadded(kind)).has_padding is False
    assert inputs.label_mask is None, "records show every context label"


def test_the_number_of_classes_is_the_largest_of_the_batch() -> None:
    """Tables of two and three classes share a batch; regression has none."""
    batch = _padded(TaskKind.CLASSIFICATION)
    assert batch.num_classes.tolist() == [3, 2, 3]
    assert network_inputs(batch).num_classes == 3
    assert type(network_inputs(batch).num_classes) is int
    assert network_inputs(_padded(TaskKind.REGRESSION)).num_classes == 0
    assert network_inputs(dataclasses.replace(batch, num_classes=np.zeros(0, np.int32))).num_classes == 0


def test_a_mask_is_left_out_only_where_it_hides_nothing() -> None:
    """Each of the two for itself."""
    batch = _unpadded(TaskKind.CLASSIFICATION)
    inputs = network_inputs(batch)
    assert inputs.context_mask is None and inputs.query_mask is None
    for name, other in (("context_mask", "query_mask"), ("query_mask", "context_mask")):
        mask = getattr(batch, name).copy()
        mask[1, -1] = False
        inputs = network_inputs(dataclasses.replace(batch, **{name: mask}))
        assert np.array_equal(getattr(inputs, name).numpy(), mask) and getattr(inputs, other) is None


@pytest.mark.parametrize("make", [_padded, _unpadded])
@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_answers_are_not_read(kind: TaskKind, make: Callable[[TaskKind], TaskBatch]) -> None:
    """5.A: not even looked at; a batch whose answers raise on access passes."""
    batch = make(kind)
    sealed = _SealedBatch(batch)
    inputs = network_inputs(cast(TaskBatch, sealed))
    assert sealed.read == {*_ARRAYS, "num_classes"}
    assert inputs.x_query.shape == batch.x_query.shape
    with pytest.raises(AssertionError, match="y_query"):
        _ = sealed.y_query


def test_tensors_share_the_memory_of_the_records() -> None:
    """No copy of a batch is made on the CPU."""
    batch = _padded(TaskKind.REGRESSION)
    inputs = network_inputs(batch)
    for name in _ARRAYS:
        assert np.shares_memory(getattr(inputs, name).numpy(), getattr(batch, name)), name


def test_every_tensor_goes_to_the_device() -> None:
    """The device `meta` stands for an accelerator."""
    inputs = network_inputs(_padded(TaskKind.CLASSIFICATION), torch.device("meta"))
    assert {getattr(inputs, name).device.type for name in _ARRAYS} == {"meta"}
    assert network_inputs(_padded(TaskKind.CLASSIFICATION)).x_context.device.type == "cpu"
