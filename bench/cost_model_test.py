"""Tests of what presets cost, before anything is run."""

import numpy as np
import pytest

from bench.cost_model import Shapes, model_cost, stage_shapes, task_cost
from model import presets
from model.label_injection import LabelKind
from priors.task import TaskKind
from train.dry_step import TableShape, dry_step
from train.presets import PRESETS


@pytest.mark.parametrize("kind", list(LabelKind))
def test_the_polynomial_gives_what_the_network_takes_at_a_shape_that_it_was_not_fitted_to(kind: LabelKind) -> None:
    cost = task_cost(presets.tiny(kind))
    shapes = Shapes(context=np.array([301]), queries=np.array([77]), features=np.array([31]))
    counted = dry_step(presets.tiny(kind), TableShape(tasks=1, context=301, queries=77, features=31))
    assert cost.flops_of(shapes)[0] == pytest.approx(counted.flops, rel=1e-6)
    assert cost.saved_of(shapes)[0] == pytest.approx(counted.saved_bytes, rel=1e-6)


def test_shapes_of_a_stage_are_those_that_its_groups_and_splits_have() -> None:
    stage = PRESETS["tiny"]().stages(TaskKind.REGRESSION)[0]
    shapes = stage_shapes(stage, count=300)
    rows, prior = shapes.context + shapes.queries, stage.shards.prior
    assert rows.min() >= prior.min_rows and rows.max() <= prior.max_rows and set(rows % prior.row_step) == {0}
    assert shapes.features.min() >= prior.min_features and shapes.features.max() <= prior.max_features
    share = shapes.context / rows
    assert stage.split.min_share - 0.01 <= share.min() and share.max() <= stage.split.max_share + 0.01
    assert abs(share.mean() - (stage.split.min_share + stage.split.max_share) / 2) < 0.05


def test_a_model_costs_its_stages_and_as_many_gpu_hours_as_its_rate_says() -> None:
    cost = model_cost("tiny", TaskKind.CLASSIFICATION)
    loop = PRESETS["tiny"]().classification.loop
    assert cost.stages[0].steps == loop.num_steps and cost.stages[0].tasks == loop.num_steps * loop.batch_size
    assert cost.stages[0].flops == cost.stages[0].tasks * cost.stages[0].flops_per_task
    assert cost.stages[0].gpu_hours(mfu=0.5, chip_flops=cost.stages[0].flops / 3600) == pytest.approx(2.0)
    assert cost.parameters > 0 and cost.checkpoint_bytes > 4 * 2 * cost.parameters
    assert cost.state_bytes - cost.checkpoint_bytes == 4 * cost.parameters
