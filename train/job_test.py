"""Tests of what a training job knows of itself: its identity, and which of its checkpoints is the best."""

import dataclasses
import json
import math
import pathlib
import shutil
from typing import Any

import pytest
import torch

from model import checkpoint
from model.label_injection import LabelKind
from priors.fresh_tasks import FreshConfig
from priors.recipe import Recipe, ShardConfig
from priors.splits import SplitConfig
from tools import files
from tools.failure import ExitCode, Failure
from train.compilation import Compilation
from train.job import VALIDATION, TrainingJob, note_best
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig
from train.stages import TrainingStage
from train.state import differences, fresh_state, save_state
from train.toy import small_network
from train.toy_job import BATCH_SIZE, toy_job, toy_prior

_RECIPE = Recipe(config=ShardConfig(prior=toy_prior(), group_size=BATCH_SIZE, groups_per_part=5), seed=0, num_parts=1)
_OTHER = dataclasses.replace(_RECIPE, seed=1)
_LOOP = LoopConfig(num_steps=12, batch_size=BATCH_SIZE)
_LATER = TrainingStage(first_step=6, shards="", fresh=_RECIPE, split=SplitConfig(), batch_size=BATCH_SIZE)
_CHANGES: dict[str, dict[str, Any]] = {
    "network": {"network.kind": small_network(LabelKind.REGRESSION)},
    "loop": {"loop.optimizer.vector_lr": dataclasses.replace(_LOOP, optimizer=OptimizerConfig(vector_lr=0.5))},
    "seed": {"seed": 1},
    "prior": {VALIDATION: dataclasses.replace(toy_prior(), max_rows=65)},
    "num_validation_tasks": {VALIDATION: 9},
    "fresh": {"data.0": _OTHER},
    "split": {"stages.0.split.min_share": SplitConfig(min_share=0.4)},
    "later": {
        "data.1": (dataclasses.replace(_LATER, fresh=_OTHER),),
        "stages.1.first_step": (dataclasses.replace(_LATER, first_step=7),),
        "stages.1.split.min_share": (dataclasses.replace(_LATER, split=SplitConfig(min_share=0.4)),),
        "later.0.batch_size": (dataclasses.replace(_LATER, batch_size=4),),
        "later.0.accumulation": (dataclasses.replace(_LATER, accumulation=2),),
    },
}
"""Field of a job → name in its identity → a value that changes what stands there."""
_NEUTRAL: dict[str, Any] = {
    "shards": "elsewhere",  # not looked at where tasks are drawn
    "folder": "elsewhere",
    "drawing": FreshConfig(processes=3),
    "accept_changes": True,
    "watch": WatchConfig(num_tables=1),
    "tables": "elsewhere",
    "threads": 3,
    "compilation": Compilation.ON,
}


def _job(folder: pathlib.Path) -> TrainingJob:
    return dataclasses.replace(toy_job("", folder, loop=_LOOP), fresh=_RECIPE, later=(_LATER,))


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(TrainingJob)])
def test_an_identity_holds_what_results_depend_on_and_nothing_else(field: str, tmp_path: pathlib.Path) -> None:
    """T3: every field of a job is one or the other."""
    job = _job(tmp_path)
    if field in _NEUTRAL:
        assert field not in _CHANGES
        assert dataclasses.replace(job, **{field: _NEUTRAL[field]}).identity() == job.identity()
        return
    for name, value in _CHANGES[field].items():
        changes = differences(job.identity(), dataclasses.replace(job, **{field: value}).identity())
        assert name in [change.split(":")[0] for change in changes]


def test_an_identity_is_the_same_after_its_way_through_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """T3: what is compared on resumption is what JSON keeps."""
    identity = _job(tmp_path).identity()
    assert json.loads(json.dumps(identity)) == identity


def _saved(job: TrainingJob, losses: dict[int, float], *, tasks: str = "same") -> None:
    """Checkpoints of these validation figures."""
    cpu = torch.device("cpu")
    identity = {VALIDATION: tasks}
    state = fresh_state(job.network, job.loop.optimizer, seed=0, device=cpu, identity=identity)
    for state.step, loss in losses.items():
        save_state(job.checkpoints, state, validation={"nll": loss})


def _best(job: TrainingJob) -> dict[str, float]:
    return json.loads((pathlib.Path(job.folder) / "best.json").read_bytes())


def _damage(job: TrainingJob, step: int) -> None:
    (job.checkpoints / f"step-{step:08d}" / "weights.safetensors").write_bytes(b"damaged")


def test_the_best_step_is_right_after_a_kill_before_it_was_noted_and_after_damage(tmp_path: pathlib.Path) -> None:
    """T1: what is chosen is read off the checkpoints that verify."""
    job = _job(tmp_path)
    _saved(job, {2: 0.1, 4: 0.3, 6: 0.2})
    assert note_best(job) == 2 and _best(job) == {"step": 2, "nll": 0.1}
    (pathlib.Path(job.folder) / "best.json").unlink()
    assert note_best(job) == 2 and _best(job)["step"] == 2
    _damage(job, 2)
    assert note_best(job) == 6 and _best(job) == {"step": 6, "nll": 0.2}
    for step in (4, 6):
        _damage(job, step)
    for change in (lambda: None, lambda: shutil.rmtree(job.checkpoints)):
        change()
        with pytest.raises(Failure, match="holds no whole checkpoint") as caught:
            note_best(job)
        assert caught.value.code is ExitCode.NOT_FOUND


def test_the_best_step_is_one_of_the_newest_validation_tasks(tmp_path: pathlib.Path) -> None:
    """T3: figures of different tasks do not compare; a damaged checkpoint is not the newest."""
    job = _job(tmp_path)
    _saved(job, {2: 0.1, 4: 0.2}, tasks="few")
    assert note_best(job) == 2
    _saved(job, {6: 0.9, 8: 0.8, 10: 0.85}, tasks="many")
    assert note_best(job) == 8
    assert _best(job) == {"step": 8, "nll": 0.8}
    _saved(job, {12: 0.9}, tasks="others")
    _damage(job, 12)
    assert note_best(job) == 8


def test_a_figure_that_is_not_finite_is_the_worst_one(tmp_path: pathlib.Path) -> None:
    """T7: also where it came first."""
    job = _job(tmp_path)
    _saved(job, {2: math.nan, 4: math.inf})
    assert note_best(job) in (2, 4)
    _saved(job, {6: 0.9, 8: -math.inf, 10: 0.9, 12: math.nan})
    assert note_best(job) == 6


def test_choosing_and_comparing_read_no_tensors(tmp_path: pathlib.Path) -> None:
    """Moments are as large as the weights twice over, and stand in the way of a few numbers."""
    job = _job(tmp_path)
    _saved(job, {12: 0.5})
    folder = job.checkpoints / "step-00000012"
    (folder / "state.safetensors").write_bytes(b"no safetensors file")
    (folder / files.MANIFEST).unlink()
    files.write_manifest(folder, format_version=checkpoint.FORMAT_VERSION, extra={"step": 12})
    assert note_best(job) == 12
    assert any(change.startswith("data.0: absent → ") for change in job.trained_otherwise())
