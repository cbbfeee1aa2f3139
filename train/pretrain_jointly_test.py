"""The program `//train:pretrain_jointly`, run as users run it: from a run folder to a result, and on wrong input."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest

from eval.program_session import Result, run_commands
from eval.small_network import rerandomised_network
from model.checkpoint import save_checkpoint
from model.initialisation import initial_network
from model.label_injection import LabelKind
from priors.task import TaskKind
from tools.failure import ExitCode
from train.toy import small_network

_SMALL = (
    *("--num-steps", "2", "--batch-size", "4", "--num-held-out-tasks", "4"),
    *("--shards.group-size", "4", "--shards.groups-per-part", "1"),
    *("--shards.max-rows", "64", "--shards.max-features", "3"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Session:
    """Where everything lies, and the result of every command line by name."""

    folder: pathlib.Path
    weights: dict[str, str]
    results: dict[str, Result]

    @property
    def result(self) -> pathlib.Path:
        return self.folder / "root" / "both"

    def record(self) -> dict[str, Any]:
        return json.loads((self.result / "joint.json").read_bytes())


def _write_runs(folder: pathlib.Path) -> None:
    """A run whose networks have equal sizes, one whose networks have not, and one of one kind."""
    for kind in LabelKind:
        network = initial_network(small_network(kind), seed=3)
        save_checkpoint(folder / "run" / kind.value / "checkpoints", step=5, network=network)
    narrow, wide = (
        initial_network(small_network(LabelKind.CLASSIFICATION), seed=0),
        rerandomised_network(TaskKind.REGRESSION),
    )
    for kind, network in (("classification", narrow), ("regression", wide)):
        save_checkpoint(folder / "unequal" / kind / "checkpoints", step=1, network=network)
    save_checkpoint(folder / "half" / "classification" / "checkpoints", step=1, network=narrow)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> _Session:
    """All command lines of this file, run in one process."""
    folder = tmp_path_factory.mktemp("joint")
    _write_runs(folder)
    run, here = str(folder / "run"), ["--root", str(folder / "root")]
    elsewhere, diverging = (["--root", str(folder / name)] for name in ("untouched", "diverging"))
    commands = {
        "whole": [run, *here, "--name", "both", *_SMALL],
        "again": [run, *here, "--name", "both", *_SMALL],
        "other": [run, *here, "--name", "both", *_SMALL, "--seed", "7"],
        "missing": [str(folder / "nowhere"), *elsewhere],
        "half": [str(folder / "half"), *elsewhere],
        "unequal": [str(folder / "unequal"), *elsewhere],
        "weight": [run, *elsewhere, "--weights.regression", "0"],
        "name": [run, *elsewhere, "--name", "a/b"],
        "flag": [run, *elsewhere, "--num-step", "2"],
        "diverged": [run, *diverging, *_SMALL, "--num-steps", "40", "--optimizer.matrix-lr", "1e38"],
    }
    found = run_commands("train.pretrain_jointly", commands)
    weights = {
        kind.value: json.loads(
            (folder / "run" / kind.value / "checkpoints" / "step-00000005" / "MANIFEST.json").read_text()
        )
        for kind in LabelKind
    }
    hashes = {kind: manifest["files"]["weights.safetensors"]["sha256"] for kind, manifest in weights.items()}
    return _Session(folder=folder, weights=hashes, results=found)


def test_one_command_leads_from_a_run_to_checkpoints_figures_and_a_picture(session: _Session) -> None:
    """1.7, 6.11: joint training from single-task weights; cosines per stage are shown."""
    whole = session.results["whole"]
    assert whole.status == 0, whole.err
    assert {path.name for path in session.result.iterdir()} == {
        "classification",
        "regression",
        "config.json",
        "figures",
        "joint.json",
        "metrics.jsonl",
        "seconds.json",
    }
    assert session.record()["start"]["single_weights_sha256"] == session.weights
    assert (session.result / "figures" / "cosines.svg").read_text().count("ICL block 1") >= 1
    assert "ICL block 1  cosine" in whole.out and "parameters +" in whole.out
    assert "One backbone runs both tasks." in whole.out and "solve" not in whole.out


def test_the_work_is_shown_while_it_is_done(session: _Session) -> None:
    assert "joint and baselines: 8/8" in session.results["whole"].err


def test_the_same_command_finds_its_result_and_another_one_does_not_overwrite_it(session: _Session) -> None:
    assert session.results["again"].status == 0 and "nothing to do" in session.results["again"].out
    other = session.results["other"]
    assert other.status == ExitCode.CONFIG_MISMATCH and "choose another --name" in other.err
    assert session.record()["config"]["seed"] == 1


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("missing", ExitCode.NOT_FOUND, "does not exist"),
        ("half", ExitCode.NOT_FOUND, "holds no regression checkpoint"),
        ("unequal", ExitCode.CONFIG_MISMATCH, "in the classification network and"),
        ("weight", ExitCode.BAD_FLAG, "--weights.regression 0: give a number above 0"),
        ("name", ExitCode.BAD_NAME, "--name 'a/b'"),
        ("flag", ExitCode.BAD_FLAG, "--num-step"),
        ("diverged", ExitCode.DIVERGED, "training diverged"),
    ],
)
def test_wrong_input_is_one_line_and_an_exit_code(session: _Session, case: str, code: ExitCode, words: str) -> None:
    result = session.results[case]
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert result.status == code, result.err
    assert len(errors) == 1 and words in errors[0] and "Traceback" not in result.err


def test_what_fails_leaves_nothing_half_written(session: _Session) -> None:
    assert not (session.folder / "untouched").exists()
    assert {path.name for path in (session.folder / "diverging").iterdir()} == {"shards"}
    assert not [path for path in (session.folder / "root").iterdir() if path.name.startswith(".")]
