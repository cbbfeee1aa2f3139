"""Tests of //tools:bench: end to end on small sizes, with a stand-in where the packages of peers are absent."""

import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest
import torch

from bench.step_team import StepModel, num_parameters
from eval.program_session import run_commands

# Speaks for `eval.sample_peer_prior --serve`: 10 ms a task, whatever is asked.
_PEER = """#!{python}
import json, sys
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    assert request["config"]["rows"] == 256 and request["core"] is not None
    print(json.dumps({{"num_tasks": request["count"], "seconds_per_task": 0.01}}), flush=True)
"""


def _bench(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "BUILD_WORKSPACE_DIRECTORY"}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from tools.bench import main; main()", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


_SHORT = ("priors", "--quick", "--rounds", "2", "--seconds", "0.02", "--batch", "32")


def test_rates_are_written_with_the_peers_and_their_ratio(tmp_path: pathlib.Path) -> None:
    peer, target = tmp_path / "python", tmp_path / "out" / "bench.json"
    peer.write_text(_PEER.format(python=sys.executable))
    peer.chmod(peer.stat().st_mode | stat.S_IXUSR)
    result = _bench(*_SHORT, "--sections", "rates", "--json", str(target), "--peer-python", str(peer))
    assert result.returncode == 0, result.stderr
    found = json.loads(target.read_text())
    assert [row["name"].split(",")[0] for row in found["rows"][:3]] == [
        "mlp_scm against mlp_scm",
        "graph_scm against graph_scm",
        "default mixture against mix_scm",
    ]
    assert len(found["rows"]) == 6
    for row in found["rows"]:
        assert row["unit"] == "tasks/s"
        assert row["peer"] == pytest.approx(100.0)
        assert row["ratio"] == pytest.approx(row["ours"] / 100.0)
        assert row["ours_range"][0] <= row["ours"] <= row["ours_range"][1]
    assert [row["goal"] for row in found["rows"]] == ["≥ 30 ×", "≥ 50 ×", "≥ 20 ×", "", "", ""]
    assert found["config"]["rounds"] == 2
    assert found["machine"]["torch"] == torch.__version__
    assert "graph_scm against graph_scm" in result.stdout and "ratio" in result.stdout
    assert "rates: 12/12" in result.stderr


def test_without_a_peer_ours_is_measured_and_the_way_to_it_is_named(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "bench.json"
    result = _bench(*_SHORT, "--sections", "rates", "graphs", "--json", str(target))
    assert result.returncode == 0, result.stderr
    assert "ours alone is measured: tabicl is not installed here" in result.stderr
    assert "bazel run" in result.stderr
    rows = json.loads(target.read_text())["rows"]
    assert {row["peer"] for row in rows} == {None}
    assert {row["met"] for row in rows} == {None}
    assert rows[-1]["name"] == "distinct graphs in a batch of graph_scm"
    assert rows[-1]["ours"] > 16


_STEPS = ("train", "--quick", "--presets", "tiny", "--shapes", "16x2", "--batch", "2")


def test_steps_are_written_beside_the_others_each_in_its_best_mode(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "bench.json"
    result = _bench(*_STEPS, "--json", str(target))
    assert result.returncode == 0, result.stderr
    assert "tabicl is left out: tabicl is not installed here" in result.stderr
    rows = {row["name"]: row for row in json.loads(target.read_text())["rows"]}
    beside = [name for name in rows if " against " in name]
    assert len(beside) == 6 and sum("both fp32" in name for name in beside) == 3
    for name in beside:
        assert rows[name]["ratio"] == pytest.approx(rows[name]["ours"] / rows[name]["peer"])
        assert "processes × threads" in rows[name]["note"]
        assert "both fp32" not in name or "bfloat16" not in rows[name]["note"]
    assert 0 < rows["tiny, 16 × 2: FLOP/s"]["ours"] < 1
    assert f"{num_parameters(StepModel.TINY):,} parameters" in rows["tiny, 16 × 2: FLOP/s"]["note"]
    assert rows["tiny, regression, 16 × 2"]["ours"] > 0


_REFUSED = {
    "nothing": (3, "subject 'nothing' is not known: choose one of priors, train"),
    "": (3, "the subject is missing: give one before all flags, of priors, train, ray, time-to-target, time-to"),
    "--quick": (3, "the subject is missing"),
    "time-to-target --tables /absent": (19, "--tables /absent holds no manifest.json"),
    "priors --rounds 0": (2, "--rounds 0 is too small: give 1 or more"),
    "priors --seconds 0": (2, "--seconds 0.0 is too small"),
    "priors --batch 0": (2, "--batch 0 is too small"),
    "priors --device tpu": (2, "--device tpu is not known: choose cpu or cuda"),
    "priors --sections speed": (2, "--sections"),
    "priors --sections rates --peer-python /absent/python": (19, "/absent/python is no program"),
    "train --rounds 0": (2, "--rounds 0 is too small: give 1 or more"),
    "train --presets huge": (2, "--presets huge is not known: choose tiny or small"),
    "train --shapes 150": (2, "--shapes 150 is no size: give rows and columns, such as 150x20"),
    "train --peer-python /absent/python": (19, "/absent/python is no program"),
    "priors --json /proc/absent/bench.json": (4, "--json /proc/absent is not writable"),
}
_NO_GPU = {"priors --device cuda": (16, "--device cuda: this machine has no GPU; leave it out")}


def test_bad_flags_are_one_line_with_an_exit_code() -> None:
    refused = _REFUSED | ({} if torch.cuda.is_available() else _NO_GPU)
    results = run_commands("tools.bench", {words: words.split() for words in refused})
    for words, (code, complaint) in refused.items():
        result = results[words]
        assert result.status == code, words
        assert complaint in result.err
        assert result.err.startswith("error: ") and result.err.count("\n") == 1, words
