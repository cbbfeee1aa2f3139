"""Tests of priors.batches: which tasks a batch holds, and what is done to them."""

import dataclasses
import json
import pathlib
import time

import numpy as np
import pytest

from priors import shards
from priors.batches import BatchPlan, episodes, share_of
from priors.group import TaskGroup
from priors.splits import SplitConfig
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure

ARRAYS = [field.name for field in dataclasses.fields(TaskBatch) if field.name not in ("kind", "families")]


def make_set(
    folder: pathlib.Path, *, kind: TaskKind = TaskKind.CLASSIFICATION, size: int = 8, seed: int = 1
) -> shards.ShardSet:
    """Six groups in two files; x holds the code 10,000·task + 100·row + column, and y follows from the row."""
    source = shards.ShardSource(config={"name": "batches"}, seed=seed, kind=kind)
    entries = []
    for part in range(2):
        groups = []
        for number in range(3):
            rows, features, task = 10 + number, 2 + number, np.arange(size) + size * (3 * part + number)
            x = 10_000 * task[:, None, None] + 100 * np.arange(rows)[:, None] + np.arange(features)
            classes = 2 + task % 3
            y = np.where(np.arange(rows) < 8, np.arange(rows) // 2, 0) % classes[:, None]
            groups.append(
                TaskGroup(
                    x=x.astype(np.float32),
                    y=y.astype(np.float32),
                    column_kinds=np.tile(np.arange(features) % 3, (size, 1)).astype(np.int8),
                    level_counts=np.zeros((size, features), np.int32),
                    num_classes=(classes if kind is TaskKind.CLASSIFICATION else 0 * classes).astype(np.int32),
                    families=tuple(str(t) for t in task),
                    seeds=task,
                    parameters=tuple(json.dumps({}) for _ in task),
                    kind=kind,
                )
            )
        entries.append(shards.write_part(folder, groups, source=source, index=part))
    shards.write_set(folder, entries, source=source)
    return shards.ShardSet.open(folder)


def joined(batch: TaskBatch) -> tuple[np.ndarray, np.ndarray]:
    """x [B, R, C] and y [B, R] of context and query together."""
    return np.concatenate([batch.x_context, batch.x_query], 1), np.concatenate([batch.y_context, batch.y_query], 1)


def same(first: TaskBatch, second: TaskBatch) -> bool:
    """Whether two batches are equal in every array."""
    pairs = [(getattr(first, name), getattr(second, name)) for name in ARRAYS]
    return first.families == second.families and all(a.shape == b.shape and (a == b).all() for a, b in pairs)


def test_a_batch_is_a_function_of_set_seed_and_index(tmp_path: pathlib.Path) -> None:
    """D2: reading in another order, or with another plan object, gives the same batches."""
    shard_set = make_set(tmp_path)
    plan = BatchPlan(shard_set, batch_size=4, seed=5)
    forward = [plan.batch(index) for index in range(30)]
    fresh = BatchPlan(shards.ShardSet.open(tmp_path), batch_size=4, seed=5)
    assert all(same(fresh.batch(index), forward[index]) for index in reversed(range(30)))
    assert not same(BatchPlan(shard_set, batch_size=4, seed=6).batch(0), forward[0])


def test_another_set_gives_other_permutations(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = make_set(tmp_path / "a", seed=1), make_set(tmp_path / "b", seed=2)
    orders = [[BatchPlan(s, batch_size=8, seed=0).batch(i).families for i in range(6)] for s in (first, second)]
    assert orders[0] != orders[1]


def test_an_epoch_visits_every_task_once_and_the_next_in_another_order(tmp_path: pathlib.Path) -> None:
    plan = BatchPlan(make_set(tmp_path), batch_size=4, seed=5)
    assert plan.batches_per_epoch == 12
    epochs = [[plan.batch(12 * epoch + index).families for index in range(12)] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(int(name) for names in epoch for name in names) == list(range(48))
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_share_out_the_global_batch(tmp_path: pathlib.Path, world_size: int) -> None:
    """T3: any number of workers sees the same global batch."""
    plan = BatchPlan(make_set(tmp_path), batch_size=4, seed=5)
    for index in range(6):
        whole = plan.batch(index)
        parts = [plan.batch(index, rank=rank, world_size=world_size) for rank in range(world_size)]
        assert sum((part.families for part in parts), ()) == whole.families
        for name in ARRAYS:
            np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def test_shares_are_of_one_size_up_to_a_task_and_leave_none_out() -> None:
    """T3: any number of workers up to the batch size."""
    for size in (1, 7, 32):
        for workers in range(1, size + 1):
            shares = [share_of(size, rank=rank, world_size=workers) for rank in range(workers)]
            assert [task for share in shares for task in share] == list(range(size))
            assert {len(share) for share in shares} <= {size // workers, -(-size // workers)}


def test_a_batch_that_does_not_split_is_refused(tmp_path: pathlib.Path) -> None:
    shard_set = make_set(tmp_path)
    with pytest.raises(Failure, match="a batch of 4 tasks is too small for 5 workers: choose 4 workers or") as caught:
        BatchPlan(shard_set, batch_size=4, seed=5).batch(0, world_size=5)
    assert caught.value.code == ExitCode.BAD_FLAG
    with pytest.raises(Failure) as caught:
        BatchPlan(shard_set, batch_size=3, seed=5)
    assert caught.value.code == ExitCode.BAD_FLAG and "batches of 3" in caught.value.message


def test_rows_features_kinds_and_labels_move_together(tmp_path: pathlib.Path) -> None:
    plan = BatchPlan(make_set(tmp_path, kind=TaskKind.REGRESSION), batch_size=4, seed=5)
    feature_orders = set()
    for index in range(12):
        batch = plan.batch(index)
        x, y = joined(batch)
        for task in range(4):
            code = x[task].astype(int)
            assert (code // 10_000 == int(batch.families[task])).all()
            row, column = code[:, 0] // 100 % 100, code[0] % 100
            assert (code == code[:1] - 100 * row[0] + 100 * row[:, None]).all()
            assert sorted(row) == list(range(len(row))) and sorted(column) == list(range(len(column)))
            classes = 2 + int(batch.families[task]) % 3
            np.testing.assert_array_equal(y[task], np.where(row < 8, row // 2, 0) % classes)
            np.testing.assert_array_equal(batch.column_kinds[task], column % 3)
            feature_orders.add(tuple(column))
    assert len(feature_orders) > 12


def test_class_ids_are_permuted_within_the_task(tmp_path: pathlib.Path) -> None:
    """6.3: training maps classes to random slots; here slots are 0 … K−1."""
    plan = BatchPlan(make_set(tmp_path), batch_size=4, seed=5)
    seen = set()
    for index in range(48):
        batch = plan.batch(index)
        x, y = joined(batch)
        for task in range(4):
            row, number = x[task, :, 0].astype(int) // 100 % 100, int(batch.num_classes[task])
            old = np.where(row < 8, row // 2, 0) % number
            mapping = {(int(a), int(b)) for a, b in zip(old, y[task], strict=True)}
            assert len(mapping) == number == len({b for _, b in mapping})
            assert {b for _, b in mapping} == set(range(number))
            if number == 3:
                seen.add(tuple(sorted(mapping)))
    assert len(seen) == 6


def test_context_length_varies_and_holds_every_class(tmp_path: pathlib.Path) -> None:
    plan = BatchPlan(make_set(tmp_path), batch_size=4, seed=5, split=SplitConfig(min_share=0.45, max_share=0.8))
    shares = []
    for index in range(60):
        batch = plan.batch(index)
        shares.append(batch.x_context.shape[1] / joined(batch)[0].shape[1])
        for task in range(4):
            assert set(batch.y_context[task]) == set(range(int(batch.num_classes[task])))
        assert batch.context_mask.all() and batch.query_mask.all()
    assert 0.4 <= min(shares) < 0.55 and 0.7 < max(shares) <= 0.85


def test_writing_into_a_batch_changes_neither_file_nor_later_batches(tmp_path: pathlib.Path) -> None:
    """D4: a batch is owned memory."""
    shard_set = make_set(tmp_path)
    plan = BatchPlan(shard_set, batch_size=4, seed=5)
    first, again = plan.batch(3), plan.batch(3)
    for name in ARRAYS:
        getattr(first, name)[...] = 1
    assert same(plan.batch(3), again)
    assert shards.ShardSet.open(tmp_path).digest == shard_set.digest


def test_episodes_of_a_set_are_distinct_and_repeatable(tmp_path: pathlib.Path) -> None:
    shard_set = make_set(tmp_path)
    first, again = episodes(shard_set, count=20, seed=2), episodes(shard_set, count=20, seed=2)
    assert len({episode.task.family for episode in first}) == 20
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.task.x, other.task.x)
    with pytest.raises(Failure) as caught:
        episodes(shard_set, count=49, seed=2)
    assert caught.value.code == ExitCode.BAD_FLAG


def test_batches_are_made_faster_than_any_training_reads_them(tmp_path: pathlib.Path) -> None:
    source = shards.ShardSource(config={}, seed=1, kind=TaskKind.CLASSIFICATION)
    group = TaskGroup(
        x=np.zeros((64, 128, 10), np.float32),
        y=np.tile(np.arange(128) % 2, (64, 1)).astype(np.float32),
        column_kinds=np.zeros((64, 10), np.int8),
        level_counts=np.zeros((64, 10), np.int32),
        num_classes=np.full(64, 2, np.int32),
        families=("test",) * 64,
        seeds=np.zeros(64, np.int64),
        parameters=("{}",) * 64,
        kind=TaskKind.CLASSIFICATION,
    )
    shards.write_set(tmp_path, [shards.write_part(tmp_path, [group] * 4, source=source, index=0)], source=source)
    plan = BatchPlan(shards.ShardSet.open(tmp_path), batch_size=32, seed=0)
    best = np.inf
    for index in range(30):
        start = time.perf_counter()
        plan.batch(index)
        best = min(best, time.perf_counter() - start)
    assert 32 / best > 3000
