"""Tracking: everything arrives once, and nothing that a store does can stop a job."""

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tools import tracking
from tools.failure import ExitCode, Failure
from tools.tracking import Tracker

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow


def _write(path: pathlib.Path, rows: Sequence[dict[str, float]]) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def _open(root: pathlib.Path, *, name: str = "tiny", uri: str | None = None) -> Tracker:
    return Tracker.open(uri=uri, root=root, experiment="veritab", run_name=name)


def _client(root: pathlib.Path) -> Any:
    return tracking.load_mlflow().MlflowClient(tracking.database_uri(root))


def _runs(root: pathlib.Path) -> list[Any]:
    client = _client(root)
    return list(client.search_runs([client.get_experiment_by_name("veritab").experiment_id]))


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store without runs (making one takes a second and a half)."""
    root = tmp_path_factory.mktemp("store")
    _client(root).search_experiments()
    return (root / "mlflow.db").read_bytes()


@pytest.fixture
def root(tmp_path: pathlib.Path, empty_store: bytes) -> pathlib.Path:
    folder = tmp_path / "runs of mine"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(empty_store)
    return folder


def test_each_key_and_step_arrives_once_whatever_is_replayed_resumed_or_written_twice(root: pathlib.Path) -> None:
    """K1: the spool is replayed once per (key, step); T11: order is by step only."""
    path = _write(root / "tiny" / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in range(1, 1201)])
    tracker = _open(root)
    tracker.replay(path, prefix="classification/")
    tracker.replay(path, prefix="classification/")
    _write(path, [{"step": step, "loss": 9.0} for step in range(1100, 1301)])  # a resume repeats 101 steps
    tracker.replay(path, prefix="classification/")
    again = _open(root)
    again.replay(path, prefix="classification/")
    history = _client(root).get_metric_history(again.run_id, "classification/loss")
    assert again.run_id == tracker.run_id
    assert [point.step for point in history] == list(range(1, 1301))
    assert _client(root).get_run(again.run_id).data.metrics["classification/loss"] == 9.0


def test_steps_that_were_lost_and_trained_anew_arrive_once_after_a_restart(root: pathlib.Path) -> None:
    """K1: once per (key, step), also where a later process finds other values for steps that the store has."""
    path = _write(root / "tiny" / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in range(1, 11)])
    _open(root).replay(path)
    path.unlink()
    _write(path, [{"step": step, "loss": 5.0} for step in range(1, 16)])
    again = _open(root)
    again.replay(path)
    history = _client(root).get_metric_history(again.run_id, "loss")
    assert sorted(point.step for point in history) == list(range(1, 16))


def test_a_call_that_arrived_without_an_answer_is_not_repeated(root: pathlib.Path, monkeypatch: Any) -> None:
    """K1: the store took the points, the connection broke before it could say so."""
    tracker = _open(root)
    client_type = type(tracker._client)
    whole = client_type.log_batch

    def broken(self: Any, *args: Any, **kwargs: Any) -> None:
        whole(self, *args, **kwargs)
        raise ConnectionError("reset by peer")

    path = _write(root / "tiny" / "metrics.jsonl", [{"step": step, "loss": 0.5} for step in range(10)])
    with monkeypatch.context() as patch:
        patch.setattr(client_type, "log_batch", broken)
        tracker.replay(path)
    tracker._retry_at = 0.0
    sent: list[Any] = []
    monkeypatch.setattr(client_type, "log_batch", lambda self, run_id, metrics=(), **rest: sent.extend(metrics))
    tracker.replay(path)
    assert sent == []
    assert len(_client(root).get_metric_history(tracker.run_id, "loss")) == 10


def test_a_torn_line_and_values_that_are_no_numbers_are_passed_over(root: pathlib.Path) -> None:
    path = root / "tiny" / "metrics.jsonl"
    path.parent.mkdir()
    whole = '{"step": 1, "loss": 2.0, "note": "x", "bad": null}'
    path.write_text("\n".join((whole, '{"step": 2, "lo', '{"step": 3, "loss": NaN}', '{"step"')))
    tracker = _open(root)
    tracker.replay(path)
    history = _client(root).get_metric_history(tracker.run_id, "loss")
    assert [point.step for point in history] == [1, 3]
    assert tracker.close() == 0


def test_eight_fresh_starts_at_once_all_succeed(tmp_path: pathlib.Path) -> None:
    """K2: eight processes meet a folder without a database."""
    code = (
        "import pathlib, sys; from tools.tracking import Tracker\n"
        "t = Tracker.open(uri=None, root=pathlib.Path(sys.argv[1]), experiment='veritab', run_name=sys.argv[2])\n"
        "t.log_params({'a': 1}); sys.exit(t.close() or not t.run_id)"
    )
    root, started = tmp_path / "runs", []
    for index in range(8):
        own = tmp_path / f"machine-{index}"  # nothing is shared but the root: mlflow's own lock lies in TMPDIR
        own.mkdir()
        environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "HOME": str(own), "TMPDIR": str(own)}
        command = [sys.executable, "-c", code, str(root), f"run-{index}"]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    assert [process.wait(timeout=120) for process in started] == [0] * 8
    assert sorted(run.info.run_name for run in _runs(root)) == [f"run-{index}" for index in range(8)]


def test_a_crashed_run_is_resumed_and_ends_once(root: pathlib.Path) -> None:
    """K2: kill -9 leaves a run RUNNING; the same name continues it and closes it."""
    crashed = _open(root)
    crashed.log_params({"steps": 5, "optimizer": {"rate": 0.1}})
    resumed = _open(root)
    resumed.log_params({"steps": 5, "optimizer": {"rate": 0.1}, "late": "yes"})
    assert resumed.close() == 0
    (run,) = _runs(root)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"steps": "5", "optimizer.rate": "0.1", "late": "yes"}


def test_a_run_of_the_same_name_that_is_not_this_folder_s_is_left_alone(root: pathlib.Path) -> None:
    """K2: only the run that tracking.json names is resumed and closed; another may still be at work."""
    theirs = _open(root)
    (root / "tiny" / "tracking.json").unlink()
    mine = _open(root)
    mine.close()
    assert {run.info.run_id: run.info.status for run in _runs(root)} == {
        theirs.run_id: "RUNNING",
        mine.run_id: "FINISHED",
    }


def test_a_program_that_only_adds_leaves_the_run_as_it_found_it(root: pathlib.Path) -> None:
    _open(root)
    _open(root).close(None)
    assert [run.info.status for run in _runs(root)] == ["RUNNING"]
    _open(root).close("FAILED")
    _open(root).close(None)
    assert [run.info.status for run in _runs(root)] == ["FAILED"]


def test_a_changed_parameter_is_reported_and_long_values_are_cut(root: pathlib.Path, capsys: Any) -> None:
    _open(root).log_params({"steps": 5, "long": "x" * 20000})
    tracker = _open(root)
    tracker.log_params({"steps": 6, "new": 1})
    assert tracker.close() == 1
    assert "steps" in capsys.readouterr().err
    (run,) = _runs(root)
    assert (run.data.params["steps"], run.data.params["new"]) == ("5", "1")
    assert run.data.params["long"] == "x" * 5999 + "…"


def test_scores_lose_their_mark_only_after_a_pass(root: pathlib.Path) -> None:
    """5.G: not-yet-verified scores are marked in MLflow too."""
    tracker = _open(root)
    tracker.log_scores({"wine/auc_ovr": 0.9}, status="not-yet-verified")
    assert _runs(root)[0].data.metrics == {"not-yet-verified/wine/auc_ovr": 0.9}
    assert _runs(root)[0].data.tags["verification"] == "not-yet-verified"
    tracker.log_scores({"wine/auc_ovr": 0.9}, status="verified")
    assert _runs(root)[0].data.metrics == {"not-yet-verified/wine/auc_ovr": 0.9, "wine/auc_ovr": 0.9}
    assert _runs(root)[0].data.tags["verification"] == "verified"


def test_names_that_the_store_would_refuse_are_mended(root: pathlib.Path) -> None:
    """S4: a table may be called anything."""
    tracker = _open(root)
    tracker.log_scores({"a(b)/../<c>//é": 0.5}, status="not-yet-verified")
    assert tracker.close() == 0
    assert list(_runs(root)[0].data.metrics) == ["not-yet-verified/a_b_/__/_c_/_"]


def test_data_sets_and_files_belong_to_the_run(root: pathlib.Path) -> None:
    page = root / "tiny" / "report.html"
    page.parent.mkdir()
    page.write_text("<p>")
    (page.parent / "figures").mkdir()
    (page.parent / "figures" / "mask.svg").write_text("<svg/>")
    tracker = _open(root)
    for _ in range(2):
        tracker.log_dataset(name="shards", digest="d" * 64, source="/data/shards")
    tracker.log_file(page)
    tracker.log_artifacts(page.parent / "figures", folder="figures")
    assert tracker.close() == 0
    (run,) = _runs(root)
    (dataset,) = run.inputs.dataset_inputs
    assert json.loads(dataset.dataset.source)["sha256"] == "d" * 64
    stored = root / "artifacts" / run.info.run_id / "artifacts"
    assert sorted(str(path.relative_to(stored)) for path in stored.rglob("*.*")) == ["figures/mask.svg", "report.html"]


def test_an_absent_server_neither_raises_nor_delays_and_is_named_once(tmp_path: pathlib.Path, capsys: Any) -> None:
    """K1: an outage never stops the job; close says what is missing."""
    path = _write(tmp_path / "tiny" / "metrics.jsonl", [{"step": 1, "loss": 1.0, "rate": 2.0}])
    started = time.monotonic()
    tracker = _open(tmp_path, uri="http://user:secret@127.0.0.1:9")
    for _ in range(20):
        tracker.replay(path)
        tracker.log_params({"a": 1})
    assert tracker.close() == 2 + 20
    assert time.monotonic() - started < 5
    said = capsys.readouterr().err
    assert said.startswith("tracking: opening http://***@127.0.0.1:9\ntracking: ")
    assert said.count("does not answer") == 1 and "metrics.jsonl" in said and "22 items were not delivered" in said
    assert "secret" not in said


def test_a_missing_file_does_not_hold_up_the_rest(root: pathlib.Path) -> None:
    tracker = _open(root)
    tracker.log_file(root / "absent.html")
    tracker.log_params({"a": 1})
    assert tracker.close() == 1
    assert _runs(root)[0].data.params == {"a": "1"}


_BAD_URIS = ["runs", "file:///tmp/x", "ftp://host", "", "sqlite://foo", "sqlite:///", "sqlite:///:memory:", "http://"]


def test_a_relative_database_lies_where_the_user_stands(
    tmp_path: pathlib.Path, empty_store: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: `bazel run` changes the working directory."""
    (tmp_path / "own.db").write_bytes(empty_store)
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    tracker = _open(tmp_path / "runs", uri="sqlite:///own.db")
    assert tracker.close() == 0
    client = tracking.load_mlflow().MlflowClient(f"sqlite:///{tmp_path / 'own.db'}")
    assert client.get_run(tracker.run_id).info.run_name == "tiny"


