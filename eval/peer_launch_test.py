"""Tests of eval/peer_launch.py: what is started, and what is said where it cannot be."""

import pathlib

import pytest

from eval.peer_launch import PeerName, audit_peer
from tools import requirements
from tools.failure import ExitCode, Failure

_FAKE_BAZELW = """#!/bin/sh
echo "$PWD $*" > "{log}"
exit 7
"""


def test_the_names_are_those_of_the_requirements() -> None:
    asked = requirements.wanted(pathlib.Path("requirements-peers.in").read_text())
    assert {name.value for name in PeerName} == set(asked) - {"xgboost-cpu"}  # which tabicl's prior imports


def test_without_bazel_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    with pytest.raises(Failure, match="run `tools/bazelw run //eval:audit_peers -- tabicl`") as caught:
        audit_peer(PeerName.TABICL)
    assert caught.value.code is ExitCode.NOT_FOUND
    assert "\n" not in str(caught.value)


def test_under_bazel_it_is_started_in_the_workspace_and_its_exit_status_is_returned(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, program = tmp_path / "log", tmp_path / "tools" / "bazelw"
    program.parent.mkdir()
    program.write_text(_FAKE_BAZELW.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path / "here"))
    assert audit_peer(PeerName.TABPFN, json=pathlib.Path("out.json")) == 7
    expected = f"{tmp_path} run //eval:audit_peers -- tabpfn --json {tmp_path}/here/out.json"
    assert log.read_text().strip() == expected
