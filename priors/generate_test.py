"""Tests of the program priors.generate: what it prints, what it refuses, and how it dies."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from priors.shards import ShardSet
from tools.failure import ExitCode

PROGRAM = [sys.executable, "-c", "from priors.generate import main; main()"]
SMALL = ["--num-tasks", "24", "--group-size", "4", "--groups-per-part", "2", "--max-rows", "64", "--max-features", "4"]


def run(*args: str, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    if cwd is not None:
        environment |= {"BUILD_WORKING_DIRECTORY": str(cwd), "BUILD_WORKSPACE_DIRECTORY": str(cwd)}
    return subprocess.run([*PROGRAM, *args], capture_output=True, text=True, env=environment, check=False)


def test_a_set_is_written_below_the_folder_that_the_user_stands_in(tmp_path: pathlib.Path) -> None:
    done = run("tiny", *SMALL, "--out", "new/set", "--kind", "regression", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shard_set = ShardSet.open(tmp_path / "new" / "set")
    assert (shard_set.num_tasks, shard_set.kind.value) == (24, "regression")
    assert shard_set.digest[:16] in done.stdout and str(tmp_path / "new" / "set") in done.stdout
    assert "24/24" in done.stderr
    other = run("tiny", *SMALL, "--out", "new/set", cwd=tmp_path)
    assert other.returncode == ExitCode.CONFIG_MISMATCH and "give another folder" in other.stderr


def test_without_out_the_set_lies_where_training_looks_and_progress_counts_whole_files(tmp_path: pathlib.Path) -> None:
    done = run("tiny", *SMALL, "--num-tasks", "20", "--seed", str(2**63 - 1), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "shards").iterdir()
    shard_set = ShardSet.open(folder)
    assert folder.name == f"{shard_set.manifest['source'][:16]}-20" and shard_set.num_tasks == 24
    assert "24/24" in done.stderr and "/20" not in done.stderr


def test_help_names_the_presets_and_the_usual_flags() -> None:
    done = run("--help")
    assert done.returncode == 0 and len(done.stdout.splitlines()) < 24
    words = ("tiny where none is named", "large", "--num-tasks", "--kind regression", "generate -- tiny --help")
    assert [word for word in words if word not in done.stdout] == []


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["huge"], ExitCode.UNKNOWN_PRESET, "huge"),
        (["tiny", "--colour", "red"], ExitCode.BAD_FLAG, "--colour"),
        (["tiny", "--num-tasks", "0"], ExitCode.BAD_FLAG, "--num-tasks 0"),
        (["tiny", "--workers", "0"], ExitCode.BAD_FLAG, "--workers 0"),
        (["tiny", "--workers", "5000"], ExitCode.TOO_FEW_RESOURCES, f"5000 is more than the {os.cpu_count()} cores"),
        (["tiny", "--group-size", "0"], ExitCode.BAD_FLAG, "--group-size 0"),
        (["tiny", "--seed", "-1"], ExitCode.BAD_FLAG, "--seed -1"),
        (["tiny", "--seed", str(2**63)], ExitCode.BAD_FLAG, f"--seed {2**63}"),
        (["tiny", "--max-features", "1"], ExitCode.BAD_FLAG, "--max-features 1"),
    ],
)
def test_bad_flags_get_one_line_and_nothing_is_written(
    tmp_path: pathlib.Path, args: list[str], code: ExitCode, words: str
) -> None:
    done = run(*args, "--out", str(tmp_path / "set"))
    assert done.returncode == code and words in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    done = run("tiny", *SMALL, "--out", str(tmp_path / "file" / "set"))
    assert done.returncode == ExitCode.NOT_WRITABLE
    assert "--out" in done.stderr and done.stderr.count("\n") == 1


def _children(parent: int) -> list[int]:
    """Processes whose parent is `parent`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def test_a_killed_program_leaves_no_process_and_goes_on_where_it_stopped(tmp_path: pathlib.Path) -> None:
    """D1: kill −9 of the program with two workers; D2: the resumed set equals an uninterrupted one."""
    flags = [*SMALL, "--num-tasks", "1600", "--group-size", "16"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*PROGRAM, "tiny", *flags, "--workers", "2", "--out", str(tmp_path / "set")]
    program = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "set").glob("part-*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = _children(program.pid)
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert len(children) >= 2 and not (tmp_path / "set" / "MANIFEST.json").exists()
    deadline = time.monotonic() + 10
    while (alive := [pid for pid in children if pathlib.Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "set").glob("part-*.json")}
    assert run("tiny", *flags, "--out", str(tmp_path / "set")).returncode == 0
    assert all((tmp_path / "set" / name).stat().st_mtime_ns == stamp for name, stamp in kept.items())
    assert run("tiny", *flags, "--out", str(tmp_path / "whole")).returncode == 0
    assert ShardSet.open(tmp_path / "set").digest == ShardSet.open(tmp_path / "whole").digest
