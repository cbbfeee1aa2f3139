"""Tests of the start of several workers: those that found different checkpoints do not train."""

import dataclasses
import pathlib
import shutil

import pytest

from tools import files
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.sitting import DifferentStarts, check_same_start, run_job
from train.toy_job import BATCH_SIZE, newest_step, sit, toy_job, toy_shards


def _stands_at(place: Place, steps: list[int]) -> str:
    try:
        check_same_start(steps[place.rank], place=place)
    except DifferentStarts as difference:
        return str(difference)
    return ""


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([7], ""),
        ([0, 0], ""),
        ([5, 5, 5], ""),
        ([4, 0, 6], "workers found checkpoints of steps 0 to 6 in one folder"),
    ],
)
def test_every_worker_hears_of_a_difference_and_none_where_there_is_none(steps: list[int], said: str) -> None:
    assert run_world(_stands_at, steps, size=len(steps)) == [said] * len(steps)


def _start(place: Place, jobs: list[TrainingJob]) -> str:
    try:
        run_job(jobs[place.rank], place)
    except DifferentStarts as difference:
        return str(difference)
    return "trained"


@pytest.mark.parametrize("ahead", [4, 6])
def test_workers_that_see_different_checkpoints_do_not_train(tmp_path: pathlib.Path, ahead: int) -> None:
    """T3: a folder that lags behind on one node; also where the other worker has nothing left to do (6 of 6 steps)."""
    loop = LoopConfig(num_steps=6, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=2)
    job = toy_job(toy_shards(tmp_path / "shards"), tmp_path / "here", loop=loop)
    sit(Place(), job, 4)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    behind = dataclasses.replace(job, folder=str(tmp_path / "there" / "classification"))
    if ahead == 6:
        sit(Place(), job, None)
    else:
        shutil.rmtree(behind.checkpoints / "step-00000004")
    before = files.read_json_lines(job.metrics)
    wanted = f"workers found checkpoints of steps {newest_step(behind)} to {ahead} in one folder"
    assert run_world(_start, [job, behind]) == [wanted] * 2
    assert files.read_json_lines(job.metrics) == before
