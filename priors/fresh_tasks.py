"""Tasks drawn while they are trained on: the tasks that a shard set of the same config and seed holds, without the set.

`FreshTasks` has what a batch plan reads of a shard set; `BatchesAhead` makes the batches of such a plan in processes of
its own, a few ahead of the loop, so that the loop does not wait. What a batch holds depends on neither.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
from types import TracebackType
from typing import Self

from priors.batches import BatchPlan
from priors.draws import one_thread
from priors.generation import checked_seed
from priors.group import TaskGroup
from priors.mixture import checked, draw_shape, sample_group
from priors.recipe import Recipe, group_seed
from priors.shards import GroupEntry
from priors.splits import SplitConfig
from priors.task import TaskBatch, TaskKind
from tools.config import digest
from tools.failure import BadInput, ExitCode, Failure
from tools.parent import follow_parent


class FreshTasks:
    """The groups of a shard set, drawn when they are asked for: each a pure function of (config, seed, index).

    Args:
        recipe: what the set would be made from.

    Raises:
        BadInput: BAD_FLAG for what no set can be made of.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = _checked(recipe)
        self.num_tasks: int = recipe.num_parts * recipe.config.tasks_per_part
        self.kind: TaskKind = recipe.config.prior.kind
        self.digest: str = fresh_digest(recipe)
        self.groups: tuple[GroupEntry, ...] = tuple(
            self._entry(part, batch) for part in recipe.indices for batch in range(recipe.config.groups_per_part)
        )

    def _seed(self, part: int, batch: int) -> int:
        return group_seed(self._recipe.seed, index=part * self._recipe.config.groups_per_part + batch)

    def _entry(self, part: int, batch: int) -> GroupEntry:
        config = self._recipe.config
        shape = draw_shape(config.prior, seed=self._seed(part, batch))
        return GroupEntry(part=part, batch=batch, rows=shape.rows, features=shape.features, count=config.group_size)

    def group(self, index: int) -> TaskGroup:
        """Draws group `index`, on one torch thread."""
        entry = self.groups[index]
        with one_thread():
            return sample_group(
                self._recipe.config.prior,
                seed=self._seed(entry.part, entry.batch),
                rows=entry.rows,
                features=entry.features,
                count=entry.count,
            )


def fresh_digest(recipe: Recipe) -> str:
    """sha256 (hex) that names the tasks; not that of the shard set, which knows the bytes of its files."""
    source = recipe.source.digest()
    return digest({"source": source, "parts": [recipe.first_part, recipe.num_parts], "fresh": True})


def _checked(recipe: Recipe) -> Recipe:
    numbers = {
        "num_parts": recipe.num_parts,
        "group_size": recipe.config.group_size,
        "groups_per_part": recipe.config.groups_per_part,
    }
    for name, value in numbers.items():
        if value < 1:
            raise BadInput(ExitCode.BAD_FLAG, f"{name} {value} is too small: give 1 or more")
    checked_seed(recipe.seed)
    checked(recipe.config.prior)
    return recipe


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
            Failure: BAD_FLAG, naming field and value.
        """
        for name in ("processes", "ahead"):
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"drawing.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshPlan:
    """What the batches of one training worker depend on.

    Args:
        recipe: the tasks of one epoch.
        batch_size: tasks of a global batch.
        seed: the seed of the batch plan.
        split: how tasks are cut into context and query.
        rank: which worker asks.
        world_size: of how many.
    """

    recipe: Recipe
    batch_size: int
    seed: int
    split: SplitConfig = SplitConfig()
    rank: int = 0
    world_size: int = 1

    def plan(self) -> BatchPlan:
        """The order of training over the tasks."""
        return BatchPlan(FreshTasks(self.recipe), batch_size=self.batch_size, seed=self.seed, split=self.split)


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
            initializer=follow_parent,
        )
        self._waiting: dict[int, concurrent.futures.Future[TaskBatch]] = {}

    def __enter__(self) -> Self:
        self._pool.submit(_opened, self._plan)  # a process takes seconds to start: before it is waited for
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
