"""The MLflow server on the local store: its pages in a browser, on this machine only unless told otherwise (S2)."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

from tools import tracking
from tools.failure import ExitCode, Failure

_START_SECONDS = 120.0
_STOP_SECONDS = 5.0
_MAX_PORT = 65535


@contextlib.contextmanager
def serving(*, root: pathlib.Path, port: int, host: str = "127.0.0.1") -> Iterator[subprocess.Popen[bytes]]:
    """Runs the server until the block ends; nothing of it is left behind.

    Args:
        root: the folder that holds `mlflow.db` and `artifacts`.
        port: a free port.
        host: the interface; loopback unless the caller has put authentication in front.

    Raises:
        Failure: what `check` raises; WORKER_FAILED when the server does not come up.
    """
    check(root=root, port=port, host=host)
    process = subprocess.Popen(
        _command(root, host=host, port=port),
        cwd=root,
        env={**os.environ, **tracking.OFFLINE, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_up(process, url=f"http://{host}:{port}/health")
        yield process
    finally:
        _stop(process)


def check(*, root: pathlib.Path, port: int, host: str = "127.0.0.1") -> None:
    """Refuses what cannot be served, before anything is started.

    Raises:
        Failure: BAD_FLAG for a port outside 1…65535; NOT_FOUND without a store; PORT_BUSY.
    """
    if not 1 <= port <= _MAX_PORT:
        raise Failure(ExitCode.BAD_FLAG, f"--port {port} is no port: give a number from 1 to {_MAX_PORT}")
    database = root / "mlflow.db"
    if not database.is_file():
        mend = "run `bazel run //train:pretrain` first, or name another folder with --root"
        raise Failure(ExitCode.NOT_FOUND, f"there is no tracking store at {database}: {mend}")
    _check_port(host, port)


def _command(root: pathlib.Path, *, host: str, port: int) -> list[str]:
    """`-P` keeps folders of ours that are named like packages of theirs off the server's path."""
    store = ["--backend-store-uri", tracking.database_uri(root), "--artifacts-destination", str(root / "artifacts")]
    address = ["--host", host, "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"]
    return [sys.executable, "-P", "-m", "mlflow", "server", *store, *address]


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            mend = "end the program that uses it, or give another one with --port"
            raise Failure(ExitCode.PORT_BUSY, f"port {port} on {host} cannot be used ({error}): {mend}") from error


def _wait_until_up(process: subprocess.Popen[bytes], *, url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, OSError):
            with opener.open(url, timeout=2):
                return
        time.sleep(0.1)
    raise Failure(ExitCode.WORKER_FAILED, f"the MLflow server at {url} did not come up: its own lines above say why")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and whatever it started: they share a process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_STOP_SECONDS)
