"""The training of one of a main job's two models, from the main job's config: its stages, its job, its shards."""

import dataclasses
import os
import pathlib

from priors.generation import ensure_shards, shard_folder
from priors.recipe import Recipe
from priors.shards import ShardSet
from priors.task import TaskKind
from tools import paths, progress
from train.feed import TaskSource
from train.job import TrainingJob
from train.presets import PretrainConfig, StageConfig
from train.stages import TrainingStage


def model_job(
    config: PretrainConfig, kind: TaskKind, *, shards_root: pathlib.Path, folder: pathlib.Path
) -> TrainingJob:
    """The job; nothing is written.

    Args:
        config: the main job.
        kind: which model.
        shards_root: under which shard sets lie.
        folder: of the model's files.
    """
    model = config.models()[kind]
    first, *later = training_stages(config, kind, root=shards_root)
    return TrainingJob(
        network=model.network,
        loop=model.loop,
        seed=config.seed,
        shards=first.shards,
        prior=config.shards(kind).prior,
        folder=str(folder),
        fresh=first.fresh,
        drawing=config.drawing,
        num_validation_tasks=config.data.num_validation_tasks,
        split=first.split,
        later=tuple(later),
        accept_changes=config.accept_changes,
        watch=config.watch,
        tables=None if config.tables is None else str(paths.user_path(config.tables)),
        compilation=config.cluster.compilation,
    )


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


def make_shards(wanted: StageConfig, *, folder: str, seed: int, title: str) -> ShardSet:
    """Makes the training shards of a stage on all cores, or verifies and reuses what lies there of the same tasks.

    Args:
        wanted: the stage.
        folder: of the set.
        seed: of the tasks.
        title: of the progress display.

    Raises:
        Failure: what `ensure_shards` refuses.
    """
    config, num_tasks = wanted.shards, wanted.num_tasks
    with progress.meter(title, total=config.rounded(num_tasks), unit="tasks") as meter:
        return ensure_shards(
            config,
            out=pathlib.Path(folder),
            num_tasks=num_tasks,
            seed=seed,
            workers=os.cpu_count() or 1,
            report=meter,
        )
