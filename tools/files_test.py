"""Tests of tools/files.py."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tools import files
from tools.failure import ExitCode, Failure

_CLAIM = """
import pathlib, sys, time
from tools.failure import run_program
from tools.files import FolderLock, LockHolder

judge = LockHolder.is_dead

def judge_slowly(holder):
    verdict = judge(holder)
    time.sleep(float(sys.argv[2]))
    return verdict

LockHolder.is_dead = judge_slowly

def program(argv):
    with FolderLock(pathlib.Path(argv[0])):
        sys.stdout.write("held\\n")
        sys.stdout.flush()
        sys.stdin.read()

run_program(program)
"""


def _claimer(folder: pathlib.Path, *, judges_seconds: float = 0) -> subprocess.Popen[str]:
    """Starts a process that holds `folder` until its standard input is closed; it judges a found lock slowly."""
    command, pipe = [sys.executable, "-c", _CLAIM, str(folder), str(judges_seconds)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, complaint = process.communicate(timeout=60)
    return process.returncode, complaint


def _committed(folder: pathlib.Path) -> pathlib.Path:
    (folder / "nested").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(range(200)))
    (folder / "nested" / "state").write_bytes(b"state")
    files.write_manifest(folder, format_version=1, extra={"step": 7})
    return folder


def _verify(folder: pathlib.Path) -> dict[str, object]:
    return files.verify_manifest(folder, format_version=1, code=ExitCode.CHECKPOINT_CORRUPT, what="checkpoint")


@contextlib.contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """Makes writes beyond `size` bytes fail, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_written_file_is_whole_and_leaves_nothing_beside(tmp_path: pathlib.Path) -> None:
    files.write_bytes(tmp_path / "new" / "a", b"old")
    files.write_bytes(tmp_path / "new" / "a", b"newer")
    assert (tmp_path / "new" / "a").read_bytes() == b"newer"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a"]


