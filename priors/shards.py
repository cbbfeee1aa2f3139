"""Shards: groups of tasks in Arrow files with hashes, written whole or not at all and verified when opened.

A shard set is a folder: part-00000.arrow (uncompressed IPC file, one record batch per group, so that a training batch
is a slice without padding), part-00000.json beside it (its hash, configuration and group shapes), and MANIFEST.json,
written last: a folder without it was never finished. The folder is any store: a local one, or one of objects. Free of
torch.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

import pyarrow as pa

from priors.arrow_groups import decode_group, encode_groups
from priors.group import TaskGroup
from priors.task import TaskKind
from tools import stores
from tools.config import digest
from tools.failure import ExitCode, Failure
from tools.files import MANIFEST
from tools.stores import Store

Location = Store | str | os.PathLike[str]
Entry = dict[str, Any]

FORMAT_VERSION = 2
_PART_FILE = re.compile(r"part-(\d{5,})\.(arrow|json)")
_KEPT_READERS = 8
_READING_THREADS = 8
_hashed: dict[tuple[str, str], stores.Signature] = {}  # file and sha256 → what the file looked like when it was hashed


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
    return encode_groups(groups, metadata=metadata)


def as_store(location: Location) -> Store:
    """The store that a path, a URI or a store means."""
    return stores.open_store(location) if isinstance(location, (str, os.PathLike)) else location


def part_files(index: int) -> tuple[str, str]:
    """Names of a part's two files: data, and the entry that vouches for it."""
    return f"{part_name(index)}.arrow", f"{part_name(index)}.json"


def our_files(store: Store) -> list[str]:
    """Names of all files in a store that belong to some shard set, the manifest first."""
    names = store.names()
    return [name for name in names if name == MANIFEST] + [name for name in names if _PART_FILE.fullmatch(name)]


def write_part(
    folder: Location,
    groups: list[TaskGroup],
    *,
    source: ShardSource,
    index: int,
    drawn: Mapping[str, int] | None = None,
    rejected: Mapping[str, int] | None = None,
    machine: str = "",
) -> Entry:
    """Commits one part: the Arrow file first, then the JSON that vouches for it.

    Args:
        folder: path, URI or store.
        groups: its tasks.
        source: what they are a function of, with `index`.
        index: of the part.
        drawn: family to the number of tasks that were drawn for this part.
        rejected: family to the number of those that the filter rejected.
        machine: what the floats may depend on beside the source; outside every digest.

    Returns:
        The part's entry as the manifest will hold it.

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE; neither file is then left half-written.
    """
    store = as_store(folder)
    data = encode_part(groups, source=source, index=index)
    data_name, entry_name = part_files(index)
    store.write(data_name, data)
    entry = {
        "format_version": FORMAT_VERSION,
        "source": source.digest(),
        "index": index,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "groups": [[group.rows, group.features, len(group)] for group in groups],
        "drawn": dict(drawn or {}),
        "rejected": dict(rejected or {}),
        "machine": machine,
    }
    entry["checksum"] = digest(entry)
    store.write(entry_name, _canonical(entry))
    return entry


def claimed_entries(store: Store) -> dict[int, Entry]:
    """The entries that lie in a store, by index: legible ones of any source and version, not checked against data."""
    indices = [int(found[1]) for name in store.names() if (found := _PART_FILE.fullmatch(name)) and found[2] == "json"]
    with concurrent.futures.ThreadPoolExecutor(_READING_THREADS) as pool:
        entries = pool.map(functools.partial(_claimed_entry, store), indices)
        return {index: entry for index, entry in zip(indices, entries, strict=True) if entry}


def _claimed_entry(store: Store, index: int) -> Entry | None:
    data = store.read(part_files(index)[1])
    try:
        entry = json.loads(data)
        whole = {"format_version", "source", "index"} <= set(entry) and entry["index"] == index
        if entry["format_version"] == FORMAT_VERSION:
            whole &= entry["checksum"] == digest({name: value for name, value in entry.items() if name != "checksum"})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if whole and data == _canonical(entry) else None


