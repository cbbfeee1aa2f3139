"""Tests of priors/fresh_tasks.py: the same tasks and batches as from a shard set, whoever makes them and when."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from priors.batches import BatchPlan
from priors.fresh_tasks import BatchesAhead, FreshConfig, FreshPlan, FreshTasks
from priors.generation import ensure_shards
from priors.group import TaskGroup
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure


def _config(kind: TaskKind = TaskKind.CLASSIFICATION) -> ShardConfig:
    prior = PriorConfig(kind=kind, min_rows=32, max_rows=64, min_features=2, max_features=5)
    return ShardConfig(prior=prior, group_size=8, groups_per_part=2)


def _recipe(config: ShardConfig | None = None, *, seed: int = 3, num_parts: int = 2, first_part: int = 0) -> Recipe:
    return Recipe(config=config or _config(), seed=seed, num_parts=num_parts, first_part=first_part)


def _plan(**changes: int) -> FreshPlan:
    return FreshPlan(recipe=_recipe(), **{"batch_size": 4, "seed": 7, **changes})


def _same(one: TaskBatch | TaskGroup, other: TaskBatch | TaskGroup) -> bool:
    fields = [field.name for field in dataclasses.fields(one)]
    pairs = [(getattr(one, name), getattr(other, name)) for name in fields]
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a == b for a, b in pairs
    )


@pytest.mark.parametrize("kind", TaskKind)
def test_groups_and_batches_are_those_of_the_shard_set(kind: TaskKind, tmp_path: pathlib.Path) -> None:
    """D2: tasks are a function of (config, seed, index), in a file or not."""
    config = _config(kind)
    shards = ensure_shards(config, out=tmp_path, num_tasks=30, seed=3)
    fresh = FreshTasks(_recipe(config))
    assert (fresh.groups, fresh.kind, fresh.num_tasks) == (shards.groups, shards.kind, shards.num_tasks)
    assert all(_same(fresh.group(index), shards.group(index)) for index in range(len(shards.groups)))
    shards.digest = fresh.digest  # of which the order of training is a function
    plans = [BatchPlan(tasks, batch_size=4, seed=7) for tasks in (fresh, shards)]
    assert all(_same(plans[0].batch(index), plans[1].batch(index)) for index in range(plans[1].batches_per_epoch + 3))


def test_the_digest_tells_seeds_configs_and_numbers_apart() -> None:
    regression = _config(TaskKind.REGRESSION)
    recipes = [_recipe(), _recipe(seed=4), _recipe(num_parts=3), _recipe(first_part=1), _recipe(regression)]
    assert len({FreshTasks(recipe).digest for recipe in recipes}) == len(recipes)
    assert FreshTasks(_recipe()).digest == FreshTasks(_recipe()).digest


def test_batches_made_ahead_are_those_of_the_plan_in_any_order_and_by_any_number_of_processes() -> None:
    plan = _plan()
    expected = [plan.plan().batch(index) for index in range(10)]
    for config, asked in ((FreshConfig(), range(4)), (FreshConfig(processes=2, ahead=3), (0, 1, 7, 8, 2, 2, 9))):
        with BatchesAhead(plan, num_batches=10, config=config) as batches:
            assert all(_same(batches.batch(index), expected[index]) for index in asked)


def test_a_worker_gets_its_own_part_of_the_batch_and_nothing_is_made_behind_the_last() -> None:
    whole = _plan().plan().batch(5)
    with BatchesAhead(_plan(rank=1, world_size=2), num_batches=7, config=FreshConfig(ahead=8)) as batches:
        assert np.array_equal(batches.batch(5).x_query, whole.x_query[2:], equal_nan=True)
        assert sorted(batches._waiting) == [6]


def test_after_a_while_batches_are_there_when_they_are_asked_for() -> None:
    with BatchesAhead(_plan(), num_batches=8, config=FreshConfig(ahead=3)) as batches:
        batches.batch(0)
        deadline = time.monotonic() + 10.0
        while not all(future.done() for future in batches._waiting.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert sorted(batches._waiting) == [1, 2, 3]
        start = time.perf_counter()
        batches.batch(1)
        assert time.perf_counter() - start < 0.05  # a process takes seconds to start, a group tens of milliseconds


def test_the_loss_of_a_process_is_one_line() -> None:
    with BatchesAhead(_plan(), num_batches=4) as batches:
        batches.batch(0)
        for pid in list(batches._pool._processes):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Failure, match="a process that draws tasks was killed: run the same command") as caught:
            for index in range(1, 4):
                batches.batch(index)
    assert caught.value.code is ExitCode.WORKER_FAILED


def test_what_the_plan_refuses_in_a_process_reaches_the_loop() -> None:
    with BatchesAhead(_plan(batch_size=3), num_batches=4) as batches, pytest.raises(Failure) as caught:
        batches.batch(0)
    assert (caught.value.code, str(caught.value)) == (
        ExitCode.BAD_FLAG,
        "groups of 8 tasks do not split into batches of 3: choose a batch size that divides 8",
    )


_KILLED = """
import os, signal
from priors.fresh_tasks_test import _plan
from priors.fresh_tasks import BatchesAhead

if __name__ == "__main__":
    batches = BatchesAhead(_plan(), num_batches=8)
    batches.batch(0)
    print(*batches._pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_a_killed_parent(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(_KILLED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 1, result.stderr
    deadline = time.monotonic() + 10.0
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_parts": 0}, "num_parts 0 is too small: give 1 or more"),
        ({"config": ShardConfig(group_size=0)}, "group_size 0 is too small"),
        ({"config": ShardConfig(groups_per_part=-1)}, "groups_per_part -1 is too small"),
        ({"config": ShardConfig(prior=PriorConfig(max_features=0))}, "--max-features 0 is below"),
        ({"seed": -1}, "--seed -1 is outside"),
    ],
)
def test_impossible_sets_are_refused(changes: dict[str, int | ShardConfig], complaint: str) -> None:
    with pytest.raises(Failure, match=complaint) as caught:
        FreshTasks(_recipe(**changes))
    assert caught.value.code is ExitCode.BAD_FLAG


@pytest.mark.parametrize("name", ["processes", "ahead"])
def test_no_processes_and_no_batches_ahead_are_refused(name: str) -> None:
    with pytest.raises(Failure, match=f"drawing.{name} is 0: give 1 or more"):
        FreshConfig(**{name: 0})