@pytest.mark.parametrize(
    "uri", ["sqlite:////data/mlflow.db", "http://127.0.0.1:5000", "https://u:p@host/x", "postgresql+psycopg2://u@h/db"]
)
def test_uris_that_name_a_place_stay_as_they_are(uri: str) -> None:
    assert tracking.checked_uri(uri) == uri


@pytest.mark.parametrize("uri", _BAD_URIS)
def test_a_tracking_uri_of_no_known_kind_is_refused(tmp_path: pathlib.Path, uri: str) -> None:
    """A mistake is no outage: one line, an exit code, nothing written."""
    with pytest.raises(Failure) as failure:
        _open(tmp_path, uri=uri)
    assert failure.value.code == ExitCode.BAD_FLAG and repr(uri) in str(failure.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "a/b", "", "x" * 129, ".."])
def test_a_run_name_cannot_leave_the_root(tmp_path: pathlib.Path, name: str) -> None:
    """S4: names are checked before a folder is made."""
    with pytest.raises(Failure) as failure:
        _open(tmp_path, name=name)
    assert failure.value.code == ExitCode.BAD_NAME


def test_tags_may_change_where_parameters_may_not(root: pathlib.Path) -> None:
    tracker = _open(root)
    tracker.set_tags({"config.cluster.num_workers": "1", "long": "x" * 7000})
    tracker.set_tags({"config.cluster.num_workers": "2"})
    assert tracker.close() == 0
    (run,) = _runs(root)
    assert run.data.tags["config.cluster.num_workers"] == "2" and len(run.data.tags["long"]) == 6000