def is_whole(store: Store, entry: Entry) -> bool:
    """Whether the data of an entry is there, by its hash; in a store of objects by its size alone, without a download.

    There an entry is put after its data, and a put is one act: `//priors:verify` looks at every byte.
    """
    name = part_files(entry["index"])[0]
    if store.size(name) != entry["bytes"]:
        return False
    return store.is_remote or _found_sha256(store, name, expected=entry["sha256"]) == entry["sha256"]


def encode_manifest(entries: list[Entry], *, source: ShardSource) -> bytes:
    """The bytes of MANIFEST.json. Its digest names the tasks, wherever they were made; its checksum vouches for all."""
    body = {
        "format_version": FORMAT_VERSION,
        "config": source.config,
        "seed": source.seed,
        "kind": source.kind.value,
        "source": source.digest(),
        "num_tasks": sum(count for entry in entries for _, _, count in entry["groups"]),
        "drawn": _summed([entry["drawn"] for entry in entries]),
        "rejected": _summed([entry["rejected"] for entry in entries]),
        "parts": entries,
    }
    named = {**body, "digest": _digest_of_tasks(body)}
    return _canonical({**named, "checksum": digest(named)})


def write_set(folder: Location, entries: list[Entry], *, source: ShardSource) -> None:
    """Commits the whole set: writes MANIFEST.json."""
    as_store(folder).write(MANIFEST, encode_manifest(entries, source=source))


