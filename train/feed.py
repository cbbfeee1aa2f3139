"""Where a training worker's batches come from: a shard set that is read, or tasks drawn beside the training.

Fresh tasks are those that a shard set of the same recipe would hold. Only their order is another, since it depends on a
digest that only a finished shard set has.
"""

import contextlib
import dataclasses
import enum
import functools
import time
from collections.abc import Callable, Iterator

import torch

from priors.batches import BatchPlan
from priors.fresh_tasks import BatchesAhead, FreshConfig, FreshPlan, fresh_digest
from priors.recipe import Recipe
from priors.shards import ShardSet
from priors.splits import SplitConfig
from priors.task import TaskBatch
from train.device_feed import DeviceFeed


class TaskSource(enum.StrEnum):
    """Where training tasks come from."""

    SHARDS = "shards"  # files that are made first, verified, and read
    FRESH = "fresh"  # processes that draw them during training; nothing is written


class Feed:
    """Batches by step, and how long the loop has waited for them.

    Args:
        digest: names the tasks.
        batch: gives the batch of a step.
        expect: told which step is the next, as soon as it is known.
    """

    def __init__(
        self, *, digest: str, batch: Callable[[int], TaskBatch], expect: Callable[[int], None] = lambda step: None
    ) -> None:
        self.digest, self.expect = digest, expect
        self._batch = batch
        self._waited = 0.0

    def batch(self, step: int) -> TaskBatch:
        """The batch of a step."""
        start = time.perf_counter()
        try:
            return self._batch(step)
        finally:
            self._waited += time.perf_counter() - start

    def seconds_waited(self) -> float:
        """Seconds spent in `batch` since this was last asked."""
        waited, self._waited = self._waited, 0.0
        return waited


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeedPlan:
    """Which batches a worker trains on.

    Args:
        shards: folder of the training shards, read where `fresh` is None.
        fresh: what to draw beside the training instead.
        drawing: on how many processes, how far ahead.
        batch_size: tasks of a global batch.
        seed: of the order.
        split: how tasks are cut into context and query.
        num_steps: of the whole training.
    """

    shards: str
    fresh: Recipe | None
    drawing: FreshConfig
    batch_size: int
    seed: int
    split: SplitConfig
    num_steps: int


@contextlib.contextmanager
def open_feed(
    plan: FeedPlan, *, rank: int, world_size: int, device: torch.device = torch.device("cpu")
) -> Iterator[Feed]:
    """The batches of one worker, or its parts of them, on their way to `device`.

    Raises:
        Failure: what is wrong with the shards, or with the recipe.
    """
    if plan.fresh is None:
        shards = ShardSet.open(plan.shards)
        batches = BatchPlan(shards, batch_size=plan.batch_size, seed=plan.seed, split=plan.split)
        own = functools.partial(batches.batch, rank=rank, world_size=world_size)
        with DeviceFeed(own, device=device, num_steps=plan.num_steps) as staged:
            yield Feed(digest=shards.digest, batch=staged.batch, expect=staged.expect)
        return
    fresh = FreshPlan(
        recipe=plan.fresh,
        batch_size=plan.batch_size,
        seed=plan.seed,
        split=plan.split,
        rank=rank,
        world_size=world_size,
    )
    with (
        BatchesAhead(fresh, num_batches=plan.num_steps, config=plan.drawing) as ahead,
        DeviceFeed(ahead.batch, device=device, num_steps=plan.num_steps) as staged,
    ):

        def expect(step: int) -> None:
            ahead.expect(step)
            staged.expect(step)

        yield Feed(digest=fresh_digest(plan.fresh), batch=staged.batch, expect=expect)
