"""Shards: groups of tasks in Arrow files with hashes, written whole or not at all and verified when opened.

A shard set is a folder: part-00000.arrow (uncompressed IPC file, one record batch per group, so that a training batch
is a slice without padding), part-00000.json beside it (its hash, configuration and group shapes), and MANIFEST.json,
written last: a folder without it was never finished. Free of torch.
"""

import collections
import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Self

import numpy as np
import pyarrow as pa

from priors.group import TaskGroup
from priors.task import TaskKind
from tools import files
from tools.config import digest
from tools.failure import ExitCode, Failure

FORMAT_VERSION = 1
_KEPT_READERS = 8
_SCHEMA = pa.schema(
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSource:
    """What the bytes of every part are a pure function of, together with the part's index.

    Args:
        config: JSON value of the configuration that the tasks were drawn from.
        seed: the seed of the set.
        kind: what the tasks predict.
    """

    config: dict[str, Any]
    seed: int
    kind: TaskKind

    def digest(self) -> str:
        """sha256 (hex) that names the source."""
        return digest({"config": self.config, "seed": self.seed, "kind": self.kind, "format_version": FORMAT_VERSION})


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupEntry:
    """Where a group lies. Args: part, batch (its record batch), rows, features, count (its tasks)."""

    part: int
    batch: int
    rows: int
    features: int
    count: int


def part_name(index: int) -> str:
    """File name of a part without its suffix."""
    return f"part-{index:05d}"


def encode_part(groups: list[TaskGroup], *, source: ShardSource, index: int) -> bytes:
    """The bytes of one Arrow file: equal groups, source and index, equal bytes."""
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "config": json.dumps(source.config, sort_keys=True),
        "digest": source.digest(),
        "seed": str(source.seed),
        "kind": source.kind.value,
        "index": str(index),
    }
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for group in groups:
            writer.write_batch(_record_batch(group, schema=schema))
    return sink.getvalue().to_pybytes()


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


def write_part(folder: pathlib.Path, groups: list[TaskGroup], *, source: ShardSource, index: int) -> dict[str, Any]:
    """Commits one part: the Arrow file first, then the JSON that vouches for it.

    Returns:
        The part's entry as the manifest will hold it.

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE; neither file is then left half-written.
    """
    data = encode_part(groups, source=source, index=index)
    files.write_bytes(folder / f"{part_name(index)}.arrow", data)
    entry = {
        "format_version": FORMAT_VERSION,
        "source": source.digest(),
        "index": index,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "groups": [[group.rows, group.features, len(group)] for group in groups],
    }
    files.write_json(folder / f"{part_name(index)}.json", entry)
    return entry


