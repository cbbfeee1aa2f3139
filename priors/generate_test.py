"""Tests of the program priors.generate: what it prints, what it refuses, and how it dies."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types

import pytest
import torch

from priors import generate
from priors.shards import ShardSet
from tools.failure import ExitCode

PROGRAM = [sys.executable, "-c", "from priors.generate import main; main()"]
SMALL = ["--num-tasks", "24", "--group-size", "4", "--groups-per-part", "2", "--max-rows", "64", "--max-features", "4"]
QUICK = [*SMALL, "--only", "forest"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended."""

    returncode: int
    stdout: str
    stderr: str


def run(*args: str, cwd: pathlib.Path | None = None) -> Done:
    """Runs the program to its end, in a fork of this process."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            code = 99
            try:
                if cwd is not None:
                    os.environ |= {"BUILD_WORKING_DIRECTORY": str(cwd), "BUILD_WORKSPACE_DIRECTORY": str(cwd)}
                torch.set_num_threads(1)
                sys.argv = ["generate", *args]
                generate.main()
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [file.seek(0) or file.read() for file in (out, err)]
    return Done(returncode=code, stdout=texts[0], stderr=texts[1])


@pytest.fixture(autouse=True)
def _single_thread() -> None:
    torch.set_num_threads(1)  # forked children then find no thread pool to wait for


def test_a_set_is_written_below_the_folder_that_the_user_stands_in(tmp_path: pathlib.Path) -> None:
    done = run("tiny", *QUICK, "--out", "new/set", "--kind", "regression", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shard_set = ShardSet.open(tmp_path / "new" / "set")
    assert (shard_set.num_tasks, shard_set.kind.value) == (24, "regression")
    assert shard_set.digest[:16] in done.stdout and str(tmp_path / "new" / "set") in done.stdout
    assert "24/24" in done.stderr
    other = run("tiny", *QUICK, "--out", "new/set", cwd=tmp_path)
    assert other.returncode == ExitCode.CONFIG_MISMATCH and "--anew" in other.stderr
    anew = run("tiny", *QUICK, "--out", "new/set", "--anew", cwd=tmp_path)
    assert anew.returncode == 0 and "24 classification tasks" in anew.stdout


def test_without_out_the_set_lies_where_training_looks_and_progress_counts_whole_files(tmp_path: pathlib.Path) -> None:
    done = run("tiny", *QUICK, "--num-tasks", "20", "--seed", str(2**63 - 1), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "shards").iterdir()
    shard_set = ShardSet.open(folder)
    assert folder.name == f"{shard_set.manifest['source'][:16]}-20" and shard_set.num_tasks == 24
    assert "24/24" in done.stderr and "/20" not in done.stderr


def test_help_names_the_presets_and_the_usual_flags() -> None:
    done = run("--help")
    assert done.returncode == 0 and len(done.stdout.splitlines()) < 30
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
        (["tiny", "--first-part", "-1"], ExitCode.BAD_FLAG, "--first-part -1"),
        (["tiny", "--first-part", "2", "--anew"], ExitCode.BAD_FLAG, "--anew with --first-part 2"),
        (["tiny", "--cluster.address", "ray://head:1"], ExitCode.BAD_FLAG, "Ray Jobs"),
        (["tiny", "--cluster.address", "auto", "--workers", "2"], ExitCode.BAD_FLAG, "--cluster.num-workers"),
        (["tiny", "--like", "set"], ExitCode.BAD_FLAG, "argument tiny is not known"),
        (["--like", "/none/MANIFEST.json"], ExitCode.NOT_FOUND, "/none/MANIFEST.json"),
        (["--like", "s3://AKIA:SEC/RET@b/m.json"], ExitCode.BAD_FLAG, "error: s3://b cannot be opened"),
        (["--like", "/none"], ExitCode.SHARD_MISSING, "/none holds no finished shard set"),
        (["--like", "set", "--max-rows", "64"], ExitCode.BAD_FLAG, "--max-rows is not known"),
    ],
)
def test_bad_flags_get_one_line_and_nothing_is_written(
    tmp_path: pathlib.Path, args: list[str], code: ExitCode, words: str
) -> None:
    done = run(*args, "--out", str(tmp_path / "set"))
    assert done.returncode == code and words in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [] and done.stdout == ""


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    for start in ("", "file://"):
        done = run("tiny", *QUICK, "--out", f"{start}{tmp_path}/file/set")
        assert done.returncode == ExitCode.NOT_WRITABLE
        assert f"--out {start}{tmp_path}/file/set" in done.stderr and done.stderr.count("\n") == 1


def test_a_uri_that_is_not_understood_gets_one_line() -> None:
    done = run("tiny", *QUICK, "--out", "zz://bucket/set")
    assert done.returncode == ExitCode.BAD_FLAG and "zz://bucket/set cannot be opened" in done.stderr
    assert done.stderr.count("\n") == 1


def test_fewer_tasks_than_there_are_get_one_line_with_both_numbers(tmp_path: pathlib.Path) -> None:
    assert run("tiny", *QUICK, "--out", "set", cwd=tmp_path).returncode == 0
    done = run("tiny", *QUICK, "--num-tasks", "8", "--out", "set", cwd=tmp_path)
    assert done.returncode == ExitCode.CONFIG_MISMATCH and done.stderr.count("\n") == 1
    assert "--num-tasks asks for 8 tasks, fewer than the 24 of" in done.stderr and "--anew" in done.stderr
    assert ShardSet.open(tmp_path / "set").num_tasks == 24


def test_what_a_set_will_take_is_said_first_and_refused_where_there_is_no_room(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: before anything is drawn; what lies there already needs no room."""

    def with_free(free: int, *args: str) -> Done:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=free))
        return run("tiny", *QUICK, "--seed", "3", "--out", "set", *args, cwd=tmp_path)

    done = with_free(10_000)
    assert done.returncode == ExitCode.DISK_FULL and done.stderr.count("\n") == 1
    first, needed = done.stdout, int(re.search(r"needs about (\d+) bytes .* and 10000 are free", done.stderr)[1])
    assert first == f"24 tasks, about {needed / 1e6:.1f} MB\n" and not (tmp_path / "set").exists()
    assert with_free(needed - 1).returncode == ExitCode.DISK_FULL
    done = with_free(needed)
    assert done.returncode == 0 and done.stdout.startswith(first), done.stderr
    made = ShardSet.open(tmp_path / "set").num_bytes
    assert made == pytest.approx(needed, rel=0.5)
    assert with_free(0).returncode == 0
    grown = with_free(needed, "--num-tasks", "56")
    assert grown.returncode == ExitCode.DISK_FULL and f"{needed * 4 // 3} bytes" in grown.stderr
    assert with_free(max(needed - made, 0), "--seed", "4", "--anew").returncode == 0
    again = with_free(0, "--seed", "4", "--first-part", "1", "--num-tasks", "16")
    assert again.returncode == 0 and again.stdout.startswith("16 tasks, about "), again.stderr