def _summed(counts: list[Mapping[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for part in counts:
        total.update(part)
    return dict(total)


def _digest_of_tasks(body: Mapping[str, Any]) -> str:
    elsewhere = {"machine", "checksum"}
    parts = [{name: value for name, value in entry.items() if name not in elsewhere} for entry in body["parts"]]
    return digest({**body, "parts": parts})


class ShardSet:
    """A verified shard set, read group by group.

    Args:
        folder: where it lies: a path, a URI or a store.
        manifest: its verified manifest.
    """

    def __init__(self, folder: Location, *, manifest: dict[str, Any]) -> None:
        self._store = as_store(folder)
        self.folder: str = self._store.location
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
    def open(
        cls,
        folder: Location,
        *,
        verified: Collection[int] = (),
        threads: int = 1,
        report: Callable[[int], object] = lambda count: None,
    ) -> Self:
        """Opens a finished set after checking the hash of every file.

        A file is hashed once in a process: it is taken for the same as long as size, times and inode are.

        Args:
            folder: a path, a URI such as s3://bucket/path, or a store.
            verified: parts whose bytes this process has just written or hashed.
            threads: files that are hashed at once.
            report: called with the bytes of data that were checked since the last call; from any thread.

        Raises:
            Failure: SHARD_MISSING for a set or file that is absent, and for a part too many; SHARD_CORRUPT for damaged
                or swapped files, naming the file with the expected and found hash; FORMAT_VERSION.
        """
        store = as_store(folder)
        manifest = read_manifest(store)
        known = {name for entry in manifest["parts"] for name in part_files(entry["index"])}
        for name in our_files(store):
            if name not in known and name != MANIFEST:
                mend = "it is not in the manifest: move it away"
                raise Failure(ExitCode.SHARD_MISSING, f"shard set {store} holds an extra file {name}: {mend}")
        verify = functools.partial(_verify_part, store, verified=frozenset(verified), report=report)
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(verify, manifest["parts"]):
                pass
        return cls(store, manifest=manifest)

    @property
    def num_bytes(self) -> int:
        """Bytes of the Arrow files."""
        return sum(entry["bytes"] for entry in self.manifest["parts"])

    def group(self, index: int) -> TaskGroup:
        """Reads group `index`; every array is writable memory of its own."""
        entry = self.groups[index]
        return decode_group(self._reader(entry.part).get_batch(entry.batch), kind=self.kind)

    def _reader(self, part: int) -> pa.ipc.RecordBatchFileReader:
        """An open file per part, the latest few kept; read through the page cache, never mapped."""
        reader = self._readers.pop(part, None)
        if reader is None:
            name = part_files(part)[0]
            try:
                reader = pa.ipc.open_file(self._store.open(name))
            except (OSError, pa.ArrowInvalid) as error:
                what = f"shard {self._store.where(name)} changed after it was verified: {error}"
                raise Failure(ExitCode.SHARD_CORRUPT, what) from error
        self._readers[part] = reader
        if len(self._readers) > _KEPT_READERS:
            self._readers.popitem(last=False)
        return reader


def _canonical(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _check_version(where: str, version: Any) -> None:
    if version != FORMAT_VERSION:
        mend = f"this version reads {FORMAT_VERSION}; generate the shards anew (//priors:generate --anew)"
        raise Failure(ExitCode.FORMAT_VERSION, f"shard file {where} has format version {version}: {mend}")


def read_manifest(folder: Location) -> dict[str, Any]:
    """A set's manifest, checked against its own digest and checksum.

    Raises:
        Failure: SHARD_MISSING where there is none; SHARD_CORRUPT; FORMAT_VERSION.
    """
    store = as_store(folder)
    try:
        data = store.read(MANIFEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        mend = "run //priors:generate with this --out (it goes on where it stopped)"
        what = f"{store} holds no finished shard set ({MANIFEST} is absent)"
        raise Failure(ExitCode.SHARD_MISSING, f"{what}: {mend}") from error
    except OSError as error:
        reason = " ".join(str(error).split())
        raise Failure(ExitCode.NOT_FOUND, f"{store.where(MANIFEST)} cannot be read: {reason}") from error
    return parse_manifest(data, where=store.where(MANIFEST))


def parse_manifest(data: bytes, *, where: str) -> dict[str, Any]:
    """The manifest that `data` holds.

    Raises:
        Failure: SHARD_CORRUPT, FORMAT_VERSION; both name `where` it lies.
    """
    try:
        manifest = json.loads(data)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        what = f"shard manifest {where} is not readable"
        raise Failure(ExitCode.SHARD_CORRUPT, f"{what}: run //priors:generate with this --out to replace it") from error
    _check_version(where, version)
    body = {name: value for name, value in manifest.items() if name != "checksum"}
    expected, found = str(manifest.get("checksum")), digest(body)
    if found != expected or data != _canonical(manifest):
        hashes = f"expected digest {expected[:16]}, got {found[:16]}"
        mend = "run //priors:generate with this --out to replace it"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard manifest {where} is damaged ({hashes}): {mend}")
    return manifest


def _verify_part(store: Store, entry: Entry, *, verified: Collection[int], report: Callable[[int], object]) -> None:
    data_name, entry_name = part_files(entry["index"])
    replaced = "run //priors:generate with this --out to replace it"
    size = store.size(data_name)
    if size is None:
        raise Failure(ExitCode.SHARD_MISSING, f"shard {store.where(data_name)} is missing: {replaced}")
    mend = f"delete it and {replaced}" if store.is_remote else replaced
    wanted, whole = entry["sha256"], size == entry["bytes"]
    trusted = whole and entry["index"] in verified
    found = wanted if trusted else _found_sha256(store, data_name, expected=wanted, report=report) if whole else None
    if found != wanted:
        got = f"got {found[:16]}" if found else f"got {size} bytes"
        damage = f"is damaged (expected sha256 {wanted[:16]} in {entry['bytes']} bytes, {got})"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard {store.where(data_name)} {damage}: {mend}")
    try:
        beside = store.read(entry_name)
    except FileNotFoundError as error:
        raise Failure(ExitCode.SHARD_MISSING, f"shard file {store.where(entry_name)} is missing: {replaced}") from error
    if beside != _canonical(entry):
        hashes = [hashlib.sha256(data).hexdigest()[:16] for data in (_canonical(entry), beside)]
        damage = f"is damaged (expected sha256 {hashes[0]}, got {hashes[1]})"
        raise Failure(ExitCode.SHARD_CORRUPT, f"shard file {store.where(entry_name)} {damage}: {mend}")


def _found_sha256(
    store: Store, name: str, *, expected: str, report: Callable[[int], object] = lambda count: None
) -> str:
    """The hash of a file; a file that had the expected one in this process, and is the same, is not read again."""
    key, signature = (store.where(name), expected), store.signature(name)
    if signature is not None and _hashed.get(key) == signature:
        report(signature[0])
        return expected
    found = stores.sha256(store, name, report=report)
    if signature is not None and found == expected:
        _hashed[key] = signature
    return found
