"""Training on Ray: the only file of this package that imports ray. Workers run `train.job.run_job`, nothing else.

Checkpoints, records, locks and resumption are ours (`train/job.py`); Ray starts processes, connects them, and starts
them again when one dies. Our source goes to the workers as modules, so no node needs the repository.
"""

import contextlib
import json
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import ray
from ray import train as ray_train
from ray.train import torch as ray_torch

from tools import files, progress, ray_session
from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig, Workers, check_address, workers_for
from train.job import Place, TrainingJob
from train.sitting import run_job

_POLL_SECONDS = 0.5
_MAX_FAILURES = 3
_COLLECTIVE_TIMEOUT_SECONDS = 300
_FIRST_PARTY = ("tools", "priors", "model", "eval", "train")


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
    handler = signal.getsignal(signal.SIGTERM)
    with ray_session.init_arguments(config.address, packages=_FIRST_PARTY) as arguments:
        try:
            context = ray.init(**arguments)
        except ConnectionError as error:
            mend = "start one with `ray start --head`, or use --cluster.address local"
            text = f"--cluster.address {config.address} found no Ray cluster here: {mend}"
            raise Failure(ExitCode.TOO_FEW_RESOURCES, text) from error
        if config.address != "local":
            progress.say(f"joined the Ray cluster at {context.address_info['gcs_address']}")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place, which aborts the process
        try:
            resources = ray.cluster_resources()
            cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
            yield workers_for(config, cpus=cpus, gpus=gpus, batch_sizes=batch_sizes)
        finally:
            ray.shutdown()


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
