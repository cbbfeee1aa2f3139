"""Stores: a folder of whole files, on a file system or in an object store, behind one interface.

A local folder writes by temporary name, fsync and rename, and is held by one process at a time. Any other place that
pyarrow reaches is named by a URI (`s3://bucket/path`, `gs://bucket/path`, `file:///path`): there a put is one act, and
there is no lock: whoever writes there writes files whose bytes depend on their names alone. No message shows
credentials.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import re
import secrets
import shutil
import time
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from pyarrow import fs

from tools import files, paths
from tools.failure import ExitCode, Failure

_CHUNK_BYTES = 2**20
_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")  # as `files.write_bytes` names them
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")

Signature = tuple[int, ...]  # the first number is the size


class Store(Protocol):
    """A folder of files that are whole or absent. `str(store)` names it for messages, without credentials."""

    location: str
    """What `open_store` makes the same store from, in this process or another."""
    is_remote: bool
    """Whether reads are downloads."""

    def __str__(self) -> str:
        """The folder, for messages."""

    def where(self, name: str) -> str:
        """A file, for messages."""

    def names(self) -> list[str]:
        """Sorted names of the files in it; empty where the folder is absent."""

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where it is absent."""

    def read(self, name: str) -> bytes:
        """All of a file. Raises FileNotFoundError."""

    def write(self, name: str, data: bytes) -> None:
        """Commits a file. Raises Failure: DISK_FULL, NOT_WRITABLE."""

    def remove(self, name: str) -> None:
        """Removes a file; no error where it is absent."""

    def open(self, name: str) -> pa.NativeFile:
        """Opens a file for reads at any place. Raises OSError."""

    def signature(self, name: str) -> Signature | None:
        """Equal as long as the file is the same; None where a change could pass unseen."""

    def free(self) -> int | None:
        """Bytes that are free there; None where there is no such number."""

    def check_writable(self, flag: str) -> None:
        """Proves that a file can be written. Raises Failure: NOT_WRITABLE, naming the flag."""

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Holds the store for this process where the store knows locks. Raises Failure: RUN_BUSY."""

    def remove_leftovers(self) -> None:
        """Removes what killed processes left half-written; only for the holder."""


def open_store(location: str | os.PathLike[str]) -> Store:
    """The store at a path or URI; nothing is read or written yet.

    Raises:
        Failure: BAD_FLAG for a URI that is not understood.
    """
    text = os.fspath(location)
    scheme = _URI.match(text)
    if not scheme:
        return FolderStore(pathlib.Path(text))
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
        if not path.strip("/"):
            raise ValueError("it names no bucket and no folder")
    except (pa.ArrowException, OSError, ValueError) as error:
        shown = without_secrets(text)
        reason = str(error).replace(text, shown).split("\n")[0]
        mend = "give a folder, or a URI such as s3://bucket/path, gs://bucket/path or file:///path"
        if shown != text:
            mend += "; in a key or secret write / as %2F"
        raise Failure(ExitCode.BAD_FLAG, f"{shown} cannot be opened ({reason}): {mend}") from None  # it quotes secrets
    return ObjectStore(filesystem, path=path, location=text)


def user_location(text: str) -> str:
    """What the user means: a URI as it is, a path against the folder that the user stands in."""
    return text if _URI.match(text) else str(paths.user_path(text))


def without_secrets(location: str) -> str:
    """A path as it is; a URI without user, password and query, even where their characters make it none."""
    place, _, query = location.partition("?")
    scheme, mark, rest = place.partition("://")
    if not mark or not _URI.match(location):
        return location
    authority = rest.partition("/")[0]
    if "@" in rest and (":" in authority or "@" in authority):
        rest = rest.rpartition("@")[2]
    elif ":" in authority and ("@" in query or not authority.rpartition(":")[2].isdigit()):
        rest = "…"
    return f"{scheme}://{rest}"


def split_location(location: str) -> tuple[str, str]:
    """The folder of a file, and the file's name in it; what a URI asks of its store stays with the folder."""
    place, mark, query = location.partition("?") if _URI.match(location) else (location, "", "")
    folder, slash, name = place.rpartition("/")
    return (folder or slash or ".") + mark + query, name


def sha256(store: Store, name: str, *, report: Callable[[int], object] = lambda count: None) -> str:
    """sha256 (hex) of a file, read in large pieces; `report` is called with the bytes of each.

    Raises:
        FileNotFoundError.
    """
    hasher, buffer = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    with store.open(name) as file:
        while count := file.readinto(buffer):
            hasher.update(view[:count])
            report(count)
    return hasher.hexdigest()


