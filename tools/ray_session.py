"""How our programs start Ray or join it: everything but the import, so that `--help` and local runs need none of it."""

import contextlib
import functools
import logging
import os
import pathlib
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from tools import files, source_archive
from tools.environment import environment
from tools.failure import BadInput, ExitCode

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
    "RAY_gcs_rpc_server_connect_timeout_s": "20",  # by default 5, and then a line of its own beside our refusal
}
"""Environment variables that Ray reads while it is imported; workers get them too."""

_LOCAL_SETTINGS = {
    "GLOO_SOCKET_IFNAME": "lo",  # or workers would talk over the network's interface
    "NCCL_SOCKET_IFNAME": "lo",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # nobody takes this machine away
}
_TEMPORARY = pathlib.Path("/tmp")  # not TMPDIR: Ray's sockets need a short path


def export_settings() -> None:
    """Puts `RAY_SETTINGS` into the environment, but for what is set there already: before ray is imported."""
    os.environ.update({name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()})


def check_address(address: str) -> None:
    """Refuses an address that a job of ours cannot run over.

    Raises:
        BadInput: BAD_FLAG.
    """
    if address.startswith("ray://"):
        raise BadInput(
            ExitCode.BAD_FLAG,
            f"--cluster.address {address} is a Ray Client address, which is not supported: "
            "submit the command with Ray Jobs (`ray job submit --address http://HEAD:8265 -- ...`) "
            "and use --cluster.address auto",
        )
    if address not in ("local", "auto"):
        raise BadInput(ExitCode.BAD_FLAG, f"--cluster.address {address!r} is not known: use local or auto")


def num_workers(wanted: int | None, *, cores: int) -> int:
    """How many tasks of one core a cluster of `cores` runs at once: as many as it has cores where None is wanted.

    Raises:
        BadInput: BAD_FLAG below 1; TOO_FEW_RESOURCES with both numbers.
    """
    if wanted is None:
        wanted = max(cores, 1)
    if wanted < 1:
        raise BadInput(ExitCode.BAD_FLAG, f"--cluster.num-workers {wanted} is too small: give 1 or more")
    if wanted > cores:
        text = f"--cluster.num-workers {wanted} is more than the cluster's {cores} cores: ask for {cores} or fewer"
        raise BadInput(ExitCode.TOO_FEW_RESOURCES, text)
    return wanted


def answers(address: str, *, seconds: float) -> bool:
    """Whether something accepts connections at "host:port" within `seconds`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def init_arguments(
    address: str, *, packages: Sequence[str], archive_uri: str | None = None
) -> Iterator[dict[str, Any]]:
    """What `ray.init` is called with, for the time that the connection lasts.

    Args:
        address: checked. "local" is an instance of our own on loopback, with a token of its own, in a folder that is
            removed afterwards; its workers import our packages from where this process does.
        packages: our packages that workers import.
        archive_uri: where a cluster's nodes find the archive of these packages.
    """
    uri = f"local://{source_archive.source_root(packages)}" if address == "local" else archive_uri
    settings = RAY_SETTINGS | (_LOCAL_SETTINGS if address == "local" else {})
    options: dict[str, Any] = {
        "address": address,
        "runtime_env": {"py_modules": [uri], "env_vars": settings},
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": False,
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address != "local":
        yield options
        return
    _remove_left_over()
    folder = tempfile.mkdtemp(prefix=folder_prefix(os.getpid()), dir=_TEMPORARY)
    try:
        with _own_environment():
            yield {**options, "include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def folder_prefix(pid: int | str) -> str:
    """How the name begins of the folder, in /tmp, of an instance of process `pid` of this machine or container."""
    space = re.sub(r"\D", "", files.pid_namespace())[-4:]  # Ray's sockets need a short path
    return f"veritab-{pid}-{space}-"


def _remove_left_over() -> None:
    """Removes the folders of jobs that were killed, where that can be seen from here."""
    if not files.pid_namespace():
        return
    for left in _TEMPORARY.glob(folder_prefix("*") + "*"):
        if not pathlib.Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)


@functools.cache
def _token() -> str:
    """One for the life of this process: Ray keeps what it read first."""
    return secrets.token_hex(32)


def _own_environment() -> contextlib.AbstractContextManager[None]:
    """What an instance of our own reads from the environment as it starts.

    A token that nobody else knows, because Ray would write one into HOME; and workers that are no nicer than this
    process, because by Ray's default (15) whatever else runs here would take their cores. Nor does Ray kill workers
    when others fill the memory: that would cost steps, and free what training takes again at once.
    """
    own = {"RAY_worker_niceness": "0", "RAY_memory_monitor_refresh_ms": "0"}
    return environment(RAY_AUTH_TOKEN=_token(), **own)
