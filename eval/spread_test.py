"""The program `//eval:spread`, run as users run it: it trains, audits, scores and draws; wrong input is one line."""

import json
import pathlib

from eval.program_session import run_commands
from tools.failure import ExitCode

_SIZES = {"num-steps": 2, "batch-size": 2, "num-seeds": 1, "num-tasks": 2, "num-context": 8, "num-query": 4}


def test_one_command_trains_scores_and_draws_all_heads(tmp_path: pathlib.Path) -> None:
    """6.C: scalar, bar and quantile; 5.G: figures carry the audits' verdict."""
    flags: list[object] = [word for name, value in _SIZES.items() for word in (f"--trial.{name}", value)]
    commands: dict[str, list[object]] = {
        "run": [*flags, "--out", tmp_path],
        "help": ["--help"],
        "wrong": ["--trial.num-seeds", 0, "--out", tmp_path],
    }
    results = run_commands("eval.spread", commands)
    assert results["run"].status == 0, results["run"].err
    record = json.loads((tmp_path / "lab.json").read_text())
    assert record["status"] in ("verified", "not-yet-verified") and record["status"] in results["run"].out
    assert (record["status"] == "verified") is (record["failed_audits"] == [])
    assert record["scores"]["whole"]["outliers"]["scalar"]["coverage"]["mean"] is None and "none" in results["run"].out
    assert 0 < record["scores"]["frozen"]["heteroscedastic"]["bar"]["coverage"]["mean"] <= 1
    assert record["parameters"]["bar"] > record["parameters"]["scalar"] > 0
    assert {path.name for path in tmp_path.glob("*.svg")} == {"intervals.svg", "heads.svg"}
    assert results["help"].status == 0 and "--trial.num-steps" in results["help"].out
    assert results["wrong"].status == ExitCode.BAD_FLAG and results["wrong"].err.count("\n") == 1
