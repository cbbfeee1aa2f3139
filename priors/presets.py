"""Presets of the prior: complete configs, from minutes on a laptop to a cluster."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from priors.generation import ShardConfig
from priors.mixture import PriorConfig
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
    out: pathlib.Path | None = None
    """Folder of the set; by default shards/SOURCE-TASKS under runs/, where training looks too."""

    def with_kind(self, kind: TaskKind) -> "GenerateConfig":
        """The same preset for the other kind of task."""
        prior = dataclasses.replace(self.shards.prior, kind=kind)
        return dataclasses.replace(self, shards=dataclasses.replace(self.shards, prior=prior))


def tiny() -> GenerateConfig:
    """64–256 rows, 2–24 features: 7 KB a task, about 2,000 tasks/s on one core (16,384 tasks: 120 MB, 10 s)."""
    prior = PriorConfig(min_rows=64, max_rows=256, min_features=2, max_features=24)
    return GenerateConfig(shards=ShardConfig(prior=prior), num_tasks=16_384)


def small() -> GenerateConfig:
    """64–512 rows, 2–50 features: 21 KB a task, about 900 tasks/s on one core (131,072 tasks: 2.8 GB, 3 minutes)."""
    prior = PriorConfig(min_rows=64, max_rows=512, min_features=2, max_features=50)
    return GenerateConfig(shards=ShardConfig(prior=prior), num_tasks=131_072)


def base() -> GenerateConfig:
    """128–1,024 rows, 2–100 features: 70 KB a task, about 350 tasks/s on one core (1,048,576 tasks: 74 GB)."""
    prior = PriorConfig(min_rows=128, max_rows=1024, min_features=2, max_features=100)
    return GenerateConfig(shards=ShardConfig(prior=prior, groups_per_part=16), num_tasks=1_048_576)


def large() -> GenerateConfig:
    """256–4,096 rows, 2–100 features: 265 KB a task, about 90 tasks/s on one core (2,097,152 tasks: 560 GB)."""
    prior = PriorConfig(min_rows=256, max_rows=4096, row_step=128, min_features=2, max_features=100)
    return GenerateConfig(shards=ShardConfig(prior=prior, groups_per_part=16), num_tasks=2_097_152)


PRESETS = {"tiny": tiny, "small": small, "base": base, "large": large}
