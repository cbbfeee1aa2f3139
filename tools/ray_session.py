"""How our programs start Ray or join it: everything but the import, so that `--help` and local runs need none of it."""

import contextlib
import dataclasses
import importlib
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from tools.failure import BadInput, ExitCode

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables that Ray reads while it is imported; workers get them too."""

_TEMPORARY = pathlib.Path("/tmp")  # Ray's sockets need a short path


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Where Ray runs."""

    address: str | None = None
    """"auto": the cluster that this machine belongs to; "local": a Ray instance on this machine; by default no Ray."""
    num_workers: int | None = None
    """Parts that are made at once, one core each; by default as many as the cluster has cores."""


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


def num_workers(config: ClusterConfig, *, cores: int) -> int:
    """How many tasks of one core a cluster of `cores` runs at once.

    Raises:
        BadInput: BAD_FLAG below 1; TOO_FEW_RESOURCES with both numbers.
    """
    wanted = config.num_workers if config.num_workers is not None else max(cores, 1)
    if wanted < 1:
        raise BadInput(ExitCode.BAD_FLAG, f"--cluster.num-workers {wanted} is too small: give 1 or more")
    if wanted > cores:
        text = f"--cluster.num-workers {wanted} is more than the cluster's {cores} cores: ask for {cores} or fewer"
        raise BadInput(ExitCode.TOO_FEW_RESOURCES, text)
    return wanted


@contextlib.contextmanager
def init_arguments(address: str, *, packages: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What `ray.init` is called with, for the time that the connection lasts.

    Args:
        address: checked. "local" is an instance of our own on loopback, in a folder that is removed afterwards.
        packages: our packages that workers import; their source goes along, so that no node needs the repository.
    """
    modules = [str(pathlib.Path(str(importlib.import_module(name).__file__)).resolve().parent) for name in packages]
    options: dict[str, Any] = {
        "address": address,
        "runtime_env": {"py_modules": modules, "env_vars": dict(RAY_SETTINGS)},
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": False,
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address != "local":
        yield options
        return
    for left in _TEMPORARY.glob("veritab-*-*"):
        pid = left.name.split("-")[1]
        if pid.isdigit() and not pathlib.Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)  # of a job that was killed
    folder = tempfile.mkdtemp(prefix=f"veritab-{os.getpid()}-", dir=_TEMPORARY)
    try:
        yield {**options, "include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
