"""Training on Ray: the only library of this package that imports ray. Workers run `train.sitting.run_job` alone.

Checkpoints, records, locks and resumption are ours (`train/job.py`); Ray starts processes, connects them, and starts
them again when one dies. Our source goes to the workers as one zip, so no node needs the repository.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import ray
import torch
from ray import train as ray_train
from ray.train import backend
from ray.train import torch as ray_torch
from ray.util import scheduling_strategies
from torch import distributed

from tools import files, progress, ray_connection, source_archive
from tools.failure import ExitCode, Failure
from train import preflight
from train.cluster import ClusterConfig, NodeSize, Workers, workers_for
from train.events import EVENTS, EventLog, RunEvent
from train.job import Place, TrainingJob
from train.sitting import run_job

_POLL_SECONDS = 0.5
_MAX_FAILURES = 3
_MAX_STARTS = 12  # attempts, 20 seconds each (RAY_SETTINGS), to find room for the workers: a lost node may come back
_COLLECTIVE_TIMEOUT_SECONDS = 300
_PREFLIGHT_SECONDS = 90.0
_STOP_SECONDS = 20.0  # for a checkpoint; Ray and the tracker then have ten to close
_LOOK_SECONDS = 1.0  # between two looks at the stop file
_RESIZE_SECONDS = 60.0  # how often an elastic group looks for further nodes
_LOOPBACK = "127.0.0.1"
_CAUSE_CHARACTERS = 200  # of what Ray says
_FIRST_PARTY = ("tools", "priors", "model", "eval", "train")


@contextlib.contextmanager
def connected(
    config: ClusterConfig, *, batch_sizes: Collection[int], shared: pathlib.Path | None = None
) -> Iterator[Workers]:
    """Connects to Ray and checks that it has what the config asks for, and that its nodes can work.

    Args:
        config: where.
        batch_sizes: of the models that will be trained; each has a task for every worker.
        shared: a folder that all nodes must reach; by default none is asked for.

    Raises:
        Failure: BAD_FLAG for an address or a number that cannot be used; TOO_FEW_RESOURCES with both numbers, or where
            no cluster answers; WORKER_FAILED and NOT_WRITABLE naming a node that cannot work.
    """
    if config.address == "local":  # what is too much anyway is refused before Ray starts
        machine = NodeSize(cpus=os.cpu_count() or 1, gpus=torch.cuda.device_count())
        workers_for(config, nodes=[machine], batch_sizes=batch_sizes)
        progress.say("starting Ray on this machine")
    with ray_connection.connection(config.address, packages=_FIRST_PARTY):
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        sizes = {name: _size(node["Resources"]) for name, node in nodes.items()}
        workers = workers_for(config, nodes=list(sizes.values()), batch_sizes=batch_sizes)
        if config.address != "local":  # there, nothing can differ
            used = {name: node for name, node in nodes.items() if sizes[name].holds(workers.gpus_each)}
            progress.say(f"looking at packages, code and folders of the nodes ({len(used)})")
            _check_nodes(used, shared=shared)
        yield workers


def _size(resources: dict[str, float]) -> NodeSize:
    return NodeSize(cpus=int(resources.get("CPU", 0)), gpus=int(resources.get("GPU", 0)))


def _check_nodes(nodes: dict[str, dict[str, Any]], *, shared: pathlib.Path | None) -> None:
    """The preflight: a task on each node finds what is there; the first that differs from here is refused."""
    sources = source_archive.packed(_FIRST_PARTY).paths
    here = preflight.inspect(sources)
    ray.cloudpickle.register_pickle_by_value(preflight)  # a node may import another file of that name
    with contextlib.ExitStack() as stack:
        stack.callback(ray.cloudpickle.unregister_pickle_by_value, preflight)
        folder = stack.enter_context(preflight.SharedFolder(shared)) if shared is not None else None
        question = {"shared": str(folder.folder), "nonce": folder.nonce} if folder is not None else {}
        look, waiting = ray.remote(num_cpus=0, max_retries=0)(preflight.inspect), {}
        for name in nodes:
            strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(name, soft=False)
            waiting[name] = look.options(scheduling_strategy=strategy).remote(sources, who=name, **question)
        deadline = time.monotonic() + _PREFLIGHT_SECONDS
        for name, handle in waiting.items():
            label = f"{nodes[name]['NodeName']} ({nodes[name]['NodeManagerAddress']})"
            there = _answer(handle, label, seconds=deadline - time.monotonic())
            if text := preflight.refusal(label, here=here, there=there, shared=str(shared)):
                raise Failure(ExitCode.NOT_WRITABLE if "--root" in text else ExitCode.WORKER_FAILED, text)
            if folder is not None and not folder.has_answer(name):
                text = f"node {label} has another folder at --root {shared}: give one that all nodes share"
                raise Failure(ExitCode.NOT_WRITABLE, text)


def _answer(handle: ray.ObjectRef, label: str, *, seconds: float) -> dict[str, str]:
    try:
        return ray.get(handle, timeout=max(0.1, seconds))
    except ray.exceptions.GetTimeoutError as error:
        what = f"node {label} did not answer within {_PREFLIGHT_SECONDS:.0f} s"
        raise Failure(ExitCode.WORKER_FAILED, f"{what}: look at `ray status`, or take that node out") from error
    except ray.exceptions.RayError as error:
        cause = " ".join(str(error).split())[-300:]
        mend = "install requirements.lock on every node"
        raise Failure(ExitCode.WORKER_FAILED, f"node {label} cannot work ({cause}): {mend}") from error


def run_jobs(jobs: Sequence[TrainingJob], workers: Workers, *, poll: Callable[[], None]) -> None:
    """Trains the jobs one after the other in one Ray Train job on `workers`; `poll` is called while it runs.

    Ray's own call runs on a thread, because on the main one it would take Ctrl-C for itself. An interrupt asks the
    workers, through the file `stop` in the run's folder, to end after a checkpoint; a second one ends at once.

    Raises:
        Failure: what a worker refused; WORKER_FAILED after the fourth loss of a worker; INTERRUPTED where somebody
            else wrote into the file `stop`.
        KeyboardInterrupt: once training has ended on an interrupt.
    """
    for job in jobs:
        _failure_file(job).unlink(missing_ok=True)
    stop, storage = _stop_file(jobs[0]), pathlib.Path(jobs[0].folder).parent / ".ray"
    shutil.rmtree(storage, ignore_errors=True)  # of a sitting that was killed
    stop.write_bytes(b"")
    trainer = _trainer(jobs, workers, storage=storage)
    errors: list[BaseException] = []
    ended = threading.Event()

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # also what Ray raises here when it is shut down under a waiting call
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=fit, daemon=True).start()
    try:
        _wait(ended, jobs, poll=poll, stop=stop)
    finally:
        stop.unlink(missing_ok=True)
        shutil.rmtree(storage, ignore_errors=True)
    if errors:
        cause = textwrap.shorten(str(errors[0]).strip().split("\n")[-1], _CAUSE_CHARACTERS)
        mend = "run the same command again to go on from the newest checkpoint"
        what = f"failed {_MAX_FAILURES + 1} times"
        if isinstance(errors[0], ray_train.ControllerError):
            what = "could not be started"
        raise Failure(ExitCode.WORKER_FAILED, f"training workers {what} ({cause}): {mend}") from errors[0]
    if unfinished := [job.network.kind.value for job in jobs if not job.is_complete()]:
        what = f"training was stopped by a word in {stop} before {' and '.join(unfinished)} ended"
        raise Failure(ExitCode.INTERRUPTED, f"{what}: the same command goes on from there")


def _wait(ended: threading.Event, jobs: Sequence[TrainingJob], *, poll: Callable[[], None], stop: pathlib.Path) -> None:
    """Until training ends: by itself, by a refusal, or on an interrupt.

    An event says so: Python 3.11 takes a thread for dead in whose `join` it was interrupted.
    """
    deadline = None
    while not ended.is_set():
        try:
            ended.wait(_POLL_SECONDS)
            poll()
            _raise_recorded(jobs)
        except KeyboardInterrupt:
            if deadline is not None or not any(_ranks(jobs[0]).glob("*.json")):
                raise  # the second one, or nobody has begun
            stop.write_text("stop\n")
            deadline = time.monotonic() + _STOP_SECONDS
            progress.say("stopping after a checkpoint (once more: at once)")
        if deadline is not None and time.monotonic() > deadline:
            progress.say(f"no checkpoint within {_STOP_SECONDS:.0f} s: the newest one is from before")
            break
    if deadline is not None:
        raise KeyboardInterrupt
    _raise_recorded(jobs)


def _trainer(jobs: Sequence[TrainingJob], workers: Workers, *, storage: pathlib.Path) -> ray_torch.TorchTrainer:
    gpus = {"GPU": workers.gpus_each} if workers.gpus_each else {}
    failures = ray_train.FailureConfig(max_failures=_MAX_FAILURES, controller_failure_limit=_MAX_STARTS)
    losses = _Losses(str(storage.parent / EVENTS))
    joining: dict[str, Any] = {"timeout_s": _COLLECTIVE_TIMEOUT_SECONDS}
    if {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]} == {_LOOPBACK}:
        meeting: ray_torch.TorchConfig = _MeetInFile(folder=storage / "meetings", **joining)
    else:
        meeting = ray_torch.TorchConfig(**joining)
    return ray_torch.TorchTrainer(
        _work,
        train_loop_config={"jobs": list(jobs)},
        torch_config=meeting,
        scaling_config=ray_train.ScalingConfig(
            num_workers=(workers.fewest, workers.count) if workers.is_elastic else workers.count,
            use_gpu=bool(gpus),
            resources_per_worker={"CPU": 1, **gpus},
            elastic_resize_monitor_interval_s=_RESIZE_SECONDS,
        ),
        run_config=ray_train.RunConfig(
            name="train", storage_path=str(storage), failure_config=failures, callbacks=[losses]
        ),
    )


@dataclasses.dataclass(kw_only=True)
class _MeetInFile(ray_torch.TorchConfig):
    """Workers of one machine find each other through a file: by Ray's default the first one listens everywhere."""

    folder: pathlib.Path
    """Each attempt makes a file of its own here."""

    @property
    def backend_cls(self) -> type[backend.Backend]:
        """What Ray calls once workers have started."""
        return _FileMeeting


