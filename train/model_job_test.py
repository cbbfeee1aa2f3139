"""Tests of the training that a main job's config makes of each model."""

import dataclasses
import pathlib

import pytest

from priors.generation import shard_folder
from priors.task import TaskKind
from train import presets
from train.feed import TaskSource
from train.model_job import model_job, training_stages
from train.stages import check_stages, tasks_until


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("name", list(presets.PRESETS))
def test_every_preset_sees_every_task_at_most_once(name: str, kind: TaskKind, tmp_path: pathlib.Path) -> None:
    config = presets.PRESETS[name]()
    stages, num_steps = training_stages(config, kind, root=tmp_path), config.models()[kind].loop.num_steps
    check_stages(stages, num_steps=num_steps)
    ends = [*(stage.first_step for stage in stages[1:]), num_steps]
    assert config.stage_steps(kind) == tuple(end - stage.first_step for stage, end in zip(stages, ends, strict=True))
    for stage, end, wanted in zip(stages, ends, config.stages(kind), strict=True):
        seen = tasks_until(stages, end) - tasks_until(stages, stage.first_step)
        assert 0 < seen == wanted.num_tasks
        assert stage.fresh is None
        folder = shard_folder(tmp_path, wanted.shards, seed=config.seed, num_tasks=wanted.num_tasks)
        assert stage.shards == str(folder) and wanted.shards.prior.kind is kind


def test_fresh_tasks_are_drawn_in_groups_of_a_batch_and_are_as_many(tmp_path: pathlib.Path) -> None:
    config = presets.PRESETS["base"]()
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, source=TaskSource.FRESH))
    stages = training_stages(config, TaskKind.REGRESSION, root=tmp_path)
    assert [stage.fresh.config.group_size for stage in stages] == [64, 64, 16]
    for stage, wanted in zip(stages, config.stages(TaskKind.REGRESSION), strict=True):
        assert stage.fresh.num_parts * stage.fresh.config.tasks_per_part >= wanted.num_tasks


def test_a_job_is_the_model_of_its_kind_with_its_first_stage_and_the_later_ones_behind(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(presets.PRESETS["base"](), seed=3, accept_changes=True, tables=pathlib.Path("/tables"))
    kind = TaskKind.REGRESSION
    job = model_job(config, kind, shards_root=tmp_path / "shards", folder=tmp_path / "run")
    assert job.stages == training_stages(config, kind, root=tmp_path / "shards") and len(job.stages) == 3
    assert (job.network, job.loop) == (config.regression.network, config.regression.loop)
    assert (job.seed, job.accept_changes, job.tables, job.folder) == (3, True, "/tables", str(tmp_path / "run"))
    assert job.prior == config.shards(kind).prior and job.prior.kind is kind
    assert (job.watch, job.drawing, job.num_validation_tasks) == (config.watch, config.drawing, 128)
    assert list(tmp_path.iterdir()) == []


def test_base_and_large_go_through_three_stages_whose_rows_are_shared_out_as_in_the_published_recipe() -> None:
    """68 %, 16 % and 16 % of all rows (TabICL v2), within two points."""
    for name in ("base", "large"):
        stages = presets.PRESETS[name]().stages(TaskKind.CLASSIFICATION)
        rows = [stage.num_tasks * (stage.shards.prior.min_rows + stage.shards.prior.max_rows) / 2 for stage in stages]
        assert [share / sum(rows) for share in rows] == pytest.approx([0.68, 0.16, 0.16], abs=0.02)
        assert [stage.batch_size * stage.accumulation for stage in stages] == [64, 64, 64]
