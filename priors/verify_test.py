"""Tests of the program priors.verify: it names what is wrong and has an exit code for it."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from priors import shards, verify
from priors.group import TaskGroup
from priors.task import TaskKind
from tools.failure import ExitCode


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    command = [sys.executable, "-c", "from priors.verify import main; main()", *args]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(name="folder")
def _folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A set of two files."""
    source = shards.ShardSource(config={}, seed=0, kind=TaskKind.REGRESSION)
    group = TaskGroup(
        x=np.ones((2, 5, 3), np.float32),
        y=np.ones((2, 5), np.float32),
        column_kinds=np.zeros((2, 3), np.int8),
        level_counts=np.zeros((2, 3), np.int32),
        num_classes=np.zeros(2, np.int32),
        families=("a", "b"),
        seeds=np.zeros(2, np.int64),
        parameters=("{}", "{}"),
        kind=TaskKind.REGRESSION,
    )
    entries = [shards.write_part(tmp_path, [group], source=source, index=index) for index in range(2)]
    shards.write_set(tmp_path, entries, source=source)
    return tmp_path


def _flip(folder: pathlib.Path) -> None:
    path = folder / "part-00001.arrow"
    data = bytearray(path.read_bytes())
    data[500] ^= 8
    path.write_bytes(data)


def _truncate(folder: pathlib.Path) -> None:
    path = folder / "part-00001.arrow"
    path.write_bytes(path.read_bytes()[:-1])


def _remove(folder: pathlib.Path) -> None:
    (folder / "part-00001.arrow").unlink()


def _unfinish(folder: pathlib.Path) -> None:
    (folder / "MANIFEST.json").unlink()


def _age(folder: pathlib.Path) -> None:
    path = folder / "MANIFEST.json"
    path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 0'))


def test_a_whole_set_is_called_whole(folder: pathlib.Path) -> None:
    done = run(str(folder))
    assert done.returncode == 0 and "4 regression tasks in 2 files" in done.stdout and "all whole (" in done.stdout
    assert "GB a core second, threads: " in done.stdout


def test_a_uri_is_verified_too(folder: pathlib.Path) -> None:
    assert "in 2 files" in run(f"file://{folder}", "--threads", "1").stdout
    _flip(folder)
    done = run(f"file://{folder}", "--threads", "2")
    assert done.returncode == ExitCode.SHARD_CORRUPT and f"file://{folder}/part-00001.arrow is damaged" in done.stderr


def test_a_check_of_a_few_seconds_shows_its_progress_and_a_short_one_does_not(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for patience, shown in ((60.0, False), (-1.0, True)):
        monkeypatch.setattr(verify, "_PATIENCE_SECONDS", patience)
        monkeypatch.setattr(sys, "argv", ["verify", str(folder)])
        with pytest.raises(SystemExit) as stop:
            verify.main()
        assert stop.value.code == 0
        assert ("verified: 0/0" in capsys.readouterr().err) is shown


def test_no_threads_are_refused(folder: pathlib.Path) -> None:
    done = run(str(folder), "--threads", "0")
    assert done.returncode == ExitCode.BAD_FLAG and "--threads 0" in done.stderr


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (_flip, ExitCode.SHARD_CORRUPT, "part-00001.arrow is damaged (expected sha256"),
        (_truncate, ExitCode.SHARD_CORRUPT, "part-00001.arrow is damaged (expected sha256"),
        (_remove, ExitCode.SHARD_MISSING, "part-00001.arrow is missing"),
        (_unfinish, ExitCode.SHARD_MISSING, "MANIFEST.json is absent"),
        (_age, ExitCode.FORMAT_VERSION, "format version 0"),
    ],
)
def test_damage_has_a_code_and_one_line(
    folder: pathlib.Path, damage: Callable[[pathlib.Path], None], code: ExitCode, words: str
) -> None:
    """D3: a flipped bit, a truncated, missing or outdated shard, an unfinished set."""
    damage(folder)
    done = run(str(folder))
    assert done.returncode == code and words in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_folder_that_does_not_exist_is_named(tmp_path: pathlib.Path) -> None:
    done = run(str(tmp_path / "nothing"))
    assert done.returncode == ExitCode.SHARD_MISSING and "nothing" in done.stderr