def test_a_set_is_made_again_from_its_manifest_and_in_ranges(tmp_path: pathlib.Path) -> None:
    """D2: on another cluster, instead of a copy; what differs is refused."""
    made = run("tiny", *QUICK, "--seed", "3", "--out", "set", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    digest = ShardSet.open(tmp_path / "set").digest
    shutil.copy(tmp_path / "set" / "MANIFEST.json", tmp_path / "mailed.json")
    done = run("--like", "mailed.json", "--out", f"file://{tmp_path}/again", cwd=tmp_path)
    assert done.returncode == 0 and "every file as in --like" in done.stdout, done.stderr
    assert ShardSet.open(tmp_path / "again").digest == digest
    first = run("--like=mailed.json", "--out", "parts", "--first-part", "0", "--num-tasks", "8", cwd=tmp_path)
    rest = run("tiny", *QUICK, "--seed", "3", "--out", "parts", "--first-part", "1", "--num-tasks", "16", cwd=tmp_path)
    assert "files 0 to 0 of a set, 8 tasks" in first.stdout and "files 1 to 2 of a set, 16 tasks" in rest.stdout
    assert not (tmp_path / "parts" / "MANIFEST.json").exists()
    assert run("tiny", *QUICK, "--seed", "3", "--out", "parts", cwd=tmp_path).returncode == 0
    assert ShardSet.open(tmp_path / "parts").digest == digest
    for first_part, words in (("3", "beyond the 3 files of --like mailed.json"), ("-1", "--first-part -1")):
        refused = run("--like", "mailed.json", "--out", "parts", "--first-part", first_part, cwd=tmp_path)
        assert refused.returncode == ExitCode.BAD_FLAG and words in refused.stderr


def test_a_local_run_never_imports_ray(tmp_path: pathlib.Path) -> None:
    flags = ["tiny", *QUICK, "--out", str(tmp_path / "set")]
    program = f"import sys; sys.argv = {['generate', *flags]!r}\n"
    program += "from priors.generate import main\ntry:\n    main()\nfinally:\n    assert 'ray' not in sys.modules"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0 and "24 classification tasks" in done.stdout, done.stderr


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
    flags = [*QUICK, "--num-tasks", "800", "--group-size", "16"]
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
