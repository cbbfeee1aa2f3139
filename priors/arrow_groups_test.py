"""Tests of priors.arrow_groups: groups come back from Arrow as they were, in memory of their own."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from priors.arrow_groups import SCHEMA, decode_group, encode_groups
from priors.group import TaskGroup
from priors.task import TaskKind

ARRAYS = ("x", "y", "column_kinds", "level_counts", "num_classes", "seeds")


def make_group(rows: int, features: int, *, count: int) -> TaskGroup:
    """A group of random numbers with holes and infinities."""
    generator = np.random.default_rng(rows)
    x = generator.normal(size=(count, rows, features)).astype(np.float32)
    x[0, 0, 0], x[-1, -1, -1] = np.nan, -np.inf
    return TaskGroup(
        x=x,
        y=generator.integers(0, 3, (count, rows)).astype(np.float32),
        column_kinds=generator.integers(0, 3, (count, features)).astype(np.int8),
        level_counts=generator.integers(0, 300, (count, features)).astype(np.int32),
        num_classes=np.full(count, 3, np.int32),
        families=tuple(f"family {i}" for i in range(count)),
        seeds=np.arange(2**62, 2**62 + count),
        parameters=tuple(f'{{"number": {i}}}' for i in range(count)),
        kind=TaskKind.CLASSIFICATION,
    )


def decoded(data: bytes) -> list[TaskGroup]:
    """The groups of a file."""
    reader = pa.ipc.open_file(data)
    return [decode_group(reader.get_batch(i), kind=TaskKind.CLASSIFICATION) for i in range(reader.num_record_batches)]


@pytest.mark.parametrize("shapes", [((6, 3, 4),), ((6, 3, 4), (8, 1, 1), (33, 70, 2))])
def test_groups_come_back_as_they_were(shapes: tuple[tuple[int, int, int], ...]) -> None:
    groups = [make_group(rows, features, count=count) for rows, features, count in shapes]
    found = decoded(encode_groups(groups, metadata={}))
    assert len(found) == len(groups)
    for want, got in zip(groups, found, strict=True):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
            assert getattr(got, name).dtype == getattr(want, name).dtype
        for field in {field.name for field in dataclasses.fields(want)} - set(ARRAYS):
            assert getattr(got, field) == getattr(want, field)


def test_arrays_are_writable_memory_of_their_own() -> None:
    """D4: what is written into a group does not reach the bytes that it came from."""
    data = encode_groups([make_group(6, 3, count=4)], metadata={})
    kept = bytes(data)
    (group,) = decoded(data)
    for name in ARRAYS:
        getattr(group, name)[...] = 7
    assert data == kept
    np.testing.assert_array_equal(decoded(data)[0].seeds, np.arange(2**62, 2**62 + 4))


def test_a_view_of_a_group_writes_only_what_it_shows() -> None:
    whole = make_group(6, 3, count=40)
    data = encode_groups([whole.part(3, 5)], metadata={})
    np.testing.assert_array_equal(decoded(data)[0].x, whole.x[3:5])
    assert len(data) < len(encode_groups([whole], metadata={})) / 2


def test_equal_groups_and_metadata_give_equal_bytes() -> None:
    """D2: nothing of the time or place of writing is in them."""
    first, second = (encode_groups([make_group(6, 3, count=4)], metadata={"a": "b"}) for _ in range(2))
    assert first == second != encode_groups([make_group(6, 3, count=4)], metadata={"a": "c"})
    assert pa.ipc.open_file(first).schema.equals(SCHEMA)
    assert pa.ipc.open_file(first).schema.metadata == {b"a": b"b"}
