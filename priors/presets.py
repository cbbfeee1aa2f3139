"""Presets of the prior: complete configs, from minutes on a laptop to a cluster, and the curricula that they form."""

import dataclasses
import math
from typing import Annotated

import tyro

from priors.families import FamilyWeights
from priors.generation import ShardConfig
from priors.mixture import PriorConfig
from priors.splits import SplitConfig
from priors.task import TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """What `//priors:generate` makes, and where."""

    shards: Annotated[ShardConfig, tyro.conf.arg(name="")] = ShardConfig()
    """What the bytes depend on, with the seed."""
    num_tasks: int = 4096
    """Tasks wanted; rounded up to whole files."""
    seed: int = 0
    """Seed of the set: other seeds make other tasks of the same prior."""
    workers: int = 1
    """Processes that generate; each uses one core."""
    out: str | None = None
    """Folder or URI (s3://, gs://, file://) of the set; by default shards/SOURCE-TASKS under runs/."""

    def with_kind(self, kind: TaskKind) -> "GenerateConfig":
        """The same preset for the other kind of task."""
        prior = dataclasses.replace(self.shards.prior, kind=kind)
        return dataclasses.replace(self, shards=dataclasses.replace(self.shards, prior=prior))

    def num_bytes(self) -> int:
        """What the set takes on disk, about: one float32 a cell of the mean task, and 1 KB of labels and parameters."""
        prior = self.shards.prior
        rows = (prior.min_rows + prior.max_rows) / 2
        features = (prior.max_features + 1 - prior.min_features) / math.log(
            (prior.max_features + 1) / prior.min_features
        )
        return round(self.shards.rounded(self.num_tasks) * (4 * rows * (features + 1) + 1000))


# An exact Gaussian process costs the cube of the rows: seconds for a task of 4,096.
_FOR_LONG_TABLES = FamilyWeights(gaussian_process=0.0)


def _in_large_groups(prior: PriorConfig) -> ShardConfig:
    """Short tables are drawn 128 at a time: what a family costs whatever their number is then small."""
    return ShardConfig(prior=prior, group_size=128, groups_per_part=4)


def tiny() -> GenerateConfig:
    """64–512 rows, 2–24 features: 13 KB a task (16,384 tasks: 207 MB)."""
    prior = PriorConfig(min_rows=64, max_rows=512, min_features=2, max_features=24)
    return GenerateConfig(shards=_in_large_groups(prior), num_tasks=16_384)


def small() -> GenerateConfig:
    """64–512 rows, 2–50 features: 19 KB a task (24,576 tasks: 480 MB)."""
    prior = PriorConfig(min_rows=64, max_rows=512, min_features=2, max_features=50)
    return GenerateConfig(shards=_in_large_groups(prior), num_tasks=24_576)


def base() -> GenerateConfig:
    """Stage 1 of 3. 64–256 rows, 2–100 features: 18 KB a task (1,048,576 tasks: 19 GB)."""
    prior = PriorConfig(min_rows=64, max_rows=256, min_features=2, max_features=100)
    return GenerateConfig(shards=_in_large_groups(prior), num_tasks=1_048_576)


def base_2() -> GenerateConfig:
    """Stage 2 of 3. 128–1,024 rows, 2–100 features: 61 KB a task (524,288 tasks: 32 GB)."""
    prior = PriorConfig(min_rows=128, max_rows=1024, min_features=2, max_features=100)
    return GenerateConfig(shards=ShardConfig(prior=prior, groups_per_part=16), num_tasks=524_288)


def base_3() -> GenerateConfig:
    """Stage 3 of 3. 256–4,096 rows, 2–100 features: 228 KB a task (131,072 tasks: 30 GB)."""
    prior = PriorConfig(
        min_rows=256, max_rows=4096, row_step=128, min_features=2, max_features=100, weights=_FOR_LONG_TABLES
    )
    return GenerateConfig(shards=ShardConfig(prior=prior, group_size=16, groups_per_part=32), num_tasks=131_072)


def large() -> GenerateConfig:
    """Stage 1 of 3. 64–256 rows, 2–100 features: 18 KB a task (4,194,304 tasks: 74 GB)."""
    return dataclasses.replace(base(), num_tasks=4_194_304)


def large_2() -> GenerateConfig:
    """Stage 2 of 3. 128–1,024 rows, 2–100 features: 61 KB a task (2,097,152 tasks: 128 GB)."""
    return dataclasses.replace(base_2(), num_tasks=2_097_152)


def large_3() -> GenerateConfig:
    """Stage 3 of 3. 256–10,240 rows, 2–200 features: 925 KB a task (524,288 tasks: 485 GB)."""
    prior = PriorConfig(
        min_rows=256, max_rows=10_240, row_step=256, min_features=2, max_features=200, weights=_FOR_LONG_TABLES
    )
    return GenerateConfig(shards=ShardConfig(prior=prior, group_size=16, groups_per_part=8), num_tasks=524_288)


PRESETS = {
    "tiny": tiny,
    "small": small,
    "base": base,
    "base-2": base_2,
    "base-3": base_3,
    "large": large,
    "large-2": large_2,
    "large-3": large_3,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a curriculum.

    Args:
        preset: name of its shard set's preset.
        split: how training cuts its tasks: later stages, whose tables are longer, show more context.
    """

    preset: str
    split: SplitConfig


_SPLITS = tuple(SplitConfig(min_share=low, max_share=high) for low, high in ((0.05, 0.9), (0.4, 0.9), (0.6, 0.95)))


def _stages(*names: str) -> tuple[Stage, ...]:
    return tuple(Stage(preset=name, split=split) for name, split in zip(names, _SPLITS, strict=False))


CURRICULA = {
    "tiny": _stages("tiny"),
    "small": _stages("small"),
    "base": _stages("base", "base-2", "base-3"),
    "large": _stages("large", "large-2", "large-3"),
}
