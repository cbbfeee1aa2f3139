"""Exact resumption, whole: kinds of training × numbers of workers × cuts, in real processes, compared byte by byte."""

import contextlib
import dataclasses
import functools
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from torch import distributed

from priors.splits import SplitConfig
from train import loop, sitting
from train.averaging import AveragingConfig, AveragingKind
from train.feed import Feed
from train.gloo_world import MemberFailed, run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.regularisation import RegularisationConfig
from train.stages import TrainingStage
from train.toy_job import BATCH_SIZE, newest_step, outcome, sit, sit_until_killed, toy_job, toy_shards

_STEPS = 12
_KINDS: dict[str, dict[str, Any]] = {
    "muon": {},
    "adamw": {"optimizer": OptimizerConfig(kind=OptimizerKind.ADAMW)},
    "schedule-free": {"optimizer": OptimizerConfig(kind=OptimizerKind.SCHEDULE_FREE)},
    "accumulation": {"accumulation": 3},
    "moving average": {"averaging": AveragingConfig(kind=AveragingKind.EMA)},
    "curriculum": {},
    "latest points": {"averaging": AveragingConfig(kind=AveragingKind.LATEST, points=3, every=2)},
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_shards(tmp_path_factory.mktemp("shards"))


def _job(shards: str, folder: pathlib.Path, *, kind: str = "muon") -> TrainingJob:
    config = LoopConfig(num_steps=_STEPS, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=4)
    thinned = RegularisationConfig(dropped_rows=0.2)
    job = toy_job(shards, folder, loop=dataclasses.replace(config, regularisation=thinned, **_KINDS[kind]))
    if kind != "curriculum":
        return job
    second = dataclasses.replace(job.stages[0], first_step=5, split=SplitConfig(min_share=0.5, max_share=0.5))
    third = TrainingStage(
        first_step=9,
        shards=toy_shards(folder / "more", seed=1),
        fresh=None,
        split=SplitConfig(),
        batch_size=BATCH_SIZE // 2,
        accumulation=2,
    )
    return dataclasses.replace(job, later=(second, third))


@pytest.fixture(scope="module")
def resumed(shards: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What a job of a kind ends in that is resumed once, with everything."""

    @functools.cache
    def ended(kind: str) -> dict[str, Any]:
        job = _job(shards, tmp_path_factory.mktemp("resumed"), kind=kind)
        run_world(_sit_in_a_row, job, [9, None], "", size=1)
        return outcome(job)

    return ended


def _sit_in_a_row(place: Place, job: TrainingJob, cuts: Sequence[int | None], without: str) -> None:
    """Several sittings, one after the other; the later ones are resumed `without` something."""
    for number, cut in enumerate(cuts):
        with _left_out(without if number else "", job):
            sit(place, job, cut)
        if place.world_size > 1:
            distributed.barrier()  # the first worker may still be saving


@contextlib.contextmanager
def _left_out(what: str, job: TrainingJob) -> Iterator[None]:
    """Resumes without a part of what a checkpoint holds."""
    start = newest_step(job)
    schedule, batch, thinned, restore = loop.schedule, Feed.batch, sitting.thinned, sitting.restore_state

    def restored(root: pathlib.Path, state: Any, **options: Any) -> Any:
        found = restore(root, state, **options)
        if what == "moments":
            for tensor in state.optimizer.state_tensors().values():
                tensor.zero_()
        if what == "number of updates":
            state.optimizer.num_updates = 0
        if what == "average":
            state.average.load_state_tensors({})
        return found

    replaced = {
        "schedule": (loop, "schedule", lambda step, **rest: schedule(step - start, **rest)),
        "data": (Feed, "batch", lambda self, step: batch(self, step - start)),
        "randomness": (
            sitting,
            "thinned",
            lambda inputs, config, *, step, **rest: thinned(inputs, config, step=step - start, **rest),
        ),
    }
    owner, name, value = replaced.get(what, (sitting, "restore_state", restored))
    with mock.patch.object(owner, name, value):
        yield


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_cut_anywhere_ends_in_the_bytes_of_an_uninterrupted_one(
    shards: str, tmp_path: pathlib.Path, workers: int
) -> None:
    """T2: five random cuts, by a stop or by kill −9 of a rank; every sitting in processes of its own."""
    whole, generator = _job(shards, tmp_path / "whole"), random.Random(workers)
    run_world(sit, whole, None, size=workers)
    for number, cut in enumerate(generator.sample(range(1, _STEPS), 5)):
        job = _job(shards, tmp_path / str(number))
        if number % 2:
            run_world(sit, job, cut, size=workers)
            assert newest_step(job) == cut
        else:
            with pytest.raises(MemberFailed, match="status -9"):
                run_world(sit_until_killed, job, cut, generator.randrange(workers), size=workers)
            assert newest_step(job) == (cut - 1) // 4 * 4
        run_world(sit, job, None, size=workers)
        assert outcome(job) == outcome(whole), f"cut in step {cut}"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", _KINDS)
def test_three_resumes_in_a_row_end_in_the_bytes_of_an_uninterrupted_run(
    shards: str, tmp_path: pathlib.Path, kind: str, workers: int
) -> None:
    """T2: every optimizer, accumulation and every average, with one and with two workers."""
    whole, job = _job(shards, tmp_path / "whole", kind=kind), _job(shards, tmp_path / "cut", kind=kind)
    run_world(sit, whole, None, size=workers)
    cuts = random.Random(f"{kind} {workers}").choices(range(1, 5), k=3)
    run_world(_sit_in_a_row, job, [*cuts, None], "", size=workers)
    assert outcome(job) == outcome(whole), f"cuts after {cuts} steps"


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        ("muon", "moments"),
        ("muon", "number of updates"),
        ("muon", "schedule"),
        ("muon", "data"),
        ("muon", "randomness"),
        ("adamw", "moments"),
        ("schedule-free", "moments"),
        ("moving average", "average"),
        ("latest points", "average"),
    ],
)
def test_what_is_left_out_of_a_resume_shows_in_the_weights(
    shards: str, tmp_path: pathlib.Path, resumed: Callable[[str], dict[str, Any]], kind: str, without: str
) -> None:
    """T2: this comparison notices a resume without optimizer, position of schedule or data, randomness or average."""
    job = _job(shards, tmp_path / "cut", kind=kind)
    run_world(_sit_in_a_row, job, [9, None], without, size=1)
    assert outcome(job)["weights.safetensors"] != resumed(kind)["weights.safetensors"]
