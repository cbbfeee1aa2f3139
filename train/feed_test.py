"""Tests of train/feed.py: fresh tasks train as those of a shard set do, and waiting is counted."""

import dataclasses
import pathlib
import time

import numpy as np
import pytest

from model import checkpoint
from model.label_injection import LabelKind
from priors.batches import BatchPlan
from priors.fresh_tasks import FreshConfig, FreshPlan, FreshTasks
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig
from priors.shards import ShardSet
from priors.splits import SplitConfig
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from train.feed import Feed, FeedPlan, open_feed
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.sitting import run_job
from train.stages import TrainingStage
from train.toy import small_network

_CONFIG = ShardConfig(prior=PriorConfig(min_rows=64, max_rows=64, max_features=4), group_size=8, groups_per_part=2)
_RECIPE = Recipe(config=_CONFIG, seed=0, num_parts=2)


def _stage(shards: str = "", *, fresh: Recipe | None = None, first_step: int = 0, **sizes: int) -> TrainingStage:
    split = SplitConfig(min_share=0.4, max_share=0.6)
    return TrainingStage(first_step=first_step, shards=shards, fresh=fresh, split=split, **{"batch_size": 4, **sizes})


def _plan(*stages: TrainingStage, num_steps: int = 6) -> FeedPlan:
    return FeedPlan(stages=stages, drawing=FreshConfig(), seed=1, num_steps=num_steps)


def test_both_sources_give_the_same_tasks_each_once_in_an_epoch(tmp_path: pathlib.Path) -> None:
    ensure_shards(_CONFIG, out=tmp_path, num_tasks=32, seed=0)

    def tasks(plan: FeedPlan) -> list[tuple[float, ...]]:
        with open_feed(plan, rank=0, world_size=1) as feed:
            batches = [feed.batch(step) for step in range(8)]
        tables = [(batch.x_context, batch.x_query) for batch in batches]
        assert all(0.35 < x.shape[1] / 64 < 0.65 for x, _ in tables)  # the split that was asked for
        cells = [np.concatenate(pair, 1).reshape(len(pair[0]), -1) for pair in tables]
        return sorted(tuple(np.sort(np.nan_to_num(row, nan=1e9))) for rows in cells for row in rows)

    read, drawn = tasks(_plan(_stage(str(tmp_path)))), tasks(_plan(_stage(fresh=_RECIPE)))
    assert len(read) == 32
    assert read == drawn
    assert len(set(read)) == 32


def _job(folder: pathlib.Path) -> TrainingJob:
    folder.mkdir()
    return TrainingJob(
        network=small_network(LabelKind.CLASSIFICATION),
        loop=LoopConfig(num_steps=6, batch_size=4, log_every=2, checkpoint_every=3),
        seed=0,
        shards="",
        prior=_CONFIG.prior,
        folder=str(folder),
        fresh=_RECIPE,
        num_validation_tasks=8,
    )


