"""Training on Ray: the only file of this package that imports ray. Workers run `train.job.run_job`, nothing else.

Checkpoints, records, locks and resumption are ours (`train/job.py`); Ray starts processes, connects them, and starts
them again when one dies. Our source goes to the workers as modules, so no node needs the repository.
"""

import contextlib
import importlib
import json
import logging
import os
import pathlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import ray
from ray import train as ray_train
from ray.train import torch as ray_torch

from tools import files, progress
from tools.failure import ExitCode, Failure
from train.cluster import RAY_SETTINGS, ClusterConfig, Workers, check_address, workers_for
from train.job import Place, TrainingJob, run_job

_POLL_SECONDS = 0.5
_MAX_FAILURES = 3
_COLLECTIVE_TIMEOUT_SECONDS = 300
_FIRST_PARTY = ("tools", "priors", "model", "eval", "train")
_TEMPORARY = pathlib.Path("/tmp")  # Ray's sockets need a short path


@contextlib.contextmanager
def connected(config: ClusterConfig, *, batch_sizes: Collection[int]) -> Iterator[Workers]:
    """Connects to Ray and checks that it has what the config asks for.

    Args:
        config: where.
        batch_sizes: of the models that will be trained; the number of workers divides each.

    Raises:
        Failure: BAD_FLAG for an address or a number that cannot be used; TOO_FEW_RESOURCES with both numbers.
    """
    check_address(config)
    logging.getLogger("ray").setLevel(logging.ERROR)
    handler = signal.getsignal(signal.SIGTERM)
    folder = _start_local() if config.address == "local" else _join()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place, which aborts the process
    try:
        resources = ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        yield workers_for(config, cpus=cpus, gpus=gpus, batch_sizes=batch_sizes)
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _options() -> dict[str, Any]:
    modules = [str(pathlib.Path(importlib.import_module(name).__file__).resolve().parent) for name in _FIRST_PARTY]
    runtime = {"py_modules": modules, "env_vars": dict(RAY_SETTINGS)}
    return {
        "runtime_env": runtime,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": False,
    }


def _join() -> None:
    try:
        context = ray.init(address="auto", **_options())
    except ConnectionError as error:
        mend = "start one with `ray start --head`, or use --cluster.address local"
        text = f"--cluster.address auto found no Ray cluster here: {mend}"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, text) from error
    progress.say(f"joined the Ray cluster at {context.address_info['gcs_address']}")


def _start_local() -> str:
    """Starts a Ray instance of our own, on loopback only; returns its temporary folder."""
    for left in _TEMPORARY.glob("veritab-*-*"):
        pid = left.name.split("-")[1]
        if pid.isdigit() and not pathlib.Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)  # of a job that was killed
    folder = tempfile.mkdtemp(prefix=f"veritab-{os.getpid()}-", dir=_TEMPORARY)
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            **_options(),
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def run_jobs(jobs: Sequence[TrainingJob], workers: Workers, *, poll: Callable[[], None]) -> None:
    """Trains the jobs one after the other in one Ray Train job on `workers`; `poll` is called while it runs.

    Ray's own call runs on a thread, because on the main one it would take Ctrl-C for itself.

    Raises:
        Failure: what a worker refused, or WORKER_FAILED after the fourth loss of a worker.
    """
    for job in jobs:
        _failure_file(job).unlink(missing_ok=True)
    storage = pathlib.Path(jobs[0].folder).parent / ".ray"
    shutil.rmtree(storage, ignore_errors=True)  # of a sitting that was killed
    trainer = _trainer(jobs, workers, storage=storage)
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # also what Ray raises here when it is shut down under a waiting call
            errors.append(error)

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            poll()
            _raise_recorded(jobs)
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    if errors:
        cause = str(errors[0]).strip().split("\n")[-1]
        mend = "run the same command again to go on from the newest checkpoint"
        text = f"training workers failed {_MAX_FAILURES + 1} times ({cause}): {mend}"
        raise Failure(ExitCode.WORKER_FAILED, text) from errors[0]


def _trainer(jobs: Sequence[TrainingJob], workers: Workers, *, storage: pathlib.Path) -> ray_torch.TorchTrainer:
    gpus = {"GPU": workers.gpus_each} if workers.gpus_each else {}
    failures = ray_train.FailureConfig(max_failures=_MAX_FAILURES, controller_failure_limit=_MAX_FAILURES)
    return ray_torch.TorchTrainer(
        _work,
        train_loop_config={"jobs": list(jobs)},
        torch_config=ray_torch.TorchConfig(timeout_s=_COLLECTIVE_TIMEOUT_SECONDS),
        scaling_config=ray_train.ScalingConfig(
            num_workers=workers.count, use_gpu=bool(gpus), resources_per_worker={"CPU": 1, **gpus}
        ),
        run_config=ray_train.RunConfig(name="train", storage_path=str(storage), failure_config=failures),
    )


def _work(config: dict[str, Any]) -> None:
    """Runs on every worker. A refusal is left in a file, so that Ray does not try again what cannot work.

    The process that started the job sees the file and ends all workers, also those that wait for this one.
    """
    context = ray_train.get_context()
    device = ray_torch.get_device()
    place = Place(rank=context.get_world_rank(), world_size=context.get_world_size(), device=device)
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
