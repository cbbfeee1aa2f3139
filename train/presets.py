"""Presets of the main job: complete configs from one word; the command line changes single fields."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import tyro

from model import presets as networks
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from priors import presets as priors
from priors.fresh_tasks import FreshConfig
from priors.generation import ShardConfig, checked_seed
from priors.splits import SplitConfig
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig, check_address
from train.feed import TaskSource
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.optimization import OptimizerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The training tasks of each of the two models."""

    shards: ShardConfig
    """Prior, group and file sizes; the kind of task is set for each model."""
    num_tasks: int
    """Tasks for each model; rounded up to whole files."""
    source: tyro.conf.EnumChoicesFromValues[TaskSource] = TaskSource.SHARDS
    """Where they come from: shards, made first and read, or fresh, drawn beside the training."""
    num_validation_tasks: int = 128
    """Held-out tasks that choose the checkpoint."""
    split: SplitConfig = SplitConfig()
    """How training cuts them into context and query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One of the two models."""

    network: NetworkConfig
    """Its shape."""
    loop: LoopConfig
    """Its training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringConfig:
    """How trained models are compared."""

    num_seeds: int = 3
    """Splits of each real table, and disjoint sets of held-out synthetic tasks."""
    num_synthetic_tasks: int = 40
    """Held-out synthetic tasks in each set."""
    num_estimators: int = 4
    """Feature and class orders that are averaged for a prediction."""
    num_regret_tasks: int = 32
    """Tasks of each family with a known posterior, on which regret is measured (0: none)."""
    cost_seconds: float = 2.0
    """Seconds, at most, for measuring what a prediction costs over context rows and query rows (0: not measured)."""


NEUTRAL: Mapping[str, Any] = {
    "name": None,
    "root": None,
    "tracking_uri": None,
    "cluster": ClusterConfig(),
    "drawing": FreshConfig(),
    "watch": WatchConfig(),
    "resume": False,
    "accept_changes": False,
}
"""Fields of a main job that change no result, as they count for its identity."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """The main job: shards, two models, audits, scores, report, tracking."""

    name: str | None = None
    """Name of the run; by default the preset and the first characters of the config's digest."""
    root: pathlib.Path | None = None
    """Folder for runs and shards, one that all nodes see; by default runs/ in the workspace."""
    seed: int = 0
    """Seed of everything that is drawn."""
    tracking_uri: str | None = None
    """MLflow server or database; by default mlflow.db under the root."""
    tables: pathlib.Path | None = None
    """A folder of further real tables (manifest.json beside the files) to score on."""
    cluster: ClusterConfig = ClusterConfig()
    """Where training runs."""
    drawing: FreshConfig = FreshConfig()
    """How fresh tasks are drawn."""
    data: DataConfig
    """Training tasks."""
    classification: ModelConfig
    """The classification model."""
    regression: ModelConfig
    """The regression model."""
    scoring: ScoringConfig = ScoringConfig()
    """Comparisons."""
    watch: WatchConfig = WatchConfig()
    """What is watched during training."""
    resume: bool = False
    """Go on with the run of that name; refused where there is none."""
    accept_changes: bool = False
    """Go on with a run whose config or data were others."""

    def identity(self) -> "PretrainConfig":
        """The config without what changes no result: name, places, cluster, how tasks are drawn ahead, what is watched."""
        return dataclasses.replace(self, **NEUTRAL)

    def models(self) -> dict[TaskKind, ModelConfig]:
        """The two models by kind."""
        return {TaskKind.CLASSIFICATION: self.classification, TaskKind.REGRESSION: self.regression}

    def shards(self, kind: TaskKind) -> ShardConfig:
        """The shards of one of the two models."""
        prior = dataclasses.replace(self.data.shards.prior, kind=kind)
        return dataclasses.replace(self.data.shards, prior=prior)


def tiny() -> PretrainConfig:
    """0.9 M parameters each, 18,432 and 30,720 tasks, each seen once: about 9 minutes on 2 cores."""
    prior, loop = priors.tiny(), LoopConfig(num_steps=960, batch_size=32, checkpoint_every=192)
    shorter = dataclasses.replace(loop, num_steps=576)
    return PretrainConfig(
        data=DataConfig(shards=prior.shards, num_tasks=loop.num_steps * loop.batch_size, num_validation_tasks=64),
        classification=ModelConfig(network=networks.tiny(LabelKind.CLASSIFICATION), loop=shorter),
        regression=ModelConfig(network=networks.tiny(LabelKind.REGRESSION), loop=loop),
    )