def test_training_on_fresh_tasks_cut_short_ends_in_the_same_bits(tmp_path: pathlib.Path) -> None:
    """T2, with tasks drawn beside the training, however far ahead."""
    whole = _job(tmp_path / "whole")
    cut = dataclasses.replace(_job(tmp_path / "cut"), drawing=FreshConfig(ahead=1))
    run_job(whole, Place())
    calls = iter(range(100))
    with pytest.raises(Failure) as caught:
        run_job(cut, Place(), should_stop=lambda: next(calls) == 4)
    assert caught.value.code is ExitCode.INTERRUPTED
    run_job(cut, Place())
    weights = [checkpoint.load_checkpoint(checkpoint.step_folders(job.checkpoints)[-1]).weights for job in (whole, cut)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    shares = [r["train/waiting_share"] for r in read_json_lines(whole.metrics) if "train/loss" in r]
    assert len(shares) == 3
    assert all(0.0 < share < 1.0 for share in shares)


def test_waiting_is_counted_until_it_is_asked_for() -> None:
    def slow(step: int) -> None:
        time.sleep(0.05)

    feed = Feed(batch=slow)
    feed.batch(0)
    feed.batch(1)
    assert 0.1 <= feed.seconds_waited() < 5.0
    assert feed.seconds_waited() == 0.0


def test_the_digest_is_that_of_what_is_fed(tmp_path: pathlib.Path) -> None:
    shards = ensure_shards(_CONFIG, out=tmp_path, num_tasks=16, seed=0)
    assert _stage(str(tmp_path)).digest() == shards.digest
    assert _stage(fresh=_RECIPE).digest() == FreshTasks(_RECIPE).digest


def _sets(folder: pathlib.Path) -> list[str]:
    """Three sets of tasks with 64, 96 and 128 rows."""
    made = []
    for rows in (64, 96, 128):
        prior = dataclasses.replace(_CONFIG.prior, min_rows=rows, max_rows=rows)
        config = dataclasses.replace(_CONFIG, prior=prior)
        made.append(ensure_shards(config, out=folder / str(rows), num_tasks=16, seed=0).folder)
    return made


def _rows(batch: TaskBatch) -> int:
    return batch.x_context.shape[1] + batch.x_query.shape[1]


def test_every_stage_gives_its_own_tasks_and_its_own_number_of_them(tmp_path: pathlib.Path) -> None:
    """The batch of a step is a function of the stage's set, the seed and the step, wherever a feed begins."""
    one, two, three = _sets(tmp_path)
    plan = _plan(
        _stage(one), _stage(two, first_step=3, batch_size=8), _stage(three, first_step=4, batch_size=2), num_steps=6
    )
    with open_feed(plan, rank=0, world_size=1) as feed:
        whole = [feed.batch(step) for step in range(6)]
    assert [(_rows(batch), len(batch.families)) for batch in whole] == [
        *[(64, 4)] * 3,
        (96, 8),
        *[(128, 2)] * 2,
    ]
    for first in (2, 3, 4, 5):
        with open_feed(plan, rank=0, world_size=1, first_step=first) as feed:
            for step in range(first, 6):
                batch = feed.batch(step)
                assert np.array_equal(batch.x_query, whole[step].x_query, equal_nan=True)
                assert np.array_equal(batch.y_query, whole[step].y_query)
    alone = BatchPlan(ShardSet.open(two), batch_size=8, seed=1, split=plan.stages[1].split).batch(0)
    assert np.array_equal(alone.y_query, whole[3].y_query)


def test_fresh_stages_give_what_their_recipes_alone_do_and_draw_no_batch_beyond_their_end(
    tmp_path: pathlib.Path,
) -> None:
    longer = dataclasses.replace(_CONFIG, prior=dataclasses.replace(_CONFIG.prior, min_rows=96, max_rows=96))
    recipes = [_RECIPE, Recipe(config=longer, seed=0, num_parts=2)]
    plan = _plan(_stage(fresh=recipes[0]), _stage(fresh=recipes[1], first_step=2), num_steps=4)
    with open_feed(plan, rank=0, world_size=1) as feed:
        found = [feed.batch(step) for step in range(4)]
    assert [_rows(batch) for batch in found] == [64, 64, 96, 96]
    for step, batch in enumerate(found):
        recipe, index = recipes[step // 2], step % 2
        alone = FreshPlan(recipe=recipe, batch_size=4, seed=1, split=plan.stages[0].split).plan().batch(index)
        assert np.array_equal(batch.x_query, alone.x_query, equal_nan=True)


def test_shards_of_a_stage_that_is_over_are_not_looked_at_and_those_of_later_ones_at_once(
    tmp_path: pathlib.Path,
) -> None:
    """D3: verified before the first step that could miss them."""
    one, two, _ = _sets(tmp_path)
    plan = _plan(_stage(one), _stage(two, first_step=3))
    (pathlib.Path(two) / "part-00000.arrow").write_bytes(b"damaged")
    with pytest.raises(Failure) as caught, open_feed(plan, rank=0, world_size=1):
        pass
    assert caught.value.code is ExitCode.SHARD_CORRUPT
    other = _plan(_stage(two), _stage(one, first_step=3))
    with open_feed(other, rank=0, world_size=1, first_step=3) as feed:
        assert _rows(feed.batch(3)) == 64


@pytest.mark.parametrize("first_step", [0, 6])
def test_stages_that_do_not_follow_one_another_are_refused(first_step: int) -> None:
    plan = _plan(_stage(fresh=_RECIPE), _stage(fresh=_RECIPE, first_step=first_step))
    with (
        pytest.raises(Failure, match=f"stage 2 of the curriculum begins at step {first_step}: let it begin after") as c,
        open_feed(plan, rank=0, world_size=1),
    ):
        pass
    assert c.value.code is ExitCode.BAD_FLAG


def test_more_workers_than_tasks_of_a_later_stage_are_refused_at_once() -> None:
    """T3: before the first step, not at the first of that stage."""
    plan = _plan(_stage(fresh=_RECIPE), _stage(fresh=_RECIPE, first_step=3, batch_size=2))
    with pytest.raises(Failure, match="a batch of 2 tasks is too small for 3 workers"):
        with open_feed(plan, rank=0, world_size=3):
            pass