class _FileMeeting(ray_torch.TorchConfig().backend_cls):
    """Joins workers as Ray's own backend does, but for the place where they meet; runs in Ray's controller."""

    def on_start(self, worker_group: Any, backend_config: _MeetInFile) -> None:
        """Called by Ray for every attempt, before `_work`."""
        backend_config.folder.mkdir(parents=True, exist_ok=True)
        gpus, size = worker_group.get_resources_per_worker().get("GPU"), len(worker_group)
        world = {
            "backend": "nccl" if gpus else "gloo",
            "init_method": f"file://{backend_config.folder}/{uuid.uuid4().hex}",
            "world_size": size,
            "timeout": datetime.timedelta(seconds=backend_config.timeout_s),
        }
        ray.get([worker_group.execute_single_async(rank, _join, world | {"rank": rank}) for rank in range(size)])


def _join(world: dict[str, Any]) -> None:
    distributed.init_process_group(**world)


class _Losses(ray_train.UserCallback):
    """Writes an event for every loss of workers; lives in Ray's controller, on the driver's node.

    Args:
        path: of the event log.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called by Ray with what befell each rank, before it starts all of them again; not told once we have left."""
        if not (pathlib.Path(self._path).parent / ".ray").exists():
            return
        ranks = sorted(worker_exceptions)
        lines = [line.strip() for line in str(worker_exceptions[ranks[0]]).splitlines() if line.strip()]
        EventLog(pathlib.Path(self._path)).write(RunEvent.RANKS_LOST, ranks=ranks, cause=" ".join(lines)[:300])


