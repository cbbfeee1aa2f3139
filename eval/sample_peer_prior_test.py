"""Tests of //eval:sample_peer_prior, in the environment of peers (`peers = True`)."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from eval.peer_process import PeerProcess, peer_command
from tools.failure import Failure

_PROGRAM = "eval.sample_peer_prior"


def _run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path = {sys.path}; from {_PROGRAM} import main; main()"
    return subprocess.run([sys.executable, "-c", program, *words], input=text, capture_output=True, text=True)


def test_tasks_and_their_cost_are_written(tmp_path: pathlib.Path) -> None:
    words = ["--prior", "tree_scm", "--rows", "64", "--features", "4", "--num-tasks", "3"]
    result = _run("tabicl", *words, "--out", str(tmp_path / "a.npz"), "--json", str(tmp_path / "a.json"))
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "a.json").read_text())
    assert (record["prior"], record["rows"], record["num_tasks"]) == ("tree_scm", 64, 3)
    assert f"3 tasks of tabicl's tree_scm: {record['seconds_per_task'] * 1e3:.2f} ms a task" in result.stdout
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert found["x_2"].shape[0] == len(found["y_2"]) == 64


def test_requests_are_answered_one_by_one_and_a_bad_one_ends_nothing() -> None:
    good = {"config": {"prior": "mlp_scm", "rows": 64, "features": 4}, "seed": 1, "count": 2}
    bad = [{**good, "count": 0}, {**good, "config": {"prior": "none"}}, {"seed": 1}, 7, {**good, "core": 10**6}]
    lines = [json.dumps(line) for line in [good, *bad, good]]
    result = _run("tabicl", "--serve", text="\n".join(["{", *lines]) + "\n")
    ready, broken, first, *errors, last = (json.loads(line) for line in result.stdout.splitlines())
    assert ready == {"ready": True}
    assert first["num_tasks"] == last["num_tasks"] == 2
    assert first["seconds_per_task"] > 0
    assert errors[0] == {"error": "--num-tasks 0 is too small: give 1 or more"}
    assert len(errors) == len(bad)
    assert all("cannot be answered" in error["error"] for error in [broken, *errors[1:]])


def test_bad_flags_are_one_line_with_an_exit_code(tmp_path: pathlib.Path) -> None:
    result = _run("tabnet")
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    (tmp_path / "file").touch()
    result = _run("tabicl", "--out", str(tmp_path / "file" / "x.npz"))
    assert result.returncode == 4
    assert "--out" in result.stderr


def test_the_interpreter_without_the_package_says_so() -> None:
    command = peer_command(pathlib.Path(sys.executable))
    program = f"import sys; sys.modules['tabicl'] = sys.modules['xgboost'] = None; {command[2]}"
    with (
        PeerProcess([command[0], "-c", program, *command[3:]]) as peer,
        pytest.raises(Failure, match="refused: tabicl's prior needs xgboost, which is absent"),
    ):
        peer.seconds_per_task({"prior": "mlp_scm"}, seed=0, count=1)
