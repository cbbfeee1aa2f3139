"""A Ray cluster of several nodes on this machine, for tests: each node is a process tree that can be killed."""

import contextlib
import dataclasses
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

_START_SECONDS = 240.0
_MARK = "VERITAB_NODE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One node.

    Args:
        name: as Ray shows it.
        host: its loopback address, another for each node.
        process: `ray start --block`, the parent of the node's processes.
        mark: what the environment of each of its processes holds.
    """

    name: str
    host: str
    process: subprocess.Popen[bytes]
    mark: str

    def pids(self) -> list[int]:
        """Every live process of the node, workers among them."""
        return processes_with(f"{_MARK}={self.mark}")

    def kill(self) -> None:
        """Kills −9 everything at once, as when a machine loses power."""
        for _ in range(3):  # what was being forked while the first round ran
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """A head and further nodes, with a token.

    Args:
        folder: short, removed by whoever made it.
        dashboard: whether the head takes submitted jobs.
    """

    def __init__(self, folder: pathlib.Path, *, dashboard: bool = False) -> None:
        self._folder, self._dashboard = folder, dashboard
        self._nodes: list[Node] = []
        self._port, self._dashboard_port = free_port(), free_port()
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ADDRESS": f"127.0.0.1:{self._port}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240",
            "RAY_health_check_initial_delay_ms": "0",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        """What a process needs to join."""

    @property
    def jobs_address(self) -> str:
        """Where jobs are submitted."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    def start(self, name: str, *, cpus: int = 1, environment: Mapping[str, str] = {}) -> Node:
        """Starts a node, the head first; returns when Ray says that it runs."""
        host = f"127.0.0.{len(self._nodes) + 1}"
        flags = ["--block", "--disable-usage-stats", f"--num-cpus={cpus}", f"--node-name={name}"]
        flags += [f"--node-ip-address={host}", f"--temp-dir={self._folder / name}", "--object-store-memory=100000000"]
        if self._nodes:
            flags += [f"--address=127.0.0.1:{self._port}"]
        else:
            flags += ["--head", f"--port={self._port}", f"--include-dashboard={self._dashboard}"]
            flags += ["--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard_port}"]
        mark = f"{self._folder.name}-{name}-{len(self._nodes)}"
        said = self._folder / f"{mark}.log"
        inherited = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        own = {key: value for key, value in self.environment.items() if key != "RAY_ADDRESS"}
        with said.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *flags],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**inherited, **own, **environment, _MARK: mark},
                start_new_session=True,
                cwd=self._folder,
            )
        node = Node(name=name, host=host, process=process, mark=mark)
        self._nodes.append(node)
        deadline = time.monotonic() + _START_SECONDS
        while "Ray runtime started" not in said.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"node {name} did not start: {said.read_text()[-2000:]}")
            time.sleep(0.1)
        return node

    def close(self) -> None:
        """Ends every node."""
        for node in reversed(self._nodes):
            node.kill()


@contextlib.contextmanager
def cluster(*, dashboard: bool = False) -> Iterator[Cluster]:
    """A cluster without nodes; those that are started end with the context, and so do their folders."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vt-", dir="/tmp"))  # Ray's sockets need a short path
    made = Cluster(folder, dashboard=dashboard)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def processes_with(variable: str) -> list[int]:
    """The live processes whose environment holds `variable`, "NAME=value"; this one is left out."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
