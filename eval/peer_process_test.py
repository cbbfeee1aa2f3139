"""Tests of eval/peer_process.py: against programs that speak its protocol; the real one is tested with the peers."""

import os
import pathlib
import sys

import pytest

from eval.peer_process import PeerProcess, peer_command
from tools.failure import BadInput, ExitCode, Failure

_ECHO = """
import json, os, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["count"] == 0:
        print(json.dumps({"error": "--num-tasks 0 is too small"}), flush=True)
    elif request["count"] == 99:
        sys.exit("out of memory")
    else:
        print(json.dumps({"num_tasks": 1, "seconds_per_task": request["seed"] / 8}), flush=True)
"""


def _echo() -> PeerProcess:
    return PeerProcess([sys.executable, "-c", _ECHO])


def test_requests_are_answered_in_order_and_a_refusal_ends_nothing() -> None:
    with _echo() as peer:
        assert peer.seconds_per_task({}, seed=1, count=1) == 0.125
        with pytest.raises(Failure, match="tabicl refused: --num-tasks 0 is too small") as caught:
            peer.seconds_per_task({}, seed=1, count=0)
        assert caught.value.code is ExitCode.BAD_FLAG
        assert peer.seconds_per_task({}, seed=2, count=1, core=0) == 0.25
        process = peer._process
    assert process.returncode == 0


def test_a_process_that_ends_is_reported_with_its_last_words() -> None:
    with _echo() as peer:
        for _ in range(2):
            with pytest.raises(Failure, match=r"ended \(out of memory\): see that `bazel run") as caught:
                peer.seconds_per_task({}, seed=1, count=99)
            assert caught.value.code is ExitCode.WORKER_FAILED


def test_a_process_that_does_not_come_up_is_reported() -> None:
    for program, why in (("import sys; sys.exit('no tabicl')", "no tabicl"), ("import os; os._exit(3)", "status 3")):
        with (
            pytest.raises(Failure, match=rf"ended \(.*{why}\)"),
            PeerProcess([sys.executable, "-c", program]),
        ):
            pytest.fail("it came up")


def test_an_interpreter_runs_the_program_and_bazel_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peer_command(pathlib.Path(sys.executable))[0] == sys.executable
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", os.getcwd())
    assert peer_command(None)[:3] == ["tools/bazelw", "run", "//eval:sample_peer_prior"]


def test_what_cannot_be_started_is_refused_in_one_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    (tmp_path / "file").touch()
    for python, complaint in (
        (None, "tabicl is not installed here: start this program with `bazel run`"),
        (tmp_path / "absent", "absent is no program: name a Python that has tabicl"),
        (tmp_path / "file", "file is no program"),
        (tmp_path, "is no program"),
    ):
        with pytest.raises(BadInput, match=complaint) as caught:
            peer_command(python)
        assert caught.value.code is ExitCode.NOT_FOUND
