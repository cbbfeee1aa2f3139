"""Tests of the stages of a training job."""

import pathlib

import pytest

from priors.generation import ensure_shards
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig
from priors.splits import SplitConfig
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from train.stages import TaskLimits, TrainingStage, check_stages, limits_of, place_of, tasks_until


def _stage(first_step: int, *, batch_size: int = 4, shards: str = "", fresh: Recipe | None = None) -> TrainingStage:
    return TrainingStage(first_step=first_step, shards=shards, fresh=fresh, split=SplitConfig(), batch_size=batch_size)


_STAGES = (_stage(0), _stage(5, batch_size=8), _stage(9, batch_size=1))


def test_a_step_belongs_to_the_last_stage_that_has_begun() -> None:
    assert [place_of(_STAGES, step) for step in range(12)] == [0] * 5 + [1] * 4 + [2] * 3


@pytest.mark.parametrize("step", range(13))
def test_tasks_are_counted_stage_by_stage(step: int) -> None:
    sizes = [4] * 5 + [8] * 4 + [1] * 4
    assert tasks_until(_STAGES, step) == sum(sizes[:step])


@pytest.mark.parametrize(("first", "second"), [(0, 5), (5, 5), (6, 5), (5, 20), (5, 21)])
def test_stages_out_of_order_or_beyond_the_end_are_refused(first: int, second: int) -> None:
    check_stages(_STAGES, num_steps=10)
    with pytest.raises(Failure, match="of the curriculum begins at step ") as caught:
        check_stages((_stage(0), _stage(first), _stage(second)), num_steps=20)
    assert caught.value.code is ExitCode.BAD_FLAG


def test_what_tasks_ask_of_a_network_is_read_off_a_set_or_a_recipe(tmp_path: pathlib.Path) -> None:
    prior = PriorConfig(kind=TaskKind.REGRESSION, min_rows=64, max_rows=64, max_features=7)
    config = ShardConfig(prior=prior, group_size=4, groups_per_part=1)
    ensure_shards(config, out=tmp_path, num_tasks=4, seed=0)
    wanted = TaskLimits(kind=TaskKind.REGRESSION, max_features=7, max_classes=10)
    assert limits_of(_stage(0, shards=str(tmp_path))) == wanted
    assert limits_of(_stage(0, fresh=Recipe(config=config, seed=0, num_parts=1))) == wanted
