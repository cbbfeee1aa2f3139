"""Stages of a curriculum in a training job: which tasks, cut how, how many at a time, and from which step on.

A run without a curriculum has one stage.
"""

import dataclasses
from collections.abc import Sequence

from priors.fresh_tasks import fresh_digest
from priors.recipe import Recipe, recipe_of
from priors.shards import read_manifest
from priors.splits import SplitConfig
from priors.task import TaskKind
from tools.failure import ExitCode, Failure


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """One stage.

    Args:
        first_step: its first one (0-based).
        shards: folder of its shard set, read where `fresh` is None.
        fresh: what its tasks are drawn from beside the training instead.
        split: how they are cut into context and query.
        batch_size: tasks of a global batch.
        accumulation: parts into which a worker cuts its share of one.
    """

    first_step: int
    shards: str
    fresh: Recipe | None
    split: SplitConfig
    batch_size: int
    accumulation: int = 1

    def digest(self) -> str:
        """sha256 (hex) that names the tasks; of a shard set the manifest alone is read.

        Raises:
            Failure: SHARD_MISSING, SHARD_CORRUPT, FORMAT_VERSION.
        """
        return read_manifest(self.shards)["digest"] if self.fresh is None else fresh_digest(self.fresh)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """What a network must be able to take.

    Args:
        kind: of the tasks.
        max_features: most features of any of them.
        max_classes: most classes.
    """

    kind: TaskKind
    max_features: int
    max_classes: int


def limits_of(stage: TrainingStage) -> TaskLimits:
    """What the tasks of a stage ask of a network, by the recipe that they are, or were, drawn from.

    Raises:
        Failure: SHARD_MISSING, SHARD_CORRUPT, FORMAT_VERSION; CONFIG_MISMATCH for a set of another prior.
    """
    recipe = stage.fresh or recipe_of(read_manifest(stage.shards), where=stage.shards)
    prior = recipe.config.prior
    return TaskLimits(kind=prior.kind, max_features=prior.max_features, max_classes=prior.targets.max_classes)


def place_of(stages: Sequence[TrainingStage], step: int) -> int:
    """Which stage a step belongs to: the last one that has begun."""
    return max(number for number, stage in enumerate(stages) if stage.first_step <= step)


def check_stages(stages: Sequence[TrainingStage], *, num_steps: int) -> None:
    """Refuses stages that do not follow one another within the steps.

    Raises:
        Failure: BAD_FLAG, naming the stage and its first step.
    """
    bounds = [stage.first_step for stage in stages]
    for number, (before, first) in enumerate(zip(bounds, bounds[1:], strict=False), start=2):
        if not before < first < num_steps:
            mend = f"let it begin after step {before} and before step {num_steps}"
            raise Failure(ExitCode.BAD_FLAG, f"stage {number} of the curriculum begins at step {first}: {mend}")


def tasks_until(stages: Sequence[TrainingStage], step: int) -> int:
    """How many tasks the steps before `step` hold."""
    ends = [*(stage.first_step for stage in stages[1:]), step]
    return sum(
        stage.batch_size * max(0, min(end, step) - stage.first_step) for stage, end in zip(stages, ends, strict=True)
    )
