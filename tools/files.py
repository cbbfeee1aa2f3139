"""Files that are whole or absent: atomic writes, hash manifests, and the lock of an output folder (D1, D6, T1)."""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Self

from tools.failure import ExitCode, Failure

MANIFEST = "MANIFEST.json"


def sha256_file(path: pathlib.Path) -> str:
    """sha256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: pathlib.Path, data: bytes) -> None:
    """Writes a file so that a reader sees all of it or none: temporary name, fsync, rename, fsync of the folder.

    Raises:
        Failure: DISK_FULL, with the bytes needed and free; NOT_WRITABLE for a refused write.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _write_failure(path, error, needed=len(data)) from error


def _write_failure(path: pathlib.Path, error: OSError, *, needed: int) -> Failure:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        there = next(folder for folder in path.parents if folder.exists())
        room = f"needs {needed} bytes and {shutil.disk_usage(there).free} are free"
        return Failure(ExitCode.DISK_FULL, f"{path} {room}: free space or choose another folder")
    mend = "give a folder that you may write to"
    return Failure(ExitCode.NOT_WRITABLE, f"{path} is not writable ({error.strerror}): {mend}")


def check_room(folder: pathlib.Path, *, needed: int, what: str) -> None:
    """Refuses what the disk of `folder` has no room for, before anything is written.

    Args:
        folder: where it will lie; it need not exist yet.
        needed: bytes.
        what: the noun for the message, such as "the checkpoint of step 10".

    Raises:
        Failure: DISK_FULL, with the bytes needed and free.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        room = f"needs {needed} bytes ({needed / 1e6:.1f} MB) and {free} bytes ({free / 1e6:.1f} MB) are free"
        raise Failure(ExitCode.DISK_FULL, f"{what} {room} in {folder}: free space or choose another --root")


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes `value` as indented JSON with sorted keys, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def append_json_line(path: pathlib.Path, record: Mapping[str, Any]) -> None:
    """Appends one JSON object as a line of its own, also behind a line that a crash has cut short.

    Raises:
        Failure: DISK_FULL, NOT_WRITABLE.
    """
    line = json.dumps(record) + "\n"
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode())
    except OSError as error:
        raise _write_failure(path, error, needed=len(line)) from error


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, empty without one; what is no object, as after a crash, is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line.decode()))
    return [record for record in found if isinstance(record, dict)]


def sync_folder(folder: pathlib.Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockHolder:
    """Who holds an output folder."""

    host: str
    pid: int
    boot_id: str
    started: str
    pid_namespace: str = ""

    @classmethod
    def me(cls) -> Self:
        """This process."""
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=_boot_id(),
            started=_start_time(os.getpid()),
            pid_namespace=pid_namespace(),
        )

    def is_dead(self) -> bool:
        """True only when it surely is: same host, and the machine restarted or the process is gone or another one."""
        if self.host != socket.gethostname():
            return False
        if self.boot_id != _boot_id():
            return True
        return self.pid_namespace == pid_namespace() and self.started != _start_time(self.pid)


class FolderLock:
    """Holds `folder` for one process; `with FolderLock(folder): ...`.

    The lock file is created with O_EXCL. A lock left by a process of this host that no longer runs is taken over;
    one of another host is never judged dead from here.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / "lock"

    def __enter__(self) -> Self:
        body = json.dumps(dataclasses.asdict(LockHolder.me())).encode()
        staged = self._path.with_name(f".lock.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(body)
            with _one_at_a_time(self._path.parent):
                self._claim(staged)
        except OSError as error:
            raise _write_failure(self._path, error, needed=len(body)) from error
        finally:
            with contextlib.suppress(OSError):
                staged.unlink()
        return self

    def _claim(self, staged: pathlib.Path) -> None:
        for _ in range(3):
            try:
                os.link(staged, self._path)
                return
            except FileExistsError:
                holder = self.holder()
                if holder is not None and not holder.is_dead():
                    raise Failure(
                        ExitCode.RUN_BUSY,
                        f"{self._path.parent} is held by process {holder.pid} on {holder.host}: wait for it to end, "
                        f"or choose another name (if that machine is gone, delete {self._path})",
                    ) from None
                self._path.unlink(missing_ok=True)
        raise Failure(ExitCode.RUN_BUSY, f"{self._path.parent} is being claimed by several processes: try again")

    def holder(self) -> LockHolder | None:
        """Who holds the folder, or None when nobody does."""
        try:
            return LockHolder(**json.loads(self._path.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def __exit__(self, *exc_info: object) -> None:
        if self.holder() == LockHolder.me():
            self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def _one_at_a_time(folder: pathlib.Path) -> Iterator[None]:
    """Keeps two processes of this host from judging one stale lock at once, and deleting each other's new one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # file systems without flock
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def pid_namespace() -> str:
    """Which processes can be seen from here, as Linux names it: a container has its own numbers. Elsewhere ""."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _boot_id() -> str:
    path = pathlib.Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start_time(pid: int) -> str:
    """Clock ticks after boot at which `pid` started (a reused pid differs); empty when it does not run."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def write_manifest(folder: pathlib.Path, *, format_version: int, extra: dict[str, Any] | None = None) -> None:
    """Commits a folder: lists every file in it with size and sha256. Written last, so it marks the folder whole."""
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (MANIFEST, "lock") and not path.name.startswith(".")
    }
    write_json(folder / MANIFEST, {"format_version": format_version, "files": files, **(extra or {})})


def verify_manifest(folder: pathlib.Path, *, format_version: int, code: ExitCode, what: str) -> dict[str, Any]:
    """Reads a folder's manifest and checks every file against it.

    Args:
        folder: the committed folder.
        format_version: the version that this code reads.
        code: the exit code for damage.
        what: the noun for messages, such as "checkpoint".

    Returns:
        The manifest.

    Raises:
        Failure: `code` for a missing manifest, a missing file, a wrong size or hash; FORMAT_VERSION.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        version = manifest["format_version"]
        files = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(code, f"{what} {folder} has no readable {MANIFEST}: it was never finished; delete it") from error
    if version != format_version:
        mend = f"this version reads {format_version}; make it anew"
        raise Failure(ExitCode.FORMAT_VERSION, f"{what} {folder} has format version {version}: {mend}")
    for name, (size, digest) in files.items():
        file = folder / name
        if not file.is_file():
            raise Failure(code, f"{what} file {file} is missing: restore it or delete {folder}")
        found = sha256_file(file) if file.stat().st_size == size else f"{file.stat().st_size} bytes"
        if found != digest:
            wanted = f"expected sha256 {digest[:16]} ({size} bytes), got {found[:24]}"
            raise Failure(code, f"{what} file {file} is damaged ({wanted}): restore it or delete {folder}")
    return manifest
