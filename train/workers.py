"""Training on Ray: the only file of this package that imports ray. Workers run `train.job.run_job`, nothing else.

Checkpoints, records, locks and resumption are ours (`train/job.py`); Ray starts processes, connects them, and starts
them again when one dies. Our source goes to the workers as modules, so no node needs the repository.
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray import train as ray_train
from ray.train import torch as ray_torch

from tools import files
from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig, Workers
from train.job import Place, TrainingJob, run_job

_POLL_SECONDS = 0.5
_MAX_FAILURES = 3
_COLLECTIVE_TIMEOUT_SECONDS = 300
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
}
_FIRST_PARTY = ("tools", "priors", "model", "eval", "train")


@contextlib.contextmanager
def connected(config: ClusterConfig) -> Iterator[Workers]:
    """Connects to Ray and checks that it has what the config asks for.

    Raises:
        Failure: BAD_FLAG for an address that cannot be used; TOO_FEW_RESOURCES with both numbers.
    """
    if config.address.startswith("ray://"):
        raise Failure(
            ExitCode.BAD_FLAG,
            f"--cluster.address {config.address} is a Ray Client address, over which training is not supported: "
            "submit the command with Ray Jobs (`ray job submit --address http://HEAD:8265 -- ...`) "
            "and use --cluster.address auto",
        )
    if config.address not in ("local", "auto"):
        raise Failure(ExitCode.BAD_FLAG, f"--cluster.address {config.address!r} is not known: use local or auto")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.ERROR)
    started = _connect(config.address)
    try:
        yield _checked(config, ray.cluster_resources())
    finally:
        ray.shutdown()
        if started is not None:
            shutil.rmtree(started, ignore_errors=True)


def _connect(address: str) -> str | None:
    """Starts or joins Ray; returns the temporary folder of an instance of ours (Ray's sockets need a short path)."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    runtime = {"py_modules": [_package_folder(name) for name in _FIRST_PARTY], "env_vars": dict(_SETTINGS)}
    if address == "auto":
        try:
            ray.init(address="auto", runtime_env=runtime, **options)
        except ConnectionError as error:
            mend = "start one with `ray start --head`, or use --cluster.address local"
            raise Failure(
                ExitCode.TOO_FEW_RESOURCES, f"--cluster.address auto found no Ray cluster here: {mend}"
            ) from error
        return None
    folder = tempfile.mkdtemp(prefix="vt-", dir="/tmp")
    ray.init(
        address="local",
        runtime_env=runtime,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
        **options,
    )
    return folder


def _package_folder(name: str) -> str:
    """The real folder of one of our packages."""
    module = __import__(name)
    return str(pathlib.Path(module.__file__).resolve().parent)


def _checked(config: ClusterConfig, resources: dict[str, float]) -> Workers:
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    each = config.gpus_per_worker if config.gpus_per_worker is not None else min(1, gpus)
    if each < 0 or (config.num_workers is not None and config.num_workers < 1):
        raise Failure(
            ExitCode.BAD_FLAG, f"--cluster.num-workers {config.num_workers} with {each} GPUs each: give 1 or more"
        )
    have, noun = (
        (gpus // each, f"GPU workers ({gpus} GPUs, {each} each)") if each else (cpus, "CPU workers (one a core)")
    )
    wanted = config.num_workers if config.num_workers is not None else have
    if wanted > have or have < 1:
        raise Failure(
            ExitCode.TOO_FEW_RESOURCES,
            f"--cluster.num-workers {max(wanted, 1)} is more than the cluster's {have} {noun}: ask for {have} or fewer",
        )
    return Workers(count=wanted, gpus_each=each)


def run_jobs(jobs: Sequence[TrainingJob], workers: Workers, *, poll: Callable[[], None]) -> None:
    """Trains the jobs one after the other in one Ray Train job on `workers`; `poll` is called while it runs.

    Raises:
        Failure: what a worker refused, or WORKER_FAILED after the fourth loss of a worker.
    """
    for job in jobs:
        _failure_file(job).unlink(missing_ok=True)
    storage = pathlib.Path(jobs[0].folder).parent / f".ray-{os.getpid()}"
    trainer = ray_torch.TorchTrainer(
        _work,
        train_loop_config={"jobs": list(jobs)},
        torch_config=ray_torch.TorchConfig(timeout_s=_COLLECTIVE_TIMEOUT_SECONDS),
        scaling_config=ray_train.ScalingConfig(
            num_workers=workers.count,
            use_gpu=workers.gpus_each > 0,
            resources_per_worker={"CPU": 1, **({"GPU": workers.gpus_each} if workers.gpus_each else {})},
        ),
        run_config=ray_train.RunConfig(
            name="train",
            storage_path=str(storage),
            failure_config=ray_train.FailureConfig(max_failures=_MAX_FAILURES, controller_failure_limit=_MAX_FAILURES),
        ),
    )
    try:
        with _polling(poll):
            trainer.fit()
    except Exception as error:
        _raise_recorded(jobs)
        cause = str(error).strip().split("\n")[-1]
        mend = "run the same command again to go on from the newest checkpoint"
        raise Failure(
            ExitCode.WORKER_FAILED, f"training workers failed {_MAX_FAILURES + 1} times ({cause}): {mend}"
        ) from error
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    _raise_recorded(jobs)


def _work(config: dict[str, Any]) -> None:
    """Runs on every worker. A refusal is left in a file, so that Ray does not try again what cannot work."""
    context = ray_train.get_context()
    place = Place(rank=context.get_world_rank(), world_size=context.get_world_size(), device=ray_torch.get_device())
    for job in config["jobs"]:
        try:
            run_job(job, place)
        except Failure as failure:
            files.write_json(_failure_file(job), {"code": int(failure.code), "message": failure.message})
            return


def _failure_file(job: TrainingJob) -> pathlib.Path:
    return pathlib.Path(job.folder) / "failure.json"


def _raise_recorded(jobs: Sequence[TrainingJob]) -> None:
    for job in jobs:
        if _failure_file(job).exists():
            recorded = json.loads(_failure_file(job).read_bytes())
            _failure_file(job).unlink()
            raise Failure(ExitCode(recorded["code"]), recorded["message"])


@contextlib.contextmanager
def _polling(poll: Callable[[], None]) -> Iterator[None]:
    """Calls `poll` twice a second on a thread, and once more at the end."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(_POLL_SECONDS):
            poll()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        poll()
