"""The program `//eval:measure_growth`, run as users run it: its files, its help, and one line for wrong input."""

import json
import pathlib

from eval.program_session import run_commands
from eval.small_network import rerandomised_network
from model.checkpoint import save_checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode


def test_one_command_makes_the_record_and_the_pictures_of_both_kinds(tmp_path: pathlib.Path) -> None:
    """1.6: measured growth with N and M, fitted exponents."""
    for kind in TaskKind:
        save_checkpoint(tmp_path / "run" / kind.value / "checkpoints", step=3, network=rerandomised_network(kind))
    commands: dict[str, list[object]] = {
        "run": [
            tmp_path / "run",
            "--context-rows",
            16,
            32,
            64,
            "--query-rows",
            8,
            16,
            "--repeats",
            1,
            "--out",
            tmp_path / "out",
        ],
        "help": ["--help"],
        "absent": [tmp_path / "absent"],
        "wrong": [tmp_path / "run", "--context-rows", 8, 8],
    }
    results = run_commands("eval.measure_growth", commands)
    assert results["run"].status == 0, results["run"].err
    record = json.loads((tmp_path / "out" / "lab.json").read_text())
    assert set(record["kinds"]) == {kind.value for kind in TaskKind}
    assert all(part["checkpoint"]["step"] == 3 for part in record["kinds"].values())
    wanted = {f"{kind.value}-{picture}.svg" for kind in TaskKind for picture in ["growth"]}
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == wanted
    assert all(str(tmp_path / "out" / name) in results["run"].out for name in ("lab.json", *wanted))
    for part in record["kinds"].values():
        assert list(part["ways"]) == ["fast", "predict", "remember"]
        assert 0.99 < part["ways"]["predict"]["query_flops_slope"] <= 1  # points are projected once, whatever M is
        assert part["ways"]["remember"]["query_flops_slope"] == 0 < part["ways"]["fast"]["context_seconds"][0]
    assert results["help"].status == 0 and "quadratic in the context" in results["help"].out
    assert (results["absent"].status, results["wrong"].status) == (ExitCode.NOT_FOUND, ExitCode.BAD_FLAG)
    for refused in ("absent", "wrong"):
        assert results[refused].err.startswith("error: ") and results[refused].err.count("\n") == 1
