"""One sitting of a training job on one worker: data, network, loop and files. It does not know who started it."""

import functools
from collections.abc import Callable

import torch

from priors.batches import share_of
from tools import config as configs
from train.feed import Feed, open_feed
from train.job import Place, TrainingJob
from train.loop import LoopHooks, train
from train.regularisation import thinned
from train.state import fresh_state, restore_state
from train.step import compute_dtype
from train.writer import Writer


def run_job(job: TrainingJob, place: Place, *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Trains from the newest verified checkpoint, or from scratch, to the last step.

    Raises:
        Failure: damaged shards, another run's checkpoints, divergence, an unwritable folder, a stop.
    """
    torch.set_num_threads(job.threads)
    with open_feed(job.feed_plan(), rank=place.rank, world_size=place.world_size, device=place.device) as feed:
        _run(job, place, feed=feed, should_stop=should_stop)


def _run(job: TrainingJob, place: Place, *, feed: Feed, should_stop: Callable[[], bool]) -> None:
    """Trains on the batches of `feed`."""
    identity = {"config": configs.digest((job.network, job.loop, job.seed, job.split)), "data": feed.digest}
    state = fresh_state(
        job.network,
        job.loop.optimizer,
        seed=job.seed,
        device=place.device,
        identity=identity,
        averaging=job.loop.averaging,
    )
    dtype = str(compute_dtype(place.device)).removeprefix("torch.")
    state.numerics = {"dtype": dtype, "num_workers": place.world_size, "device": place.device.type}
    if restore_state(job.checkpoints, state) and state.step >= job.loop.num_steps:
        return
    feed.expect(state.step)
    writer = Writer(job, state, feed=feed) if place.rank == 0 else None
    share = share_of(job.loop.batch_size, rank=place.rank, world_size=place.world_size)
    hooks = LoopHooks(
        batch=feed.batch,
        thin=lambda inputs, step, first: thinned(
            inputs, job.loop.regularisation, seed=job.seed, step=step, first_task=share.start + first
        ),
        validate=writer.validate if writer else lambda state: {},
        record=writer.record if writer else lambda record: None,
        save=writer.save if writer else lambda state, figures: None,
        event=functools.partial(job.events().write, kind=job.network.kind.value)
        if writer
        else lambda name, **facts: None,
        should_stop=should_stop,
    )
    train(state, job.loop, hooks=hooks)