def test_a_write_is_on_disk_before_its_name_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D1: fsync, rename, fsync of the folder."""
    order = []
    rename = pathlib.Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: order.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(pathlib.Path, "replace", lambda path, to: (order.append("rename"), rename(path, to)))
    files.write_bytes(tmp_path / "a", b"x")
    assert len(order) == 3 and order[1:] == ["rename", str(tmp_path)]
    assert pathlib.Path(order[0]).parent == tmp_path


def test_json_is_sorted_and_ends_with_a_line_break(tmp_path: pathlib.Path) -> None:
    files.write_json(tmp_path / "a.json", {"b": 1, "a": [2]})
    assert (tmp_path / "a.json").read_text() == '{\n "a": [\n  2\n ],\n "b": 1\n}\n'


def test_a_full_disk_keeps_the_old_file(tmp_path: pathlib.Path) -> None:
    """D5: an own exit code, the bytes needed and free, nothing half-committed."""
    path = tmp_path / "a"
    files.write_bytes(path, b"old")
    with _file_size_limit(1000), pytest.raises(Failure, match=r"needs 5000 bytes and \d+ are free") as caught:
        files.write_bytes(path, bytes(5000))
    assert caught.value.code == ExitCode.DISK_FULL
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refused_write_names_the_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match="file/a is not writable") as caught:
        files.write_bytes(tmp_path / "file" / "a", b"")
    assert caught.value.code == ExitCode.NOT_WRITABLE


def test_a_committed_folder_verifies(tmp_path: pathlib.Path) -> None:
    manifest = _verify(_committed(tmp_path / "step"))
    assert manifest["step"] == 7
    assert set(manifest["files"]) == {"weights", "nested/state"}


def test_every_flipped_bit_of_a_file_is_named(tmp_path: pathlib.Path) -> None:
    """D3: file, expected and got are named."""
    folder = _committed(tmp_path / "step")
    whole = (folder / "weights").read_bytes()
    for bit in range(0, len(whole) * 8, 7):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / "weights").write_bytes(damaged)
        with pytest.raises(Failure, match=r"checkpoint file \S+weights is damaged \(expected sha256 \w+ .*, got \w+"):
            _verify(folder)


@pytest.mark.parametrize("size", [0, 1, 100, 199])
def test_a_truncated_file_is_named_with_both_sizes(tmp_path: pathlib.Path, size: int) -> None:
    folder = _committed(tmp_path / "step")
    (folder / "weights").write_bytes(bytes(range(200))[:size])
    with pytest.raises(Failure, match=rf"weights is damaged .*\(200 bytes\), got {size} bytes") as caught:
        _verify(folder)
    assert caught.value.code == ExitCode.CHECKPOINT_CORRUPT


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    folder = _committed(tmp_path / "step")
    (folder / "nested" / "state").unlink()
    with pytest.raises(Failure, match="nested/state is missing"):
        _verify(folder)


def test_no_flipped_bit_of_a_manifest_escapes_as_a_defect(tmp_path: pathlib.Path) -> None:
    folder = _committed(tmp_path / "step")
    path = folder / files.MANIFEST
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with contextlib.suppress(Failure):
            _verify(folder)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format_version": 1, "files": 3}', '{"format_version": 1}'])
def test_an_unreadable_manifest_means_never_finished(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / files.MANIFEST).write_text(text)
    with pytest.raises(Failure, match="has no readable MANIFEST.json: it was never finished"):
        _verify(tmp_path)


def test_another_format_version_has_its_own_exit_code(tmp_path: pathlib.Path) -> None:
    folder = _committed(tmp_path / "step")
    files.write_manifest(folder, format_version=2)
    with pytest.raises(Failure, match="has format version 2: this version reads 1") as caught:
        _verify(folder)
    assert caught.value.code == ExitCode.FORMAT_VERSION


def test_a_held_folder_is_refused_within_five_seconds(tmp_path: pathlib.Path) -> None:
    """D6: the second process leaves within 5 s naming the holder."""
    first = _claimer(tmp_path)
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        start = time.monotonic()
        status, complaint = _end(_claimer(tmp_path))
        assert time.monotonic() - start < 5
        assert (status, complaint.count("\n")) == (ExitCode.RUN_BUSY, 1)
        assert f"held by process {first.pid}" in complaint
    finally:
        first.kill()
        first.communicate()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: pathlib.Path) -> None:
    """D6: stale locks of dead local pids are taken over."""
    first = _claimer(tmp_path)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    first.kill()
    first.communicate()
    assert (tmp_path / "lock").exists()
    assert _end(_claimer(tmp_path))[0] == ExitCode.OK
    assert list(tmp_path.iterdir()) == []


def test_of_several_starts_beside_a_stale_lock_exactly_one_wins(tmp_path: pathlib.Path) -> None:
    """D6: paired starts; a stale lock must not let two in."""
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        dead = dataclasses.replace(files.LockHolder.me(), started="0")
        (folder / "lock").write_text(json.dumps(dataclasses.asdict(dead)))
        running = [_claimer(folder, judges_seconds=0.5) for _ in range(4)]
        deadline = time.monotonic() + 30
        while len(running) > 1 and time.monotonic() < deadline:
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                assert _end(process)[0] == ExitCode.RUN_BUSY
            time.sleep(0.02)
        assert len(running) == 1, "nobody or more than one holds the folder"
        assert _end(running[0])[0] == ExitCode.OK


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({}, False),
        ({"host": "another-host"}, False),
        ({"host": "another-host", "started": "0"}, False),
        ({"started": "0"}, True),
        ({"pid": 2**22 + 1}, True),
        ({"boot_id": "an earlier start"}, True),
        ({"started": "0", "pid_namespace": "pid:[1]"}, False),
    ],
)
def test_only_a_holder_that_is_surely_dead_counts_as_dead(change: dict[str, object], dead: bool) -> None:
    """D6: a foreign host or another container is never judged from here."""
    assert dataclasses.replace(files.LockHolder.me(), **change).is_dead() is dead


def test_a_lock_that_another_took_over_is_left_alone(tmp_path: pathlib.Path) -> None:
    with files.FolderLock(tmp_path) as lock:
        other = dataclasses.replace(files.LockHolder.me(), host="another-host")
        (tmp_path / "lock").write_text(json.dumps(dataclasses.asdict(other)))
    assert lock.holder() == other


def test_a_folder_that_cannot_be_made_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match="not writable"), files.FolderLock(tmp_path / "file" / "run"):
        pass


def test_a_line_behind_one_that_a_crash_cut_short_is_a_line_of_its_own(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "events.jsonl"
    files.append_json_line(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"a": 2, "b')
    files.append_json_line(path, {"a": 3})
    files.append_json_line(path, {"a": 4})
    assert files.read_json_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]


def test_what_is_no_object_or_no_text_is_left_out_of_json_lines(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "events.jsonl"
    noise = [b"3", b"null", b'["a"]', b'{"a": "\xff"}', b"\x00\x00", b"[" * 100_000, "{'a': 1}\u2028".encode()]
    path.write_bytes(b"\n".join([b'{"a": 1}', *noise, '{"a": "\u2028"}'.encode(), b'{"a": 4']))
    assert files.read_json_lines(path) == [{"a": 1}, {"a": "\u2028"}]


def test_what_no_disk_has_room_for_is_refused_with_both_numbers_before_it_is_written(tmp_path: pathlib.Path) -> None:
    """D5: bytes needed and free."""
    folder = tmp_path / "not" / "there"
    files.check_room(folder, needed=1, what="a byte")
    with pytest.raises(Failure) as caught:
        files.check_room(folder, needed=10**19, what="the checkpoint of step 3")
    assert caught.value.code is ExitCode.DISK_FULL
    found = re.search(
        r"of step 3 needs 10{19} bytes \(.* MB\) and (\d+) bytes \(.* MB\) are free", caught.value.message
    )
    assert found and 0 < int(found[1]) < 10**19
    assert not folder.exists()