class FolderStore:
    """A folder of the file system."""

    is_remote = False
    _SETTLED_SECONDS = 2.0

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.location = str(path)

    def __str__(self) -> str:
        return str(self.path)

    def where(self, name: str) -> str:
        """The path."""
        return str(self.path / name)

    def names(self) -> list[str]:
        """All files but hidden ones."""
        if not self.path.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self.path) if entry.is_file() and entry.name[0] != ".")

    def size(self, name: str) -> int | None:
        """From the file system."""
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str) -> bytes:
        """All of a file."""
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Temporary name, fsync, rename, fsync of the folder."""
        files.write_bytes(self.path / name, data)

    def remove(self, name: str) -> None:
        """Unlinks."""
        (self.path / name).unlink(missing_ok=True)

    def open(self, name: str) -> pa.NativeFile:
        """Reads go through the page cache; nothing is mapped."""
        return pa.OSFile(str(self.path / name), "rb")

    def signature(self, name: str) -> Signature | None:
        """Inode, size and times, once the last change is older than any clock tick."""
        state = (self.path / name).stat()
        if time.time() - max(state.st_mtime, state.st_ctime) < self._SETTLED_SECONDS:
            return None
        return (state.st_size, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)

    def free(self) -> int:
        """Of the file system."""
        return _free(self.path)

    def check_writable(self, flag: str) -> None:
        """Creates the folder, and a file in it for a moment."""
        paths.writable_folder(self.path, flag=flag)

    def held(self) -> files.FolderLock:
        """The lock of the folder."""
        return files.FolderLock(self.path)

    def remove_leftovers(self) -> None:
        """Temporary files of killed processes: while the lock is held, nobody else writes here."""
        for left in self.path.glob(".*.tmp"):
            if _TEMPORARY.fullmatch(left.name):
                left.unlink(missing_ok=True)


class ObjectStore:
    """A path in any file system of pyarrow.

    Args:
        filesystem: where.
        path: the folder, or the prefix of the objects' keys.
        location: the URI that both came from.
    """

    is_remote = True
    _SETTLED_SECONDS = 120.0  # its clock is not ours
    _ABANDONED_SECONDS = 3600.0  # no file takes as long to write

    def __init__(self, filesystem: fs.FileSystem, *, path: str, location: str) -> None:
        self._filesystem, self._path = filesystem, path.rstrip("/")
        self._is_local = filesystem.type_name == "local"
        self.location = location

    def __str__(self) -> str:
        return without_secrets(self.location)

    def where(self, name: str) -> str:
        """The URI of an object."""
        return f"{str(self).rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """All objects right below the prefix."""
        selector = fs.FileSelector(self._path, allow_not_found=True)
        found = self._filesystem.get_file_info(selector)
        return sorted(info.base_name for info in found if info.is_file and not info.base_name.startswith("."))

    def size(self, name: str) -> int | None:
        """From the store's listing."""
        info = self._info(name)
        return info.size if info.is_file else None

    def read(self, name: str) -> bytes:
        """One get."""
        with self._filesystem.open_input_file(self._key(name)) as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """One put; behind file:// a rename, as in a folder."""
        if self._is_local:
            self._write_file(pathlib.Path(self._key(name)), data)
            return
        try:
            with self._filesystem.open_output_stream(self._key(name), buffer_size=None) as stream:
                stream.write(data)
        except OSError as error:
            raise self._refusal(self.where(name), error, needed=len(data)) from error

    def remove(self, name: str) -> None:
        """Deletes the object if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(self._key(name))

    def open(self, name: str) -> pa.NativeFile:
        """Reads are gets of ranges."""
        return self._filesystem.open_input_file(self._key(name))

    def signature(self, name: str) -> Signature | None:
        """Size and time of the last put, once that is surely over."""
        info = self._info(name)
        settled = info.mtime_ns is not None and time.time() - info.mtime_ns / 1e9 > self._SETTLED_SECONDS
        return (info.size, info.mtime_ns) if settled else None

    def free(self) -> int | None:
        """Of the file system behind file://."""
        return _free(pathlib.Path(self._path)) if self._is_local else None

    def check_writable(self, flag: str) -> None:
        """Puts an object and deletes it."""
        probe = f".writable-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self.write(probe, b"")
            self.remove(probe)
        except OSError as error:
            raise self._refusal(f"{flag} {self}", error, needed=0) from error
        except Failure as failure:
            raise Failure(failure.code, f"{flag} {failure.message}") from failure

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Nothing: object stores know no lock. Two writers of one set write the same bytes."""
        return contextlib.nullcontext()

    def remove_leftovers(self) -> None:
        """Behind file://, temporary files that are too old to be some other writer's; a put leaves nothing behind."""
        if not self._is_local:
            return
        for left in pathlib.Path(self._path).glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):  # another writer removes them too
                if _TEMPORARY.fullmatch(left.name) and time.time() - left.stat().st_mtime > self._ABANDONED_SECONDS:
                    left.unlink()

    def _write_file(self, path: pathlib.Path, data: bytes) -> None:
        try:
            files.write_bytes(path, data)
        except Failure as failure:
            what = failure.message.removeprefix(str(path))
            raise Failure(failure.code, f"{self.where(path.name)}{what}") from failure

    def _key(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _info(self, name: str) -> fs.FileInfo:
        return self._filesystem.get_file_info(self._key(name))

    @staticmethod
    def _refusal(what: str, error: OSError, *, needed: int) -> Failure:
        reason = " ".join(str(error).split())
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            mend = "free space or choose another place"
            return Failure(ExitCode.DISK_FULL, f"{what} needs {needed} bytes and has no room ({reason}): {mend}")
        mend = "give a place that you may write to"
        return Failure(ExitCode.NOT_WRITABLE, f"{what} is not writable ({reason}): {mend}")


def _free(path: pathlib.Path) -> int:
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free
