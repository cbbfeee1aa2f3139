"""One sitting of a training job on one worker: data, network, loop and files. It does not know who started it."""

from collections.abc import Callable

import torch
from torch import distributed

from model.label_injection import LabelKind
from model.network import NetworkInputs
from priors.batches import share_of
from priors.task import TaskBatch
from tools.failure import ExitCode, Failure
from train.compilation import compile_blocks, is_wanted
from train.events import RunEvent
from train.feed import Feed, open_feed
from train.job import Place, TrainingJob
from train.loop import LoopHooks, train
from train.regularisation import thinned
from train.stages import limits_of, place_of
from train.state import fresh_state, restore_state
from train.step import compute_dtype
from train.writer import Writer


def run_job(job: TrainingJob, place: Place, *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Trains from the newest verified checkpoint, or from scratch, to the last step.

    Raises:
        Failure: damaged shards, tasks that the network does not take, another run's checkpoints, divergence, an
            unwritable folder, a stop.
        DifferentStarts: when workers found different checkpoints.
    """
    torch.set_num_threads(job.threads)
    state = fresh_state(
        job.network,
        job.loop.optimizer,
        seed=job.seed,
        device=place.device,
        identity=job.identity(),
        averaging=job.loop.averaging,
    )
    dtype = str(compute_dtype(place.device)).removeprefix("torch.")
    compiled = is_wanted(job.compilation, place.device)
    if compiled:
        compile_blocks(state.network)
    state.numerics = {
        "dtype": dtype,
        "num_workers": place.world_size,
        "device": place.device.type,
        "compiled": compiled,
    }
    restored = restore_state(job.checkpoints, state, accept_changes=job.accept_changes)
    check_same_start(state.step, place=place)
    if restored and state.step >= job.loop.num_steps:
        return
    check_fit(job)
    where = {"rank": place.rank, "world_size": place.world_size, "device": place.device}
    with open_feed(job.feed_plan(), first_step=state.step, **where) as feed:
        feed.expect(state.step)
        if place.rank == 0 and restored and restored.changes:  # before the writer, which asks since when it is so
            told = {"kind": job.network.kind.value, "step": state.step, "changes": list(restored.changes)}
            job.events().write(RunEvent.CHANGES_ACCEPTED, **told)
        writer = Writer(job, state, feed=feed) if place.rank == 0 else None
        train(state, job.loop, hooks=_hooks(job, place, feed=feed, writer=writer, should_stop=should_stop))


def _hooks(
    job: TrainingJob, place: Place, *, feed: Feed, writer: Writer | None, should_stop: Callable[[], bool]
) -> LoopHooks:
    """What the loop calls; only the first worker has a writer."""
    event = writer.event if writer else lambda name, **facts: None

    def batch(step: int) -> TaskBatch:
        number = place_of(job.stages, step)
        if number and job.stages[number].first_step == step:
            event(RunEvent.CURRICULUM_STAGE, step=step, stage=number + 1, stages=len(job.stages))
        return feed.batch(step)

    def thin(inputs: NetworkInputs, step: int, *, first: int) -> NetworkInputs:
        share = share_of(job.stage_at(step).batch_size, rank=place.rank, world_size=place.world_size)
        at = {"seed": job.seed, "step": step, "first_task": share.start + first}
        return thinned(inputs, job.loop.regularisation, **at)

    return LoopHooks(
        batch=batch,
        thin=lambda inputs, step, first: thin(inputs, step, first=first),
        validate=writer.validate if writer else lambda state: {},
        record=writer.record if writer else lambda record: None,
        save=writer.save if writer else lambda state, figures: None,
        accumulation=lambda step: job.stage_at(step).accumulation,
        event=event,
        should_stop=should_stop,
    )


class DifferentStarts(Exception):
    """Workers found different checkpoints: a shared folder does not show all of them the same yet.

    It is no refusal: started again, workers look again.
    """


def check_same_start(step: int, *, place: Place) -> None:
    """Compares where every worker stands before its first step; one worker alone always agrees.

    Without this, workers at different steps would average the gradients of different batches, or wait for one that is
    done already.

    Raises:
        DifferentStarts: on every worker, naming the first and the last step.
    """
    if place.world_size == 1:
        return
    ends = torch.tensor([step, -step], device=place.device)
    distributed.all_reduce(ends, distributed.ReduceOp.MAX)
    last, first = int(ends[0]), -int(ends[1])
    if first != last:
        raise DifferentStarts(f"workers found checkpoints of steps {first} to {last} in one folder")


def check_fit(job: TrainingJob) -> None:
    """Refuses tasks that the job's network does not take.

    Raises:
        Failure: OVER_LIMIT or CONFIG_MISMATCH, naming both sides; what is wrong with a manifest.
    """
    network = job.network
    for stage in job.stages:
        limits, where = limits_of(stage), "the drawn tasks" if stage.fresh else stage.shards
        if limits.kind.value != network.kind.value:
            text = f"{where} hold {limits.kind} tasks, and the network is for {network.kind}: give it others"
            raise Failure(ExitCode.CONFIG_MISMATCH, text)
        sides = {"features": (limits.max_features, network.max_features, "max-features")}
        if network.kind is LabelKind.CLASSIFICATION:
            sides["classes"] = (limits.max_classes, network.icl.max_classes, "icl.max-classes")
        for noun, (found, most, flag) in sides.items():
            if found > most:
                mend = f"raise --{network.kind.value}.network.{flag}, or give it tasks of fewer"
                text = f"tasks of up to {found} {noun} in {where} are too large for a network of {most}: {mend}"
                raise Failure(ExitCode.OVER_LIMIT, text)
