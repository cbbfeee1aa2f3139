"""Tests of the two-way transformer's training beside ours."""

import dataclasses
import itertools
import pathlib

import pytest
import torch

from bench.two_way_training import TwoWayPlan, initial_two_way, load_two_way, train_two_way
from eval.two_way_transformer import TwoWayConfig, TwoWayForm, two_way_loss
from train.feed import FeedPlan, open_feed
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig
from train.toy_job import BATCH_SIZE, toy_job, toy_shards


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> FeedPlan:
    root = tmp_path_factory.mktemp("feed")
    job = toy_job(toy_shards(root / "shards"), root / "run", loop=LoopConfig(batch_size=BATCH_SIZE))
    return dataclasses.replace(job.feed_plan(), num_steps=10**6)


def _plan(feed: FeedPlan, folder: pathlib.Path, *, workers: int, seconds: float) -> TwoWayPlan:
    return TwoWayPlan(
        form=TwoWayForm.MODERN,
        size=TwoWayConfig(width=16, num_heads=2, hidden=32, num_layers=1),
        learning_rate=3e-3,
        schedule=OptimizerConfig(),
        feed=feed,
        seconds=seconds,
        num_looks=3,
        folder=str(folder),
        workers=workers,
        now=_ticking,
    )


_ticks = itertools.count()


def _ticking() -> float:
    """A clock on which a step takes a few hundredths of a second, whatever the machine does."""
    return 0.03 * next(_ticks)


def test_it_learns_for_the_given_seconds_and_keeps_weights_along_the_way(
    feed: FeedPlan, tmp_path: pathlib.Path
) -> None:
    plan = _plan(feed, tmp_path, workers=1, seconds=3.0)
    looks = train_two_way(plan)
    assert len(looks) == 3
    assert [look.tasks for look in looks] == [BATCH_SIZE * look.step for look in looks]
    assert 5 < looks[0].step < looks[1].step < looks[2].step
    assert 1.0 <= looks[0].seconds < looks[1].seconds < 3.0 <= looks[2].seconds
    with open_feed(feed, rank=0, world_size=1) as batches:
        batch = batches.batch(0)
    losses = [
        float(two_way_loss(model, batch=batch, dtype=torch.float32).detach())
        for model in (initial_two_way(plan).eval(), load_two_way(pathlib.Path(looks[-1].path)))
    ]
    assert losses[1] < losses[0]


def test_two_workers_share_each_batch_and_stop_together(feed: FeedPlan, tmp_path: pathlib.Path) -> None:
    """Both end after the same step, and a single process takes what they leave."""
    looks = train_two_way(_plan(feed, tmp_path, workers=2, seconds=1.0))
    assert looks[-1].seconds >= 1.0 and looks[-1].step >= 1
    assert load_two_way(pathlib.Path(looks[-1].path)).form is TwoWayForm.MODERN