def _work(config: dict[str, Any]) -> None:
    """Runs on every worker. A refusal is left in a file, so that Ray does not try again what cannot work.

    The process that started the job sees the file and ends all workers, also those that wait for this one. A stop
    is no refusal: every worker ends by itself, the first one after its checkpoint.
    """
    context = ray_train.get_context()
    device = ray_torch.get_device()
    place = Place(rank=context.get_world_rank(), world_size=context.get_world_size(), device=device)
    ranks = _ranks(config["jobs"][0])
    ranks.mkdir(parents=True, exist_ok=True)
    files.write_json(ranks / f"{place.rank}.json", {"host": platform.node(), "pid": os.getpid()})
    for job in config["jobs"]:
        try:
            run_job(job, place, should_stop=_stop_asked(_stop_file(job)))
        except Failure as failure:
            if failure.code is not ExitCode.INTERRUPTED:
                files.write_json(_failure_file(job), {"code": int(failure.code), "message": failure.message})
            return


def _stop_asked(path: pathlib.Path) -> Callable[[], bool]:
    """Whether the stop file says something; it is opened, because network file systems ask the server only then."""
    last, asked = -_LOOK_SECONDS, False

    def look() -> bool:
        nonlocal last, asked
        if not asked and time.monotonic() - last >= _LOOK_SECONDS:
            last = time.monotonic()
            with contextlib.suppress(OSError):
                asked = bool(path.read_bytes())
        return asked

    return look


def _stop_file(job: TrainingJob) -> pathlib.Path:
    return pathlib.Path(job.folder).parent / "stop"


def _ranks(job: TrainingJob) -> pathlib.Path:
    """Where each rank says on which machine and in which process it runs."""
    return pathlib.Path(job.folder).parent / ".ray" / "ranks"


def _failure_file(job: TrainingJob) -> pathlib.Path:
    return pathlib.Path(job.folder) / "failure.json"


def _raise_recorded(jobs: Sequence[TrainingJob]) -> None:
    for job in jobs:
        if _failure_file(job).exists():
            recorded = json.loads(_failure_file(job).read_bytes())
            _failure_file(job).unlink()
            raise Failure(ExitCode(recorded["code"]), recorded["message"])