def read_entry(folder: pathlib.Path, index: int) -> dict[str, Any] | None:
    """A committed part's entry, verified against its Arrow file; None where the part is absent or damaged.

    Raises:
        Failure: FORMAT_VERSION.
    """
    path = folder / f"{part_name(index)}.json"
    try:
        entry = json.loads(path.read_bytes())
        version, size, expected = entry["format_version"], entry["bytes"], entry["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    _check_version(path, version)
    data = folder / f"{part_name(index)}.arrow"
    whole = path.read_bytes() == _canonical(entry) and data.is_file() and data.stat().st_size == size
    return entry if whole and files.sha256_file(data) == expected else None


def write_set(folder: pathlib.Path, entries: list[dict[str, Any]], *, source: ShardSource) -> None:
    """Commits the whole set: writes MANIFEST.json."""
    body = {
        "format_version": FORMAT_VERSION,
        "config": source.config,
        "seed": source.seed,
        "kind": source.kind.value,
        "source": source.digest(),
        "num_tasks": sum(count for entry in entries for _, _, count in entry["groups"]),
        "parts": entries,
    }
    files.write_json(folder / files.MANIFEST, {**body, "digest": digest(body)})


class ShardSet:
    """A verified shard set, read group by group.

    Args:
        folder: where it lies.
        manifest: its verified manifest.
    """

    def __init__(self, folder: pathlib.Path, *, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.digest: str = manifest["digest"]
        self.kind = TaskKind(manifest["kind"])
        self.num_tasks: int = manifest["num_tasks"]
        self.groups = tuple(
            GroupEntry(part=entry["index"], batch=batch, rows=rows, features=features, count=count)
            for entry in manifest["parts"]
            for batch, (rows, features, count) in enumerate(entry["groups"])
        )
        self._readers: collections.OrderedDict[int, pa.ipc.RecordBatchFileReader] = collections.OrderedDict()

    @classmethod
    def open(cls, folder: pathlib.Path) -> Self:
        """Opens a finished set after checking the hash of every file.

        Raises:
            Failure: SHARD_MISSING for a set or file that is absent, and for one too many; SHARD_CORRUPT for damaged or
                swapped files, naming the file with the expected and found hash; FORMAT_VERSION.
        """
        manifest = read_manifest(folder)
        known = {files.MANIFEST, "lock"}
        for entry in manifest["parts"]:
            known |= {f"{part_name(entry['index'])}.arrow", f"{part_name(entry['index'])}.json"}
            _verify_part(folder, entry)
        for path in sorted(folder.iterdir()):
            if path.name not in known and not path.name.startswith("."):
                mend = "it is not in the manifest: move it away"
                raise Failure(ExitCode.SHARD_MISSING, f"shard set {folder} holds an extra file {path.name}: {mend}")
        return cls(folder, manifest=manifest)

    @property
    def num_bytes(self) -> int:
        """Bytes of the Arrow files."""
        return sum(entry["bytes"] for entry in self.manifest["parts"])

    def group(self, index: int) -> TaskGroup:
        """Reads group `index`; every array is writable memory of its own."""
        entry = self.groups[index]
        batch = self._reader(entry.part).get_batch(entry.batch)
        shape = (entry.count, entry.rows)
        return TaskGroup(
            x=_owned(batch, "x", shape=(*shape, entry.features)),
            y=_owned(batch, "y", shape=shape),
            column_kinds=_owned(batch, "column_kinds", shape=(entry.count, entry.features)),
            level_counts=_owned(batch, "level_counts", shape=(entry.count, entry.features)),
            num_classes=batch.column("num_classes").to_numpy().copy(),
            families=tuple(batch.column("family").to_pylist()),
            seeds=batch.column("seed").to_numpy().copy(),
            parameters=tuple(batch.column("parameters").to_pylist()),
            kind=self.kind,
        )

    def _reader(self, part: int) -> pa.ipc.RecordBatchFileReader:
        """An open file per part, the latest few kept; read through the page cache, never mapped."""
        reader = self._readers.pop(part, None)
        if reader is None:
            path = self.folder / f"{part_name(part)}.arrow"
            try:
                reader = pa.ipc.open_file(pa.OSFile(str(path), "rb"))
            except (OSError, pa.ArrowInvalid) as error:
                raise Failure(ExitCode.SHARD_CORRUPT, f"shard {path} changed after it was verified: {error}") from error
        self._readers[part] = reader
        if len(self._readers) > _KEPT_READERS:
            self._readers.popitem(last=False)
        return reader


def _owned(batch: pa.RecordBatch, name: str, *, shape: tuple[int, ...]) -> np.ndarray:
    return batch.column(name).flatten().to_numpy(zero_copy_only=True).reshape(shape).copy()


def _canonical(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _check_version(path: pathlib.Path, version: Any) -> None:
    if version != FORMAT_VERSION:
        mend = f"this version reads {FORMAT_VERSION}; generate the shards anew in another folder"
        raise Failure(ExitCode.FORMAT_VERSION, f"shard file {path} has format version {version}: {mend}")


def read_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """A set's manifest, checked against its own digest.

    Raises:
        Failure: SHARD_MISSING where there is none; SHARD_CORRUPT; FORMAT_VERSION.
    """
    path = folder / files.MANIFEST
    if not path.is_file():
        mend = "run //priors:generate with this --out (it goes on where it stopped)"
        what = f"{folder} holds no finished shard set ({files.MANIFEST} is absent)"
        raise Failure(ExitCode.SHARD_MISSING, f"{what}: {mend}")
    data = path.read_bytes()
    try:
        manifest = json.loads(data)
        body = {name: value for name, value in manifest.items() if name != "digest"}
        version, expected = manifest["format_version"], manifest["digest"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"shard manifest {path} is not readable"
        raise Failure(ExitCode.SHARD_CORRUPT, f"{what}: generate the set anew") from error
    _check_version(path, version)
    found = digest(body)
    if found != expected or data != _canonical(manifest):
        hashes = f"expected digest {str(expected)[:16]}, got {found[:16]}"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard manifest {path} is damaged ({hashes}): generate the set anew")
    return manifest


def _verify_part(folder: pathlib.Path, entry: dict[str, Any]) -> None:
    name = part_name(entry["index"])
    path = folder / f"{name}.arrow"
    mend = "run //priors:generate with this --out to replace it"
    if not path.is_file():
        raise Failure(ExitCode.SHARD_MISSING, f"shard {path} is missing: {mend}")
    size = path.stat().st_size
    found = files.sha256_file(path) if size == entry["bytes"] else None
    if found != entry["sha256"]:
        wanted = f"expected sha256 {entry['sha256'][:16]} in {entry['bytes']} bytes"
        got = f"got {found[:16]}" if found else f"got {size} bytes"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard {path} is damaged ({wanted}, {got}): {mend}")
    beside = folder / f"{name}.json"
    if not beside.is_file():
        raise Failure(ExitCode.SHARD_MISSING, f"shard file {beside} is missing: {mend}")
    wanted = hashlib.sha256(_canonical(entry)).hexdigest()
    got = files.sha256_file(beside)
    if got != wanted:
        hashes = f"expected sha256 {wanted[:16]}, got {got[:16]}"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard file {beside} is damaged ({hashes}): {mend}")
