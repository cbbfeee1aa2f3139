"""The main job, whole, in small: one command to a report in MLflow; and what it says to wrong input."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from eval.program_session import run_commands
from tools import files, ray_session
from tools.failure import ExitCode
from tools.tracking import database_uri, load_mlflow
from train.toy_flags import toy_flags

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own

_KINDS = ("classification", "regression")
_TABLES = {
    "classification": {"synthetic", "breast_cancer", "iris", "wine", "digits"},
    "regression": {"synthetic", "diabetes"},
}
_MODELS = {"veritab", "untrained", "majority", "knn", "linear", "random_forest", "kernel"}
_METRICS = {
    "classification": {"auc_ovr", "auc_ovo", "accuracy", "nll", "ece"},
    "regression": {"rmse", "r2", "crps"},
}


def _flags(root: pathlib.Path) -> list[str]:
    """A job that takes seconds, with a mean over two sets in every score."""
    more = ["--scoring.num-seeds", "2", "--scoring.num-synthetic-tasks", "2", "--scoring.cost-seconds", "0.1"]
    return [*toy_flags(root), *more]


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-c", "from train.pretrain import main; main()", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = _command(arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=_environment())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("runs")
    done = _run(_flags(folder))
    assert done.returncode == 0, done.stderr
    assert str(folder / "small" / "report.html") in done.stdout
    assert "//reports:ui" in done.stdout
    slow = ("starting Ray on this machine", f"tracking: opening {database_uri(folder)}", "== generate", "== audit")
    slow += ("auditing the classification model of step ", "auditing the regression model of step ", "== report")
    said = [done.stderr.find(text) for text in (*slow, "sending scores, page and files")]
    assert -1 < said[0] and said == sorted(said), done.stderr
    return folder


def test_the_summary_holds_every_score_of_every_model_on_every_table(root: pathlib.Path) -> None:
    summary = json.loads((root / "small" / "summary.json").read_bytes())
    assert isinstance(summary["verified"], bool)
    assert list(summary["models"]) == list(_KINDS)
    assert {"generate", "train", "audit", "score", "report"} <= set(summary["seconds"])
    for kind, model in summary["models"].items():
        assert re.fullmatch("[0-9a-f]{64}", model["weights_sha256"])
        assert model["parameters"] > 1000 and 0 < model["tasks_seen"] <= 32
        assert set(model["scores"]) == _TABLES[kind]
        sizes = {int(table.partition("@")[2]) for table in model["regret"]}
        assert len(sizes) > 3 and all({"veritab", "linear"} <= set(found) for found in model["regret"].values())
        for by_model in model["scores"].values():
            assert set(by_model) == _MODELS
            for scores in by_model.values():
                assert _METRICS[kind] <= set(scores)
                assert all(set(cell) == {"mean", "per_seed"} and len(cell["per_seed"]) == 2 for cell in scores.values())


def test_scores_are_verified_only_with_a_passing_audit_of_the_same_weights(root: pathlib.Path) -> None:
    """5.G: the hard gate."""
    summary = json.loads((root / "small" / "summary.json").read_bytes())
    audits = {kind: json.loads((root / "small" / kind / "audit.json").read_bytes()) for kind in _KINDS}
    for kind, audit in audits.items():
        assert audit["subject"]["weights_sha256"] == summary["models"][kind]["weights_sha256"]
        assert {"leakage", "query_set", "query_permutation", "mask_graph"} <= {item["name"] for item in audit["audits"]}
        assert (summary["models"][kind]["status"] == "verified") == audit["passed"]
    assert summary["verified"] == all(audit["passed"] for audit in audits.values())


def test_everything_is_in_the_tracking_store(root: pathlib.Path) -> None:
    client = load_mlflow().MlflowClient(database_uri(root))
    (experiment,) = [found for found in client.search_experiments() if found.name == "veritab"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "small"
    assert run.data.params["config.seed"] == "0"
    assert "classification/train/loss" in run.data.metrics
    assert "not-yet-verified/classification/synthetic/veritab/nll" in run.data.metrics
    assert "classification/train/evaluation_share" in run.data.metrics
    assert len(run.inputs.dataset_inputs) == 2
    for kind in _KINDS:
        audit = json.loads((root / "small" / kind / "audit.json").read_bytes())
        assert (run.data.tags[f"audit.{kind}"] == "passed") == audit["passed"]
    assert run.data.tags["config.cluster.address"] == "local" and "config.cluster.address" not in run.data.params
    assert {"report.html", "summary.json", "figures", "events.jsonl"} <= {
        item.path for item in client.list_artifacts(run.info.run_id)
    }


def test_the_events_of_a_whole_run_are_told_in_order(root: pathlib.Path) -> None:
    """From the start over each stage and each model's checkpoints to the end; stages are told by start and end."""
    events = files.read_json_lines(root / "small" / "events.jsonl")
    stages = [(event["stage"], event["event"]) for event in events if "stage" in event]
    names = ("generate", "train", "audit", "score", "report")
    assert stages == [(name, end) for name in names for end in ("start", "end")]
    for kind in _KINDS:
        own = [(event["event"], event["step"]) for event in events if event.get("kind") == kind]
        saved = "checkpoint saved"
        assert own == [("training started", 0), (saved, 2), (saved, 4), ("training ended", 4)]
    assert [event["event"] for event in events if not {"stage", "kind"} & set(event)] == ["run started", "run ended"]


