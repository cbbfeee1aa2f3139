"""Tests of train/feed.py: fresh tasks train as those of a shard set do, and waiting is counted."""

import dataclasses
import pathlib
import time

import numpy as np
import pytest

from model import checkpoint
from model.label_injection import LabelKind
from priors.fresh_tasks import FreshConfig, FreshTasks
from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig
from priors.splits import SplitConfig
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from train.feed import Feed, FeedPlan, open_feed
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.sitting import run_job
from train.toy import small_network

_CONFIG = ShardConfig(prior=PriorConfig(min_rows=64, max_rows=64, max_features=4), group_size=8, groups_per_part=2)
_RECIPE = Recipe(config=_CONFIG, seed=0, num_parts=2)


def _plan(shards: str = "", *, fresh: Recipe | None = None) -> FeedPlan:
    return FeedPlan(
        shards=shards,
        fresh=fresh,
        drawing=FreshConfig(),
        batch_size=4,
        seed=1,
        split=SplitConfig(min_share=0.4, max_share=0.6),
        num_steps=6,
    )


def test_both_sources_give_the_same_tasks_each_once_in_an_epoch(tmp_path: pathlib.Path) -> None:
    ensure_shards(_CONFIG, out=tmp_path, num_tasks=32, seed=0)

    def tasks(plan: FeedPlan) -> list[tuple[float, ...]]:
        with open_feed(plan, rank=0, world_size=1) as feed:
            batches = [feed.batch(step) for step in range(8)]
        tables = [(batch.x_context, batch.x_query) for batch in batches]
        assert all(0.35 < x.shape[1] / 64 < 0.65 for x, _ in tables)  # the split that was asked for
        cells = [np.concatenate(pair, 1).reshape(len(pair[0]), -1) for pair in tables]
        return sorted(tuple(np.sort(np.nan_to_num(row, nan=1e9))) for rows in cells for row in rows)

    read, drawn = tasks(_plan(str(tmp_path))), tasks(_plan(fresh=_RECIPE))
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

    feed = Feed(digest="", batch=slow)
    feed.batch(0)
    feed.batch(1)
    assert 0.1 <= feed.seconds_waited() < 5.0
    assert feed.seconds_waited() == 0.0


def test_the_digest_is_that_of_what_is_fed(tmp_path: pathlib.Path) -> None:
    shards = ensure_shards(_CONFIG, out=tmp_path, num_tasks=16, seed=0)
    with open_feed(_plan(str(tmp_path)), rank=0, world_size=1) as feed:
        assert feed.digest == shards.digest
    with open_feed(_plan(fresh=_RECIPE), rank=0, world_size=1) as feed:
        assert feed.digest == FreshTasks(_RECIPE).digest
