"""The MLflow server on the local store: loopback only, nothing left behind; and an outage in the middle of a run."""

import json
import os
import pathlib
import socket
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest

from tools import tracking, tracking_server
from tools.failure import ExitCode, Failure

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _write(path: pathlib.Path, steps: Sequence[int]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps({"step": step, "loss": 1.0 / (1 + step)}) + "\n" for step in steps)


def _members(group: int) -> list[int]:
    """Processes of a process group that still run."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _listening_addresses(port: int) -> set[str]:
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    lines += pathlib.Path("/proc/net/tcp6").read_text().splitlines()[1:] if os.path.exists("/proc/net/tcp6") else []
    rows = [line.split() for line in lines]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    tracking.load_mlflow().MlflowClient(tracking.database_uri(tmp_path)).search_experiments()
    return tmp_path


def test_a_server_killed_in_mid_run_and_restarted_has_every_point_once(store: pathlib.Path, capsys: Any) -> None:
    """K1: server killed mid-run and restarted; S2: it listens on loopback alone; T9: it leaves no process."""
    port, path = _free_port(), store / "metrics.jsonl"
    uri = f"http://127.0.0.1:{port}"
    with tracking_server.serving(root=store, port=port) as server:
        assert _listening_addresses(port) == {"0100007F"}
        tracker = tracking.Tracker.open(uri=uri, root=store, experiment="veritab", run_name="tiny")
        _write(path, range(0, 1500))
        tracker.replay(path)
    assert _members(server.pid) == []
    _write(path, range(1500, 1600))
    tracker.replay(path)
    tracker.log_params({"a": 1})
    with tracking_server.serving(root=store, port=port):
        _write(path, range(1600, 1700))
        tracker.replay(path)
        page = store / "report.html"
        page.write_text("<p>page</p>")
        tracker.log_file(page)
        assert tracker.close() == 0
        query = f"{uri}/get-artifact?path=report.html&run_uuid={tracker.run_id}"
        with urllib.request.urlopen(query, timeout=20) as answer:
            assert answer.read() == b"<p>page</p>"
    client = tracking.load_mlflow().MlflowClient(tracking.database_uri(store))
    assert [point.step for point in client.get_metric_history(tracker.run_id, "loss")] == list(range(1700))
    assert client.get_run(tracker.run_id).data.params == {"a": "1"}
    assert capsys.readouterr().err.count("does not answer") == 1


def test_a_busy_port_is_refused_by_number(store: pathlib.Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Failure, match=str(port)) as failure, tracking_server.serving(root=store, port=port):
            pass
    assert failure.value.code == ExitCode.PORT_BUSY


def test_a_folder_without_a_store_is_refused_and_left_alone(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Failure, match="no tracking store") as failure, tracking_server.serving(root=tmp_path, port=1):
        pass
    assert failure.value.code == ExitCode.NOT_FOUND
    assert list(tmp_path.iterdir()) == []
