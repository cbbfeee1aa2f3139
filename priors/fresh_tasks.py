"""Tasks drawn while they are trained on: the tasks that a shard set of the same config and seed holds, without the set.

`FreshTasks` has what a batch plan reads of a shard set; `BatchesAhead` makes the batches of such a plan in processes of
its own, a few ahead of the loop, so that the loop does not wait. What a batch holds depends on neither.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
from multiprocessing import connection
from types import TracebackType
from typing import Self

from priors.batches import BatchPlan
from priors.generation import ShardConfig, check_request, group_seed, one_thread
from priors.group import TaskGroup
from priors.mixture import draw_shape, sample_group
from priors.shards import GroupEntry
from priors.task import TaskBatch, TaskKind
from tools.config import digest
from tools.failure import BadInput, ExitCode, Failure


class FreshTasks:
    """The groups of a shard set, drawn when they are asked for: each a pure function of (config, seed, index).

    Args:
        config: prior, group size and file size, as of a shard set.
        seed: the seed of the set.
        num_tasks: tasks wanted; rounded up to as many as whole files would hold.

    Raises:
        Failure: BAD_FLAG for what no set can be made of.
    """

    def __init__(self, config: ShardConfig, *, seed: int, num_tasks: int) -> None:
        check_request(config, num_tasks=num_tasks, seed=seed, workers=1)
        self._config, self._seed = config, seed
        self.num_tasks: int = config.rounded(num_tasks)
        self.kind: TaskKind = config.prior.kind
        source = config.source(seed=seed).digest()
        self.digest: str = digest({"source": source, "num_tasks": self.num_tasks, "fresh": True})
        self.groups: tuple[GroupEntry, ...] = tuple(
            self._entry(index) for index in range(self.num_tasks // config.group_size)
        )

    def _entry(self, index: int) -> GroupEntry:
        part, batch = divmod(index, self._config.groups_per_part)
        shape = draw_shape(self._config.prior, seed=group_seed(self._seed, index=index))
        return GroupEntry(
            part=part, batch=batch, rows=shape.rows, features=shape.features, count=self._config.group_size
        )

    def group(self, index: int) -> TaskGroup:
        """Draws group `index`, on one torch thread."""
        entry = self.groups[index]
        with one_thread():
            return sample_group(
                self._config.prior,
                seed=group_seed(self._seed, index=index),
                rows=entry.rows,
                features=entry.features,
                count=entry.count,
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshConfig:
    """How tasks are drawn beside a training loop; no result depends on it."""

    processes: int = 1
    """Processes that draw, for each training process."""
    ahead: int = 4
    """Batches that are made before they are asked for."""

    def __post_init__(self) -> None:
        """Refuses numbers with which no batch would be made.

        Raises:
            BadInput: BAD_FLAG, naming field and value.
        """
        for name in ("processes", "ahead"):
            if getattr(self, name) < 1:
                raise BadInput(ExitCode.BAD_FLAG, f"fresh.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshPlan:
    """What the batches of one training worker depend on.

    Args:
        config: prior and group size.
        seed: of the tasks.
        num_tasks: tasks of one epoch.
        batch_size: tasks of a global batch.
        plan_seed: the seed of the batch plan.
        rank: which worker asks.
        world_size: of how many.
    """

    config: ShardConfig
    seed: int
    num_tasks: int
    batch_size: int
    plan_seed: int
    rank: int = 0
    world_size: int = 1

    def tasks(self) -> FreshTasks:
        """The tasks that batches are made of."""
        return FreshTasks(self.config, seed=self.seed, num_tasks=self.num_tasks)

    def plan(self) -> BatchPlan:
        """The order of training over them."""
        return BatchPlan(self.tasks(), batch_size=self.batch_size, seed=self.plan_seed)


class BatchesAhead:
    """The batches of a plan over fresh tasks, made ahead in other processes. A context manager: leaving ends them.

    Args:
        plan: what the batches depend on.
        num_batches: index behind the last batch that will be asked for.
        config: how many processes, how far ahead.
    """

    def __init__(self, plan: FreshPlan, *, num_batches: int, config: FreshConfig | None = None) -> None:
        self._plan, self._end = plan, num_batches
        self._ahead = (config or FreshConfig()).ahead
        self._pool = concurrent.futures.ProcessPoolExecutor(
            (config or FreshConfig()).processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_follow_parent,
        )
        self._waiting: dict[int, concurrent.futures.Future[TaskBatch]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def expect(self, index: int) -> None:
        """Begins to make the batches from `index` on, and forgets those before it."""
        for number in range(index, max(index + 1, min(index + 1 + self._ahead, self._end))):
            if number not in self._waiting:
                self._waiting[number] = self._pool.submit(_make_batch, self._plan, number)
        for number in [number for number in self._waiting if number < index]:
            self._waiting.pop(number).cancel()

    def batch(self, index: int) -> TaskBatch:
        """The batch at global `index`; asked for in ascending order, it is usually there already.

        Raises:
            Failure: WORKER_FAILED after the loss of a process; what `BatchPlan` refuses.
        """
        try:
            self.expect(index)
            return self._waiting.pop(index).result()
        except concurrent.futures.process.BrokenProcessPool as error:
            mend = "run the same command again to go on"
            raise Failure(ExitCode.WORKER_FAILED, f"a process that draws tasks was killed: {mend}") from error


def _make_batch(plan: FreshPlan, index: int) -> TaskBatch:
    return _opened(plan).batch(index, rank=plan.rank, world_size=plan.world_size)


@functools.lru_cache(maxsize=1)
def _opened(plan: FreshPlan) -> BatchPlan:
    return plan.plan()


def _follow_parent() -> None:
    """Ends this process when its parent is gone, however the parent ended; the parent alone answers an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