def test_a_finished_run_says_so_and_changes_nothing(root: pathlib.Path) -> None:
    """T10: "complete at step N", exit 0."""
    before = {path: path.read_bytes() for path in (root / "small").rglob("*") if path.is_file()}
    again = _run(_flags(root))
    assert again.returncode == 0 and "complete at step" in again.stdout
    assert {path: path.read_bytes() for path in (root / "small").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_so_leaves_no_process_and_goes_on(
    number: signal.Signals, tmp_path: pathlib.Path
) -> None:
    """T6, T9: one line, exit 22 within 30 s, and nothing of Ray is left; the store knows that it was stopped."""
    flags = [*_flags(tmp_path), "--classification.loop.num-steps", "100000"]
    process = subprocess.Popen(_command(flags), stderr=subprocess.PIPE, text=True, env=_environment())
    metrics = tmp_path / "small" / "classification" / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not (metrics.exists() and '"step": 4' in metrics.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.5)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == ExitCode.INTERRUPTED, stderr
    assert "error: interrupted" in stderr and "Traceback" not in stderr
    assert not list(pathlib.Path("/tmp").glob(ray_session.folder_prefix(process.pid) + "*"))
    assert not (tmp_path / "small" / "lock").exists() and not (tmp_path / "small" / ".ray").exists()
    client = load_mlflow().MlflowClient(database_uri(tmp_path))
    (run,) = client.search_runs([found.experiment_id for found in client.search_experiments()])
    assert run.info.status == "KILLED"
    events = files.read_json_lines(tmp_path / "small" / "events.jsonl")
    assert [event["event"] for event in events][-4:] == [
        "checkpoint saved",
        "training stopped",
        "interrupted",
        "run stopped",
    ]
    assert "ranks lost" not in {event["event"] for event in events}
    last = max(record["step"] for record in files.read_json_lines(metrics) if "train/loss" in record)
    assert events[-3]["step"] == events[-4]["step"] == last >= 4
    assert (tmp_path / "small" / "classification" / "checkpoints" / f"step-{last:08d}").exists()


_WRONG = {
    "an unknown preset": (["tniy"], ExitCode.UNKNOWN_PRESET, "did you mean tiny"),
    "an unknown flag": (["tiny", "--seeed", "1"], ExitCode.BAD_FLAG, "--seeed"),
    "a word for a number": (["tiny", "--seed", "one"], ExitCode.BAD_FLAG, "--seed"),
    "no run to resume": (
        ["tiny", "--resume", "--name", "nothing"],
        ExitCode.NOT_FOUND,
        "nothing: give the --name of one",
    ),
    "a name that is a path": (["tiny", "--name", "a/b"], ExitCode.BAD_NAME, "'a/b'"),
    "a root that is a file": (["tiny", "--root", "/proc/version/runs"], ExitCode.NOT_WRITABLE, "/proc/version/runs"),
    "a Ray Client": (["tiny", "--cluster.address", "ray://head:10001"], ExitCode.BAD_FLAG, "Ray Jobs"),
    "more workers than cores": (
        ["tiny", "--cluster.num-workers", "4096"],
        ExitCode.TOO_FEW_RESOURCES,
        "4096 is more than",
    ),
}


def test_wrong_input_is_one_line_that_names_the_value_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """T5 (too few workers), S4 (names), and flags; what is refused is refused before anything is written."""
    commands = {
        name: words if "--root" in words else [*words, "--root", tmp_path] for name, (words, *_) in _WRONG.items()
    }
    results = run_commands("train.pretrain", commands)
    for name, (_, code, words) in _WRONG.items():
        found = results[name]
        assert found.status == code, name
        assert found.err.startswith("error: ") and found.err.count("\n") == 1 and words in found.err, name
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_running_is_refused_and_named(tmp_path: pathlib.Path) -> None:
    """D6, T10."""
    (tmp_path / "small").mkdir()
    with files.FolderLock(tmp_path / "small"):
        done = _run(_flags(tmp_path))
    assert done.returncode == ExitCode.RUN_BUSY
    assert f"process {os.getpid()}" in done.stderr
