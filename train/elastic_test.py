"""A run that goes on with another number of workers sees the same tasks in the same order, and refuses other ones."""

import dataclasses
import os
import pathlib
from typing import Any

import pytest

from model import checkpoint
from tools import files
from tools.failure import ExitCode, Failure
from train.gloo_world import MemberFailed, run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig
from train.sample_log import FOLDER, log_samples, logged_samples
from train.sitting import run_job
from train.toy_job import BATCH_SIZE, newest_step, sit, sit_until_killed, toy_job, toy_shards

_STEPS = 12
_LOOP = LoopConfig(num_steps=_STEPS, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=3, accumulation=2)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_shards(tmp_path_factory.mktemp("shards"))


def _logged(place: Place, log: str, job: TrainingJob, cut: int | None, victim: int) -> None:
    """A sitting whose workers note what they are given; worker `victim` (if there is one) is killed at the cut."""
    os.environ[FOLDER] = log
    log_samples()
    if victim < 0:
        sit(place, job, cut)
    else:
        sit_until_killed(place, job, cut, victim)


def _log_folder(folder: pathlib.Path) -> pathlib.Path:
    (folder / "log").mkdir(parents=True)
    return folder / "log"


def _losses(job: TrainingJob) -> list[float]:
    return [r["train/loss"] for r in files.read_json_lines(job.metrics) if "train/loss" in r]


def test_workers_that_come_and_go_see_the_order_of_an_uninterrupted_run(shards: str, tmp_path: pathlib.Path) -> None:
    """T3: 1, then 2 → 1 → 2, then 3 workers that cannot share a batch evenly, one killed in between: one order.

    Every task's id is noted by the worker that trains on it. The losses agree too, as far as sums in another order do.
    """
    whole, elastic = (toy_job(shards, tmp_path / name, loop=_LOOP) for name in ("whole", "elastic"))
    logs = {job: _log_folder(tmp_path / name) for job, name in ((whole.folder, "a"), (elastic.folder, "b"))}
    run_world(_logged, str(logs[whole.folder]), whole, None, -1, size=1)
    begun_at = []
    for workers, cut, victim in ((2, 2, -1), (1, 3, -1), (2, 2, 1), (3, 3, -1), (2, None, -1)):
        begun_at.append(newest_step(elastic))
        arguments = (str(logs[elastic.folder]), elastic, cut, victim)
        if victim < 0:
            run_world(_logged, *arguments, size=workers)
        else:
            with pytest.raises(MemberFailed, match=f"rank {victim}: status -9"):
                run_world(_logged, *arguments, size=workers)
    assert begun_at == [0, 2, 5, 6, 9]
    wanted, found = logged_samples(logs[whole.folder]), logged_samples(logs[elastic.folder])
    assert set(wanted) == set(range(_STEPS)) and all(len(batches) == 1 for batches in wanted.values())
    assert found == wanted
    distinct = {task for batches in wanted.values() for batch in batches for task in batch}
    assert len(distinct) == _STEPS * BATCH_SIZE, "an id tells every visit of a task from every other"
    seen_by_three = [line["ids"] for line in files.read_json_lines(logs[elastic.folder] / "rank-2.jsonl")]
    assert [len(ids) for ids in seen_by_three] == [3, 3, 3]
    assert _losses(elastic) == pytest.approx(_losses(whole), abs=1e-2)
    numerics = checkpoint.load_state(checkpoint.newest_verified(elastic.checkpoints)).values["numerics"]
    assert numerics["num_workers"] == 2


def _sit_and_say(place: Place, job: TrainingJob) -> dict[str, Any]:
    """Sits; a refusal is told instead of raised."""
    try:
        run_job(job, place)
    except Failure as failure:
        return {"code": int(failure.code), "message": failure.message}
    return {"code": None, "message": ""}


@pytest.mark.parametrize(("change", "names"), [("config", ["vector_lr"]), ("seed", ["seed"]), ("data", ["data"])])
def test_other_data_or_config_is_refused_by_name_unless_it_is_asked_for(
    shards: str, tmp_path: pathlib.Path, change: str, names: list[str]
) -> None:
    """T3: every worker refuses alike and nothing is written; with the flag the run goes on with what is new."""
    job = toy_job(shards, tmp_path / "run", loop=_LOOP)
    sit(Place(), job, 4)
    other = {
        "config": {"loop": dataclasses.replace(_LOOP, optimizer=OptimizerConfig(vector_lr=1e-4))},
        "seed": {"seed": 1},
        "data": {"shards": toy_shards(tmp_path / "others", seed=1)},
    }[change]
    changed = dataclasses.replace(job, **other)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for said in run_world(_sit_and_say, changed):
        assert said["code"] == ExitCode.CONFIG_MISMATCH and "--accept-changes" in said["message"]
        assert all(name in said["message"] for name in names)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert newest_step(job) == 4
    accepted = dataclasses.replace(changed, accept_changes=True)
    assert [said["code"] for said in run_world(_sit_and_say, accepted)] == [None, None]
    assert newest_step(accepted) == _STEPS and accepted.is_complete()
    run_job(changed, Place())  # from now on it is the run of the new config
    assert _sit_and_say(Place(), job)["code"] == ExitCode.CONFIG_MISMATCH
