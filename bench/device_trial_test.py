"""Tests of the timed pretraining, with the CPU as the device."""

import numpy as np
import torch

from bench.device_trial import DeviceTasks, GroupByGroup, base_trial, quick_trial, run_trial
from bench.findings import TimeBudget
from priors.fresh_tasks import FreshTasks
from priors.recipe import Recipe, ShardConfig
from priors.task import TaskBatch, TaskKind
from train import presets

_TRIAL = quick_trial()
_RECIPE = Recipe(
    config=ShardConfig(prior=_TRIAL.prior, group_size=_TRIAL.group_size, groups_per_part=1), seed=0, num_parts=2
)


def _tables(batch: TaskBatch) -> list[tuple[float, ...]]:
    """Each table's cells in ascending order: what names it however it is cut."""
    cells = np.concatenate([batch.x_context, batch.x_query], 1).reshape(len(batch.families), -1)
    return [tuple(np.sort(np.nan_to_num(table, nan=1e9))) for table in cells]


def test_what_is_trained_is_the_classification_model_of_the_preset() -> None:
    trial, job = base_trial(), presets.base()
    model = job.classification
    assert (trial.network, trial.optimizer) == (model.network, model.loop.optimizer)
    assert trial.prior == job.shards(TaskKind.CLASSIFICATION).prior


def test_a_group_is_used_up_before_the_next_and_all_come_again() -> None:
    source, steps = GroupByGroup(FreshTasks(_RECIPE), _TRIAL), _TRIAL.group_size // _TRIAL.batch_size
    groups = [
        sorted(table for step in range(number * steps, (number + 1) * steps) for table in _tables(source.batch(step)))
        for number in range(3)
    ]
    assert all(len(set(group)) == _TRIAL.group_size for group in groups)
    assert groups[2] == groups[0] and not set(groups[0]) & set(groups[1])


def test_what_is_drawn_on_the_cpu_as_a_device_is_what_the_cpu_draws() -> None:
    ours, theirs = DeviceTasks(_RECIPE, device=torch.device("cpu")).group(1), FreshTasks(_RECIPE).group(1)
    assert ours.families == theirs.families
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-5)
    np.testing.assert_array_equal(ours.y, theirs.y)


def test_without_time_the_curve_still_has_all_of_its_points() -> None:
    found = list(run_trial(_TRIAL, torch.device("cpu"), budget=TimeBudget(0.0)))
    assert [finding.facts["tasks"] for finding in found] == [_TRIAL.batch_size * step for step in range(3)]
    assert all(0 < finding.value < 10 for finding in found)
    assert "train_loss" not in found[0].facts and found[-1].facts["train_loss"] > 0
    assert found[-1].facts["seconds"] > 0 == found[0].facts["seconds"]
