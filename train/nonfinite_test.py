"""What is not finite in one of two workers: both leave the step out, both stop when it is too much, none saves it."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from model import checkpoint
from priors.group import TaskGroup
from priors.shards import ShardSet
from priors.task import TaskKind
from tools import files
from tools.failure import ExitCode, Failure
from train import sitting, step
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.toy_job import BATCH_SIZE, toy_job, toy_shards

_STEPS = 8
_STRUCK = 5  # the step


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[TaskKind, str]:
    return {kind: toy_shards(tmp_path_factory.mktemp(kind.value), kind=kind) for kind in TaskKind}


def _job(shards: dict[TaskKind, str], folder: pathlib.Path, kind: TaskKind, **changes: Any) -> TrainingJob:
    fields = {"num_steps": _STEPS, "log_every": 1, "checkpoint_every": 2, **changes}
    return toy_job(shards[kind], folder, loop=LoopConfig(batch_size=BATCH_SIZE, **fields), kind=kind)


class _Strike:
    """Makes something infinite or NaN in one worker's sitting at chosen steps, and notes all weights after each step.

    Args:
        where: "shard", "loss", "gradient" or "weights".
        at: the steps.
        here: whether this worker is struck.
    """

    def __init__(self, where: str, *, at: range, here: bool) -> None:
        self._where, self._at, self._here = where, at, here
        self.weights: list[str] = []
        self.step = 0

    def active(self, where: str) -> bool:
        """Whether `where` is struck now."""
        return self._here and where == self._where and self.step in self._at

    def group(self, whole: Callable[..., TaskGroup], shard_set: ShardSet, index: int) -> TaskGroup:
        """The tasks of a shard, the labels of the last half of them NaN."""
        found = whole(shard_set, index)
        if self.active("shard"):
            found.y[BATCH_SIZE // 2 :, 3] = np.nan
        return found

    def losses(self, whole: Callable[..., torch.Tensor], *arguments: Any, **options: Any) -> torch.Tensor:
        """Losses, one of them infinite."""
        found = whole(*arguments, **options)
        return found * torch.inf if self.active("loss") else found

    def training_step(self, whole: Callable[..., step.StepResult], network: Any, *rest: Any, **options: Any) -> Any:
        """A step during which one weight's gradient may be NaN, or after which a weight may be infinite."""
        last = list(network.parameters())[-1]
        broken = last.register_hook(lambda g: torch.full_like(g, torch.nan) if self.active("gradient") else g)
        result = whole(network, *rest, **options)
        broken.remove()
        if self.active("weights"):
            last.data.fill_(torch.inf)
        flat = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
        self.weights.append(flat.numpy().tobytes().hex()[-400:] + str(float(flat.double().abs().sum())))
        self.step += 1
        return result


def _struck(place: Place, job: TrainingJob, where: str, at: Sequence[int], victims: list[int]) -> dict[str, Any]:
    strike = _Strike(where, at=range(*at), here=place.rank in victims)
    group, losses, training_step = ShardSet.group, step.query_losses, step.training_step
    code, message = None, ""
    with (
        mock.patch.object(ShardSet, "group", lambda self, index: strike.group(group, self, index)),
        mock.patch.object(step, "query_losses", functools.partial(strike.losses, losses)),
        mock.patch("train.loop.training_step", functools.partial(strike.training_step, training_step)),
        mock.patch("priors.batches._KEPT_GROUPS", 0),  # every step opens its shard anew
    ):
        try:
            sitting.run_job(job, place)
        except Failure as failure:
            code, message = int(failure.code), failure.message
    return {"code": code, "message": message, "weights": strike.weights}


def _saved_weights_are_finite(job: TrainingJob) -> list[int]:
    """Checks every checkpoint, moments included; returns their steps."""
    folders = checkpoint.step_folders(job.checkpoints)
    for folder in folders:
        tensors = checkpoint.load_checkpoint(folder).weights | checkpoint.load_state(folder).tensors
        assert all(tensor.isfinite().all() for tensor in tensors.values()), folder
    return [checkpoint.step_of(folder) for folder in folders]


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize(("where", "reason"), [("shard", "data"), ("loss", "loss"), ("gradient", "gradient")])
def test_a_step_that_is_broken_in_one_worker_is_left_out_by_both(
    shards: dict[TaskKind, str], tmp_path: pathlib.Path, where: str, reason: str, kind: TaskKind
) -> None:
    """T7: injected in data, loss, one rank's gradient: both skip together and hold equal weights after every step."""
    job = _job(shards, tmp_path, kind)
    one, other = run_world(_struck, job, where, (_STRUCK, _STRUCK + 1), [1])
    assert one["code"] is None and other["code"] is None, one["message"] + other["message"]
    assert one["weights"] == other["weights"] and len(one["weights"]) == _STEPS
    stood_still = [n for n in range(1, _STEPS) if one["weights"][n] == one["weights"][n - 1]]
    assert stood_still == [_STRUCK]
    values = checkpoint.load_state(checkpoint.newest_verified(job.checkpoints)).values
    assert (values["skipped"], values["num_updates"], values["step"]) == (1, _STEPS - 1, _STEPS)
    events = files.read_json_lines(pathlib.Path(job.folder).parent / "events.jsonl")
    skips = [(e["step"], e["reason"]) for e in events if e["event"] == "step skipped"]
    assert skips == [(_STRUCK, reason)]
    assert _STEPS in _saved_weights_are_finite(job)


@pytest.mark.parametrize("where", ["shard", "loss", "gradient"])
def test_ten_broken_steps_in_a_row_stop_both_workers_at_once(
    shards: dict[TaskKind, str], tmp_path: pathlib.Path, where: str
) -> None:
    """T7: ten in a row; both say so, with one exit code."""
    job = _job(shards, tmp_path, TaskKind.REGRESSION, num_steps=40, checkpoint_every=100)
    both = run_world(_struck, job, where, (2, 40), [1])
    assert [one["code"] for one in both] == [ExitCode.DIVERGED] * 2
    assert all("10 in a row" in one["message"] and len(one["weights"]) == 12 for one in both)
    assert both[0]["weights"] == both[1]["weights"]
    assert _saved_weights_are_finite(job) == []


def test_one_broken_step_in_a_hundred_is_borne_and_one_more_stops_both_workers(
    shards: dict[TaskKind, str], tmp_path: pathlib.Path
) -> None:
    """T7: 1 % of 1000 steps, however far apart."""
    few, many = (
        _job(shards, tmp_path / name, TaskKind.REGRESSION, num_steps=24, checkpoint_every=100)
        for name in ("few", "many")
    )
    assert [one["code"] for one in run_world(_struck, few, "gradient", (0, 20, 2), [1])] == [None, None]
    assert checkpoint.load_state(checkpoint.newest_verified(few.checkpoints)).values["skipped"] == 10
    both = run_world(_struck, many, "gradient", (0, 22, 2), [1])
    assert [one["code"] for one in both] == [ExitCode.DIVERGED] * 2
    assert all("11 of 21 steps" in one["message"] for one in both)
    assert _saved_weights_are_finite(many) == []


def test_weights_that_are_not_finite_are_never_saved(shards: dict[TaskKind, str], tmp_path: pathlib.Path) -> None:
    """T7: although the update that made them raised nothing; the checkpoints before stay as they were."""
    job = _job(shards, tmp_path, TaskKind.REGRESSION)
    both = run_world(_struck, job, "weights", (_STRUCK, _STRUCK + 1), [0, 1])
    assert [one["code"] for one in both] == [ExitCode.DIVERGED] * 2
    assert _saved_weights_are_finite(job) == [2, 4]
