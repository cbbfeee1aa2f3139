"""From a main job's config to the stages that one of its models goes through."""

import dataclasses
import pathlib

from priors.generation import shard_folder
from priors.recipe import Recipe
from priors.task import TaskKind
from train.feed import TaskSource
from train.presets import PretrainConfig
from train.stages import TrainingStage


def training_stages(config: PretrainConfig, kind: TaskKind, *, root: pathlib.Path) -> tuple[TrainingStage, ...]:
    """All stages of one model, in order.

    Args:
        config: the main job.
        kind: which model.
        root: under which shard sets lie.
    """
    num_steps, stages = config.models()[kind].loop.num_steps, []
    for stage in config.stages(kind):
        fresh = None
        if config.data.source is TaskSource.FRESH:  # in groups of a batch: of a larger group, the rest would be lost
            drawn = dataclasses.replace(stage.shards, group_size=stage.batch_size)
            fresh = Recipe(config=drawn, seed=config.seed, num_parts=drawn.num_parts(stage.num_tasks))
        folder = shard_folder(root, stage.shards, seed=config.seed, num_tasks=stage.num_tasks)
        stages.append(
            TrainingStage(
                first_step=stage.first_step(num_steps),
                shards=str(folder),
                fresh=fresh,
                split=stage.split,
                batch_size=stage.batch_size,
                accumulation=stage.accumulation,
            )
        )
    return tuple(stages)
