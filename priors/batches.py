"""Batches: a global index to a training batch, as a pure function of (shard set, seed, index). Free of torch.

The content of a batch depends neither on the number of workers nor on what was read before, so a run can stop, grow
and go on at any index.
"""

import collections

import numpy as np

from priors.group import TaskGroup
from priors.shards import ShardSet
from priors.splits import ClassCover, SplitConfig, as_episode, swaps
from priors.task import Episode, TaskBatch
from tools.failure import ExitCode, Failure

_KEPT_GROUPS = 4


class BatchPlan:
    """The order of training.

    One pass over the set is an epoch; every epoch shuffles the slices of all groups anew. Tasks of a batch come from
    one group, so they share rows and features and nothing is padded. For every task the rows, the features and the
    class ids (within 0 … K−1) are permuted afresh at every visit; the number of context rows is drawn per batch.
    Rows are swapped so that every class is in the context where it has room.

    Args:
        shard_set: where the tasks are.
        batch_size: tasks of a global batch (over all workers); divides the size of every group.
        seed: the seed of all permutations.
        split: how many rows are context, and which classes they hold.
    """

    def __init__(self, shard_set: ShardSet, *, batch_size: int, seed: int, split: SplitConfig = SplitConfig()) -> None:
        self._set, self._batch_size, self._seed, self._split = shard_set, batch_size, seed, split
        self._slices = _slices(shard_set, batch_size)
        self._identity = int(shard_set.digest[:16], 16)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        self._groups: collections.OrderedDict[int, TaskGroup] = collections.OrderedDict()

    @property
    def batches_per_epoch(self) -> int:
        """Batches of one pass over the set."""
        return len(self._slices)

    def batch(self, index: int, *, rank: int = 0, world_size: int = 1) -> TaskBatch:
        """The batch at global `index` (any integer ≥ 0), or the share of it that worker `rank` trains on.

        Raises:
            Failure: BAD_FLAG for more workers than tasks.
        """
        own = share_of(self._batch_size, rank=rank, world_size=world_size)
        epoch, place = divmod(index, len(self._slices))
        number, start = self._slices[self._epoch_order(epoch)[place]]
        group = self._group(int(number)).part(int(start), int(start) + self._batch_size)
        generator = self._generator(2, index)
        share = generator.uniform(self._split.min_share, self._split.max_share)
        keys = [generator.random((self._batch_size, n), np.float32) for n in (group.rows, group.features, _most(group))]
        cut = min(max(round(share * group.rows), 1), group.rows - 1)
        keys = [key[own.start : own.stop] for key in keys]
        return _arranged(group.part(own.start, own.stop), keys=keys, cut=cut, cover=self._split.classes)

    def _generator(self, purpose: int, index: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, self._identity, purpose, index]))

    def _epoch_order(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            self._order = (epoch, self._generator(1, epoch).permutation(len(self._slices)))
        return self._order[1]

    def _group(self, number: int) -> TaskGroup:
        group = self._groups.pop(number, None)
        self._groups[number] = group = group if group is not None else self._set.group(number)
        if len(self._groups) > _KEPT_GROUPS:
            self._groups.popitem(last=False)
        return group


def share_of(batch_size: int, *, rank: int, world_size: int) -> range:
    """Which tasks of a global batch worker `rank` trains on: shares differ by one task at most.

    Raises:
        Failure: BAD_FLAG for more workers than tasks.
    """
    if world_size > batch_size:
        mend = f"choose {batch_size} workers or fewer"
        raise Failure(ExitCode.BAD_FLAG, f"a batch of {batch_size} tasks is too small for {world_size} workers: {mend}")
    return range(rank * batch_size // world_size, (rank + 1) * batch_size // world_size)


def _slices(shard_set: ShardSet, batch_size: int) -> np.ndarray:
    """[n, 2] group index and first task of every batch-sized slice."""
    for entry in shard_set.groups:
        if entry.count % batch_size:
            mend = f"choose a batch size that divides {entry.count}"
            what = f"groups of {entry.count} tasks do not split into batches of {batch_size}"
            raise Failure(ExitCode.BAD_FLAG, f"{what}: {mend}")
    pairs = [
        (number, start) for number, entry in enumerate(shard_set.groups) for start in range(0, entry.count, batch_size)
    ]
    return np.array(pairs, np.int64)


def _most(group: TaskGroup) -> int:
    return max(1, int(group.num_classes.max()))


def _arranged(group: TaskGroup, *, keys: list[np.ndarray], cut: int, cover: ClassCover) -> TaskBatch:
    """Permutes a group by random keys of rows [B, R], features [B, C] and class slots [B, K]; cuts it at row `cut`."""
    (rows, features, slots), count = keys, len(group)
    row_order, column_order = rows.argsort(1), features.argsort(1)
    y = np.take_along_axis(group.y, row_order, 1)
    if group.kind.value == "classification":
        absent = np.arange(slots.shape[1]) >= group.num_classes[:, None]
        slot_of = (slots + absent).argsort(1).argsort(1)
        known = (y >= 0) & (y < group.num_classes[:, None])  # what is no class stays, for the training step to refuse
        permuted = np.take_along_axis(slot_of, np.where(known, y, 0).astype(np.int64), 1)
        y = np.where(known, permuted, y).astype(np.float32)
        for task in np.flatnonzero(known.all(1)):
            moves = swaps(y[task], cut=cut, cover=cover)
            y[task, moves[:, 0]], y[task, moves[:, 1]] = y[task, moves[:, 1]], y[task, moves[:, 0]]
            row_order[task, moves[:, 0]], row_order[task, moves[:, 1]] = (
                row_order[task, moves[:, 1]],
                row_order[task, moves[:, 0]],
            )
    x = group.x[np.arange(count)[:, None, None], row_order[:, :, None], column_order[:, None, :]]
    return TaskBatch(
        x_context=np.ascontiguousarray(x[:, :cut]),
        y_context=np.ascontiguousarray(y[:, :cut]),
        x_query=np.ascontiguousarray(x[:, cut:]),
        y_query=np.ascontiguousarray(y[:, cut:]),
        context_mask=np.ones((count, cut), bool),
        query_mask=np.ones((count, group.rows - cut), bool),
        column_kinds=np.take_along_axis(group.column_kinds, column_order, 1),
        num_classes=group.num_classes.copy(),
        kind=group.kind,
        families=group.families,
    )


def episodes(shard_set: ShardSet, *, count: int, seed: int, share: float = 0.5) -> list[Episode]:
    """`count` episodes of a shard set, spread over its groups; a pure function of (set, count, seed, share)."""
    generator = np.random.default_rng(np.random.SeedSequence([seed, int(shard_set.digest[:16], 16), 4]))
    total = np.cumsum([entry.count for entry in shard_set.groups])
    if count > total[-1]:
        mend = f"ask for {total[-1]} or fewer"
        raise Failure(ExitCode.BAD_FLAG, f"{count} episodes were asked of a shard set of {total[-1]} tasks: {mend}")
    out = []
    for place in np.sort(generator.choice(total[-1], count, replace=False)):
        number = int(np.searchsorted(total, place, side="right"))
        group = shard_set.group(number)
        index = int(place - (total[number - 1] if number else 0))
        out.append(as_episode(group.task(index), share=share, seed=seed + int(place)))
    return out
