"""The program `//reports:ui`, run as users run it: it comes up, says where, and Ctrl-C ends it without a trace."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tools import tracking
from tools.failure import ExitCode

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow


def _start(*argv: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", "from reports.ui import main; main()", *argv]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _parents() -> dict[int, int]:
    """Every process that runs, with its parent."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    return parents


def _children(pid: int) -> list[int]:
    """Processes whose parent, or parent's parent, is `pid`."""
    parents = _parents()
    direct = {child for child, parent in parents.items() if parent == pid}
    return sorted(direct | {child for child, parent in parents.items() if parent in direct})


def test_it_serves_the_pages_and_ends_on_ctrl_c_without_leaving_a_process(tmp_path: pathlib.Path) -> None:
    """S2: loopback; T9: no process of ours after the end."""
    tracking.load_mlflow().MlflowClient(tracking.database_uri(tmp_path)).search_experiments()
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    with _start("--root", str(tmp_path), "--port", str(port)) as program:
        line = program.stdout.readline()
        assert address in line and str(tmp_path / "mlflow.db") in line, program.stderr.read()
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b"MLflow" in answer.read()
        started = _children(program.pid)
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 0 and "Traceback" not in program.stderr.read()
    assert started and not [child for child in started if child in _parents()]


def test_without_a_store_it_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with _start("--root", str(tmp_path)) as program:
        _, said = program.communicate(timeout=60)
    assert program.returncode == ExitCode.NOT_FOUND
    assert said.startswith("error: there is no tracking store") and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", ["0", "-1", "65536", "99999"])
def test_a_number_that_is_no_port_is_a_bad_flag(tmp_path: pathlib.Path, port: str) -> None:
    with _start("--root", str(tmp_path), f"--port={port}") as program:
        _, said = program.communicate(timeout=60)
    assert program.returncode == ExitCode.BAD_FLAG
    assert said.startswith(f"error: --port {port} is no port") and said.count("\n") == 1
