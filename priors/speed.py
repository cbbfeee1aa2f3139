"""How fast tasks are drawn, and what the time goes to: measurements of the prior for `//tools:bench -- priors`.

Everything is measured on one torch thread; whoever calls decides on which core.
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import pathlib
import time

import torch
from torch.profiler import ProfilerActivity, profile

from priors.draws import one_thread
from priors.families import Family
from priors.group import TaskGroup
from priors.mixture import PriorConfig, sample_group
from priors.shards import ShardSet
from tools.failure import BadInput, ExitCode

_KERNEL_PREFIX = "aten::"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedCase:
    """What is drawn.

    Args:
        prior: from which tasks are drawn.
        rows: R of every task.
        features: C of every task.
        count: B, tasks that are drawn together.
        device: where the tensors are made.
    """

    prior: PriorConfig
    rows: int
    features: int
    count: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuses sizes that no group has.

        Raises:
            BadInput: BAD_FLAG, naming field and value.
        """
        for name, least in (("rows", 16), ("features", 1), ("count", 1)):
            if getattr(self, name) < least:
                raise BadInput(ExitCode.BAD_FLAG, f"{name} {getattr(self, name)} is too small: give {least} or more")


def bench_prior(*, family: Family | None, filtered: bool) -> PriorConfig:
    """The default prior, or one of its families alone, with its filter or without.

    Args:
        family: which alone; None means the default mixture.
        filtered: whether tasks without signal are drawn anew.
    """
    default = PriorConfig()
    chosen = dataclasses.replace(default.filter, enabled=filtered)
    return dataclasses.replace(default, only=(family,) if family else (), filter=chosen)


def tasks_per_second(case: SpeedCase, *, seed: int, groups: int = 1) -> float:
    """The rate at which `groups` groups are drawn, of seeds that begin at `seed`."""
    with one_thread():
        _settle(case)
        start = time.perf_counter()
        for number in range(groups):
            _draw(case, seed=seed + number)
        _settle(case)
        return groups * case.count / (time.perf_counter() - start)


def groups_that_last(case: SpeedCase, *, seconds: float) -> int:
    """How many groups take about `seconds`; at least one."""
    tasks_per_second(case, seed=0)  # what is only done once
    return max(1, round(seconds * tasks_per_second(case, seed=1) / case.count))


def distinct_graphs(case: SpeedCase, *, seed: int) -> tuple[int, int]:
    """Different graphs among the tasks of one group, and how many of its tasks have a graph ("graph" in parameters)."""
    with one_thread():
        group = _draw(case, seed=seed)
    found = [json.loads(text).get("graph") for text in group.parameters]
    graphs = [graph for graph in found if graph is not None]
    return len(set(graphs)), len(graphs)


def python_share(case: SpeedCase, *, seed: int, groups: int = 1) -> float:
    """Share of the wall-clock time on the CPU that is not spent in tensor kernels.

    1 − (self CPU time of all `aten::` operations) ÷ (wall-clock time), both under `torch.profiler`, whose own cost for
    each operation falls on the Python side: the share without it is smaller.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it announces itself on standard error
    with one_thread():
        _draw(case, seed=seed)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            start = time.perf_counter()
            for number in range(groups):
                _draw(case, seed=seed + number)
            seconds = time.perf_counter() - start
    events = profiler.key_averages()
    kernels = sum(event.self_cpu_time_total for event in events if event.key.startswith(_KERNEL_PREFIX)) / 1e6
    return 1.0 - kernels / seconds


def verified_gigabytes_per_second(folder: pathlib.Path) -> float:
    """The rate at which a finished shard set is checked, file by file, and opened; 10⁹ bytes a second."""
    for path in folder.glob("part-*.arrow"):
        path.touch()  # a file that looks as it did when this process hashed it would not be hashed again
    start = time.perf_counter()
    found = ShardSet.open(folder)
    return found.num_bytes / 1e9 / (time.perf_counter() - start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast processes draw.

    Args:
        per_second: tasks of all of them together in a second.
        per_cpu_second: tasks in a second of CPU time; what other programs take of the machine does not count.
    """

    per_second: float
    per_cpu_second: float


class Generators:
    """Processes that draw side by side, a core each. A context manager: leaving ends them.

    Args:
        case: what they draw.
        workers: how many.
    """

    def __init__(self, case: SpeedCase, *, workers: int) -> None:
        self._case = case
        context = multiprocessing.get_context("spawn")
        self._pools = [concurrent.futures.ProcessPoolExecutor(1, mp_context=context) for _ in range(workers)]

    def __enter__(self) -> "Generators":
        self._cores = _cores()
        self.pace(workers=len(self._pools), seed=0, groups=1)  # processes start, memory is touched
        return self

    def __exit__(self, *unused: object) -> None:
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def pace(self, *, workers: int, seed: int, groups: int) -> Pace:
        """How fast the first `workers` processes draw together, `groups` groups each."""
        start = time.perf_counter()
        done = [
            pool.submit(
                _draw_on, self._case, self._cores[place % len(self._cores)], seed=seed + place * groups, groups=groups
            )
            for place, pool in enumerate(self._pools[:workers])
        ]
        cpu_seconds = sum(future.result() for future in done)
        tasks = workers * groups * self._case.count
        return Pace(per_second=tasks / (time.perf_counter() - start), per_cpu_second=tasks / cpu_seconds)


def _draw_on(case: SpeedCase, core: int | None, *, seed: int, groups: int) -> float:
    """Draws on one core; returns the CPU time that it took."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    start = time.process_time()
    with one_thread():
        for number in range(groups):
            _draw(case, seed=seed + number)
    return time.process_time() - start


def _cores() -> list[int | None]:
    """The cores that this process may use; [None] where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]


def _draw(case: SpeedCase, *, seed: int) -> TaskGroup:
    return sample_group(
        case.prior, seed=seed, rows=case.rows, features=case.features, count=case.count, device=case.device
    )


def _settle(case: SpeedCase) -> None:
    if case.device != "cpu":
        torch.accelerator.synchronize()
