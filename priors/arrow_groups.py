"""Groups as Arrow: one record batch per group, so that a training batch is a slice without padding. Free of torch."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from priors.group import TaskGroup
from priors.task import TaskKind

SCHEMA = pa.schema(
    [
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("features", pa.int32(), nullable=False),
        pa.field("x", pa.list_(pa.float32()), nullable=False),
        pa.field("y", pa.list_(pa.float32()), nullable=False),
        pa.field("column_kinds", pa.list_(pa.int8()), nullable=False),
        pa.field("level_counts", pa.list_(pa.int32()), nullable=False),
        pa.field("num_classes", pa.int32(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("parameters", pa.string(), nullable=False),
    ]
)


def encode_groups(groups: list[TaskGroup], *, metadata: Mapping[str, str]) -> bytes:
    """The bytes of an uncompressed Arrow IPC file: equal groups and metadata, equal bytes."""
    schema = SCHEMA.with_metadata(dict(metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for group in groups:
            writer.write_batch(_record_batch(group, schema=schema))
    return sink.getvalue().to_pybytes()


def decode_group(batch: pa.RecordBatch, *, kind: TaskKind) -> TaskGroup:
    """The group of a record batch; every array is writable memory of its own."""
    count = batch.num_rows
    rows, features = batch.column("rows")[0].as_py(), batch.column("features")[0].as_py()
    return TaskGroup(
        x=_owned(batch, "x", shape=(count, rows, features)),
        y=_owned(batch, "y", shape=(count, rows)),
        column_kinds=_owned(batch, "column_kinds", shape=(count, features)),
        level_counts=_owned(batch, "level_counts", shape=(count, features)),
        num_classes=batch.column("num_classes").to_numpy().copy(),
        families=tuple(batch.column("family").to_pylist()),
        seeds=batch.column("seed").to_numpy().copy(),
        parameters=tuple(batch.column("parameters").to_pylist()),
        kind=kind,
    )


def _record_batch(group: TaskGroup, *, schema: pa.Schema) -> pa.RecordBatch:
    count = len(group)
    columns = [
        pa.array(np.full(count, group.rows, np.int32)),
        pa.array(np.full(count, group.features, np.int32)),
        _lists(group.x),
        _lists(group.y),
        _lists(group.column_kinds),
        _lists(group.level_counts),
        pa.array(group.num_classes),
        pa.array(group.families, pa.string()),
        pa.array(group.seeds),
        pa.array(group.parameters, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _lists(values: np.ndarray) -> pa.ListArray:
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    offsets = np.arange(len(flat) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.reshape(-1)))


def _owned(batch: pa.RecordBatch, name: str, *, shape: tuple[int, ...]) -> np.ndarray:
    return batch.column(name).flatten().to_numpy(zero_copy_only=True).reshape(shape).copy()