def small() -> PretrainConfig:
    """2 M parameters each, 131,072 tasks: hours on a CPU. Not run to its end yet."""
    loop = LoopConfig(num_steps=4096, batch_size=32, checkpoint_every=256)
    return _preset(priors.CURRICULA["small"][0], networks.small, loop)


def base() -> PretrainConfig:
    """4.7 M parameters each, 1 M tasks: one GPU. Not run to its end yet."""
    optimizer = OptimizerConfig(matrix_lr=5e-3, vector_lr=1e-3, decay_share=0.3, warmup_share=0.01)
    loop = LoopConfig(num_steps=16_384, batch_size=64, checkpoint_every=1024, optimizer=optimizer)
    return _preset(priors.CURRICULA["base"][1], networks.base, loop)


def large() -> PretrainConfig:
    """27 M parameters each, 2 M tasks: a cluster. Not run to its end yet."""
    optimizer = OptimizerConfig(matrix_lr=2e-3, vector_lr=5e-4, decay_share=0.3, warmup_share=0.01)
    loop = LoopConfig(num_steps=32_768, batch_size=64, checkpoint_every=1024, optimizer=optimizer)
    return _preset(priors.CURRICULA["large"][1], networks.large, loop)


_NetworkPreset = Callable[[LabelKind], NetworkConfig]


def _preset(stage: priors.Stage, network: _NetworkPreset, loop: LoopConfig) -> PretrainConfig:
    """Trains on one stage of a curriculum."""
    shards = priors.PRESETS[stage.preset]().shards
    return PretrainConfig(
        data=DataConfig(shards=shards, num_tasks=loop.num_steps * loop.batch_size, split=stage.split),
        classification=ModelConfig(network=network(LabelKind.CLASSIFICATION), loop=loop),
        regression=ModelConfig(network=network(LabelKind.REGRESSION), loop=loop),
    )


PRESETS = {"tiny": tiny, "small": small, "base": base, "large": large}


def checked(config: PretrainConfig) -> PretrainConfig:
    """Returns the config if a run of it can begin; what a part can tell by itself, it refused when it was made.

    Raises:
        Failure: BAD_FLAG, naming the flag, its value and what it may be.
    """
    check_address(config.cluster)
    at_least_one = {
        "--data.num-tasks": config.data.num_tasks,
        "--data.num-validation-tasks": config.data.num_validation_tasks,
        "--data.shards.group-size": config.data.shards.group_size,
        "--data.shards.groups-per-part": config.data.shards.groups_per_part,
        "--scoring.num-seeds": config.scoring.num_seeds,
        "--scoring.num-synthetic-tasks": config.scoring.num_synthetic_tasks,
        "--scoring.num-estimators": config.scoring.num_estimators,
    }
    for flag, value in at_least_one.items():
        if value < 1:
            raise Failure(ExitCode.BAD_FLAG, f"{flag} {value} is too small: give 1 or more")
    checked_seed(config.seed)
    for kind, model in config.models().items():
        if model.network.kind.value != kind.value:
            found = model.network.kind.value
            raise Failure(ExitCode.BAD_FLAG, f"--{kind}.network.kind {found} is not {kind}: leave it out")
        _check_network(kind, model.network)
        if config.data.shards.group_size % model.loop.batch_size:
            size, group = model.loop.batch_size, config.data.shards.group_size
            mend = f"give a number that divides --data.shards.group-size {group}"
            raise Failure(ExitCode.BAD_FLAG, f"--{kind}.loop.batch-size {size} does not fit the shards: {mend}")
    return config


def _check_network(kind: TaskKind, config: NetworkConfig) -> None:
    """Builds the network without its numbers: what its parts refuse is refused before anything is generated.

    Raises:
        Failure: BAD_FLAG, with the part's own words.
    """
    try:
        with torch.device("meta"):
            Network(config)
    except Failure as failure:
        raise Failure(ExitCode.BAD_FLAG, f"--{kind}.network: {failure.message}") from failure
