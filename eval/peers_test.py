"""Tests of eval/peers.py and of the lock of peers, in their own environment (`peers = True`)."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from eval.black_box import Verdict, audit_black_box
from eval.peers import PEERS, Peer, peer_variants
from tools import requirements

_WHAT_DEPENDS_ON_QUERIES = {"EvoForestTabClassifier", "EvoForestTabRegressor"}
_IN_FP32 = [peer for name in sorted(PEERS) for peer in peer_variants(name, seed=0) if "auto" not in peer.variant]


@pytest.mark.parametrize("peer", _IN_FP32, ids=lambda peer: f"{peer.package} {peer.variant}")
def test_findings_in_fp32_are_what_the_packages_say_of_themselves(peer: Peer) -> None:
    """EvoForest-Tab's default estimators pool context and queries, and say so; nobody else sees another query."""
    findings = {one.name: one.verdict for one in audit_black_box(peer.predict, num_classes=peer.num_classes)}
    failed = [name for name, verdict in findings.items() if verdict is Verdict.FAIL]
    assert failed == (["query_set", "query_batching"] if peer.variant in _WHAT_DEPENDS_ON_QUERIES else [])


def test_the_installed_packages_need_nothing_that_the_locks_do_not_bring() -> None:
    """The lock of peers installs with --no-deps too."""
    for name in requirements.read_lock(pathlib.Path("requirements-peers.lock").read_text()):
        for text in importlib.metadata.distribution(name).requires or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert need.specifier.contains(importlib.metadata.version(need.name).partition("+")[0]), (name, text)


def test_the_program_writes_what_it_found(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "found.json"
    program = f"import sys; sys.path = {sys.path}; from eval.audit_peers import main; main()"
    command = [sys.executable, "-c", program, "evoforest-tab", "--json", str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    assert "at least one audit failed" in result.stdout
    found = json.loads(target.read_text())["variants"]
    assert [one["variant"] for one in found][:2] == ["EvoForestTabClassifier", "EvoForestTabRegressor"]
    assert {finding["verdict"] for one in found for finding in one["findings"]} == {"pass", "fail", "size"}
