"""Where a training worker's batches come from: a shard set that is read, or tasks drawn beside the training.

Fresh tasks are those that a shard set of the same recipe would hold. Only their order is another, since it depends on a
digest that only a finished shard set has.
"""

import contextlib
import dataclasses
import enum
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import torch

from priors.batches import BatchPlan, share_of
from priors.fresh_tasks import BatchesAhead, FreshConfig, FreshPlan
from priors.shards import ShardSet
from priors.task import TaskBatch
from train.device_feed import DeviceFeed
from train.stages import TrainingStage, check_stages, place_of


class TaskSource(enum.StrEnum):
    """Where training tasks come from."""

    SHARDS = "shards"  # files that are made first, verified, and read
    FRESH = "fresh"  # processes that draw them during training; nothing is written


class Feed:
    """Batches by step, and how long the loop has waited for them.

    Args:
        batch: gives the batch of a step.
        expect: told which step is the next, as soon as it is known.
    """

    def __init__(self, *, batch: Callable[[int], TaskBatch], expect: Callable[[int], None] = lambda step: None) -> None:
        self.expect = expect
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
        stages: of the curriculum, in order.
        drawing: on how many processes fresh tasks are drawn, how far ahead.
        seed: of the order.
        num_steps: of the whole training.
    """

    stages: tuple[TrainingStage, ...]
    drawing: FreshConfig
    seed: int
    num_steps: int


@contextlib.contextmanager
def open_feed(
    plan: FeedPlan,
    *,
    rank: int,
    world_size: int,
    first_step: int = 0,
    device: torch.device = torch.device("cpu"),
) -> Iterator[Feed]:
    """The batches of one worker, or its parts of them, on their way to `device`.

    Shards of every stage that is not over at `first_step` are verified here.

    Raises:
        Failure: what is wrong with the stages, with the shards or with a recipe; BAD_FLAG for more workers than tasks.
    """
    check_stages(plan.stages, num_steps=plan.num_steps)
    for stage in plan.stages:
        share_of(stage.batch_size, rank=rank, world_size=world_size)
    with (
        _Sources(plan, rank=rank, world_size=world_size, first_step=first_step) as sources,
        DeviceFeed(sources.batch, device=device, num_steps=plan.num_steps) as staged,
    ):

        def expect(step: int) -> None:
            sources.expect(step)
            staged.expect(step)

        yield Feed(batch=staged.batch, expect=expect)


class _Sources:
    """Batches by global step. Fresh tasks are drawn for one stage at a time: its processes start with it."""

    def __init__(self, plan: FeedPlan, *, rank: int, world_size: int, first_step: int) -> None:
        self._plan, self._place = plan, {"rank": rank, "world_size": world_size}
        self._read = {
            number: _shard_batches(stage, seed=plan.seed)
            for number, stage in enumerate(plan.stages)
            if stage.fresh is None and number >= place_of(plan.stages, first_step)
        }
        self._drawn: tuple[int, BatchesAhead] | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def batch(self, step: int) -> TaskBatch:
        """This worker's share of the batch of a step: a pure function of the stage's tasks, the seed and the step."""
        number = place_of(self._plan.stages, step)
        index = step - self._plan.stages[number].first_step
        if number in self._read:
            return self._read[number].batch(index, **self._place)
        return self._ahead(number).batch(index)

    def expect(self, step: int) -> None:
        """Begins to draw what is not read."""
        number = place_of(self._plan.stages, step)
        if number not in self._read:
            self._ahead(number).expect(step - self._plan.stages[number].first_step)

    def _ahead(self, number: int) -> BatchesAhead:
        if self._drawn is None or self._drawn[0] != number:
            self._open.close()
            stages = self._plan.stages
            stage, ends = stages[number], [*(stage.first_step for stage in stages[1:]), self._plan.num_steps]
            fresh = FreshPlan(
                recipe=stage.fresh,
                batch_size=stage.batch_size,
                seed=self._plan.seed,
                split=stage.split,
                **self._place,
            )
            ahead = BatchesAhead(fresh, num_batches=ends[number] - stage.first_step, config=self._plan.drawing)
            self._drawn = number, self._open.enter_context(ahead)
        return self._drawn[1]


def _shard_batches(stage: TrainingStage, *, seed: int) -> BatchPlan:
    shards = ShardSet.open(stage.shards)
    return BatchPlan(shards, batch_size=stage.batch_size, seed=seed, split=stage.split)
