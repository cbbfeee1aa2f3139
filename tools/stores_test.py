"""Tests of tools/stores.py: what a folder and an object store have in common, and who may write there."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import tempfile
import time
import types
from collections.abc import Callable, Iterator

import pytest

from tools import files, stores
from tools.failure import ExitCode, Failure

_DAY_SECONDS = 86400
_NOBODY_IS_NOT_HERE = 99


@pytest.fixture(name="store", params=["folder", "objects"])
def _store(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> stores.Store:
    """A store below a folder that does not exist yet, by either path."""
    return stores.open_store(tmp_path / "new" if request.param == "folder" else f"file://{tmp_path}/new")


def refusal(call: Callable[[], object]) -> Failure:
    """The one line that a call is refused with."""
    with pytest.raises(Failure) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Makes writes beyond `size` bytes fail, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_files_come_back_as_they_were_written(store: stores.Store) -> None:
    assert (store.names(), store.size("a")) == ([], None)
    data = os.urandom(10_000_001)
    store.write("b", b"old")
    store.write("b", data)
    store.write("a", b"")
    assert (store.names(), store.size("b"), store.read("b")) == (["a", "b"], len(data), data)
    seen: list[int] = []
    assert stores.sha256(store, "b", report=seen.append) == hashlib.sha256(data).hexdigest()
    assert sum(seen) == len(data)
    with store.open("b") as file:
        file.seek(500)
        assert file.read(5) == data[500:505]
    store.remove("b")
    store.remove("b")
    assert store.names() == ["a"]
    again = stores.open_store(store.location)
    assert again.read("a") == b"" and again.where("a").endswith("/new/a")
    with pytest.raises(FileNotFoundError):
        store.read("b")


def test_hidden_files_and_folders_are_no_files(store: stores.Store, tmp_path: pathlib.Path) -> None:
    store.write("a", b"1")
    (tmp_path / "new" / ".hidden").touch()
    (tmp_path / "new" / "below").mkdir()
    assert store.names() == ["a"]


def test_a_signature_changes_with_the_file_and_is_none_while_a_change_could_pass_unseen(
    store: stores.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("a", b"1")
    assert store.signature("a") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1000)
    first = store.signature("a")
    assert first is not None and first == store.signature("a") and first[0] == 1
    store.write("a", b"22")
    assert store.signature("a") != first


def test_a_reader_sees_a_file_whole_or_not_at_all(
    store: stores.Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: what is renamed into place is on the disk."""
    synced: list[int] = []
    sync, rename = os.fsync, pathlib.Path.replace

    def replace(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        assert (path.read_bytes(), target.read_bytes(), len(synced)) == (b"new", b"old", 1)
        return rename(path, target)

    store.write("a", b"old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or sync(descriptor))
    monkeypatch.setattr(pathlib.Path, "replace", replace)
    store.write("a", b"new")
    assert len(synced) == 2 and [path.name for path in (tmp_path / "new").iterdir()] == ["a"]


def test_a_full_disk_has_its_own_code_and_says_what_is_needed(store: stores.Store) -> None:
    """D5: nothing is left of the file that did not fit."""
    store.write("a", b"kept")
    with file_size_limit(1000):
        failure = refusal(lambda: store.write("b", bytes(5000)))
    assert failure.code is ExitCode.DISK_FULL and "5000 bytes" in failure.message and "/new/b" in failure.message
    assert store.read("a") == b"kept"
    assert "are free" in failure.message and store.names() == ["a"]


def test_a_place_that_cannot_be_written_is_named_with_the_flag(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    for location in (str(tmp_path / "file" / "below"), f"file://{tmp_path}/file/below"):
        failure = refusal(lambda location=location: stores.open_store(location).check_writable("--out"))
        assert failure.code is ExitCode.NOT_WRITABLE and failure.message.startswith(f"--out {location}")


def test_a_probe_leaves_nothing(store: stores.Store, tmp_path: pathlib.Path) -> None:
    store.check_writable("--out")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_read_only_folder_is_refused() -> None:
    """Run as nobody, since root writes everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        path.chmod(0o555)
        child = os.fork()
        if child == 0:
            os._exit(_refused_as_nobody(path))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        path.chmod(0o755)
        assert list(path.iterdir()) == []
    if code == _NOBODY_IS_NOT_HERE:
        pytest.skip("root cannot become another user in this sandbox")
    assert code == ExitCode.NOT_WRITABLE


def _refused_as_nobody(path: pathlib.Path) -> int:
    """In a forked process: the code that a probe is refused with by a user who is not root."""
    try:
        if os.geteuid() == 0:
            os.setuid(65534)
    except OSError:
        return _NOBODY_IS_NOT_HERE
    try:
        stores.open_store(path).check_writable("--out")
    except Failure as failure:
        return int(failure.code)
    return 0


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: pathlib.Path) -> None:
    names = [".part-00001.arrow.123.0123abcd.tmp", ".mine.tmp", ".lock.77.0123abcd", "part.tmp"]
    for name in names:
        (tmp_path / name).touch()
    stores.open_store(tmp_path).remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_what_no_living_writer_can_have_left_is_removed_behind_a_uri(tmp_path: pathlib.Path) -> None:
    names = [".a.12.0123abcd.tmp", ".b.12.0123abcd.tmp", ".mine.tmp"]
    for name in names:
        (tmp_path / name).touch()
    for name in names[1:]:
        os.utime(tmp_path / name, (0, time.time() - _DAY_SECONDS))
    stores.open_store(f"file://{tmp_path}").remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], names[2]]


def test_what_is_free_is_of_the_file_system_that_the_folder_will_lie_on(
    store: stores.Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = {tmp_path: 5, tmp_path / "new": 6}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=rooms[path]))
    assert store.free() == 5
    store.check_writable("--out")
    assert store.free() == 6


@pytest.mark.parametrize("uri", ["zz://bucket/path", "s3://"])
def test_uris_that_are_not_understood_are_refused(uri: str) -> None:
    failure = refusal(lambda: stores.open_store(uri))
    assert failure.code is ExitCode.BAD_FLAG and uri in failure.message


def test_messages_show_no_secrets() -> None:
    store = stores.open_store("s3://key:secret@bucket/some/path?endpoint_override=localhost:9&scheme=http")
    assert (str(store), store.where("a")) == ("s3://bucket/some/path", "s3://bucket/some/path/a")
    assert "secret" in store.location and store.free() is None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIA:SEC/RET@bucket/x", "s3://bucket/x"),
        ("s3://AKIA:7/SEC/RET@bucket/x", "s3://bucket/x"),
        ("s3://AKIA:SEC RET@bucket/x", "s3://bucket/x"),
        ("s3://AKIA:SEC\nRET@bucket/x", "s3://bucket/x"),
        ("s3://AKIA:SEC?RET@bucket/x", "s3://…"),
        ("s3://AKIA:SECRET", "s3://…"),
        ("foo://AKIA:SECRETKEY@b/x", "foo://b/x"),
        ("foo://host:90/a@b?token=SECRET", "foo://b"),
        ("foo://bucket/a@b:c", "foo://bucket/a@b:c"),
        ("foo://host:90/a", "foo://host:90/a"),
    ],
)
def test_refused_uris_show_no_secrets(uri: str, shown: str) -> None:
    """The reason that pyarrow gives quotes the URI."""
    failure = refusal(lambda: stores.open_store(uri)) if "AKIA:7" not in uri else None
    assert stores.without_secrets(uri) == shown
    if failure is not None:
        assert failure.message.startswith(f"{shown} cannot be opened (") and failure.__cause__ is None
        assert [word for word in ("AKIA", "SEC", "RET") if word in failure.message] == []
        assert ("%2F" in failure.message) == (uri != shown)


@pytest.mark.parametrize(
    ("location", "folder", "name"),
    [
        ("/a/b/m.json", "/a/b", "m.json"),
        ("m.json", ".", "m.json"),
        ("/m.json", "/", "m.json"),
        ("s3://b/p/m.json?region=x/y", "s3://b/p?region=x/y", "m.json"),
    ],
)
def test_a_location_is_folder_and_name(location: str, folder: str, name: str) -> None:
    assert stores.split_location(location) == (folder, name)


def test_paths_are_the_users_and_uris_are_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert stores.user_location("set") == str(tmp_path / "set")
    assert stores.user_location("s3://bucket/a?b=c") == "s3://bucket/a?b=c"


def _holder(folder: pathlib.Path, *, gate: int, release: int) -> int:
    """A forked process that waits at `gate`, holds `folder` until `release`, and exits with a failure's code."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.read(gate, 1)
        with stores.open_store(folder).held():
            os.read(release, 1)
        code = 0
    except Failure as failure:
        code = int(failure.code)
        (folder / f"complaint-{os.getpid()}").write_text(failure.message)
    finally:
        os._exit(code)


def _dead_lock(folder: pathlib.Path) -> None:
    """The lock of a process that is gone."""
    dead = dataclasses.replace(files.LockHolder.me(), started="0")
    (folder / "lock").write_text(json.dumps(dataclasses.asdict(dead)))


def test_of_fifty_paired_starts_exactly_one_wins_each_time(tmp_path: pathlib.Path) -> None:
    """D6: 50 paired starts, every other one beside the lock of a dead process; the loser names the winner at once."""
    for trial in range(50):
        folder = tmp_path / str(trial)
        folder.mkdir()
        if trial % 2:
            _dead_lock(folder)
        (gate, opened), (release, released) = os.pipe(), os.pipe()
        pair = [_holder(folder, gate=gate, release=release) for _ in range(2)]
        start = time.monotonic()
        os.write(opened, b"go")
        loser = _first_end(pair, deadline=start + 5)
        assert loser is not None and os.waitstatus_to_exitcode(loser[1]) == ExitCode.RUN_BUSY
        (winner,) = set(pair) - {loser[0]}
        assert f"held by process {winner}" in (folder / f"complaint-{loser[0]}").read_text()
        os.write(released, b"go")
        assert os.waitpid(winner, 0)[1] == 0
        assert [path.name for path in folder.iterdir()] == [f"complaint-{loser[0]}"]
        for descriptor in (gate, opened, release, released):
            os.close(descriptor)


def _first_end(pair: list[int], *, deadline: float) -> tuple[int, int] | None:
    while time.monotonic() < deadline:
        for pid in pair:
            found = os.waitpid(pid, os.WNOHANG)
            if found[0]:
                return found
        time.sleep(0.002)
    for pid in pair:
        os.kill(pid, signal.SIGKILL)
    return None


@pytest.mark.parametrize("offset", [-_DAY_SECONDS, 0, _DAY_SECONDS])
def test_a_killed_holder_is_followed_and_a_living_one_respected_whatever_the_clock_says(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """D6: killed holder; clock ±1 day, of this process and of the lock file."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + offset)
    (gate, opened), (release, _) = os.pipe(), os.pipe()
    child = _holder(tmp_path, gate=gate, release=release)
    os.write(opened, b"g")
    lock = tmp_path / "lock"
    while not lock.exists():
        time.sleep(0.002)
    os.utime(lock, (now - offset, now - offset))
    failure = refusal(stores.open_store(tmp_path).held().__enter__)
    assert failure.code is ExitCode.RUN_BUSY and f"process {child}" in failure.message
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with stores.open_store(tmp_path).held():
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert not lock.exists()


def test_the_holder_on_another_host_is_named_and_never_judged_dead(tmp_path: pathlib.Path) -> None:
    """D6: foreign host."""
    other = dataclasses.replace(files.LockHolder.me(), host="another-host", started="0", boot_id="another")
    (tmp_path / "lock").write_text(json.dumps(dataclasses.asdict(other)))
    failure = refusal(stores.open_store(tmp_path).held().__enter__)
    assert failure.code is ExitCode.RUN_BUSY and "another-host" in failure.message
    assert json.loads((tmp_path / "lock").read_text())["host"] == "another-host"


def test_a_store_of_objects_knows_no_lock(tmp_path: pathlib.Path) -> None:
    store = stores.open_store(f"file://{tmp_path}")
    with store.held(), store.held():
        assert list(tmp_path.iterdir()) == []
