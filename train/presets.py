"""Presets of the main job: complete configs from one word; the command line changes single fields."""

import dataclasses
import pathlib
from collections.abc import Callable

from model import presets as networks
from model.icl_transformer import LabelKind
from model.network import NetworkConfig
from priors import presets as priors
from priors.generation import ShardConfig
from train.cluster import ClusterConfig
from train.loop import LoopConfig
from train.optimization import OptimizerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The training tasks of each of the two models."""

    shards: ShardConfig
    """Prior, group and file sizes; the kind of task is set for each model."""
    num_tasks: int
    """Tasks for each model; rounded up to whole files."""
    num_validation_tasks: int = 128
    """Held-out tasks that choose the checkpoint."""


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
    data: DataConfig
    """Training tasks."""
    classification: ModelConfig
    """The classification model."""
    regression: ModelConfig
    """The regression model."""
    scoring: ScoringConfig = ScoringConfig()
    """Comparisons."""

    def identity(self) -> "PretrainConfig":
        """The config without what changes no result: name, places, cluster."""
        return dataclasses.replace(self, name=None, root=None, tracking_uri=None, tables=None, cluster=ClusterConfig())


def tiny() -> PretrainConfig:
    """0.9 M parameters each, 24,576 tasks each, seen once: about 8 minutes on 2 cores."""
    loop = LoopConfig(num_steps=768, batch_size=32, checkpoint_every=128)
    return _preset(priors.tiny(), networks.tiny, loop)


def small() -> PretrainConfig:
    """2 M parameters each, 131,072 tasks: hours on a CPU. Not run to its end yet."""
    loop = LoopConfig(num_steps=4096, batch_size=32, checkpoint_every=256)
    return _preset(priors.small(), networks.small, loop)


def base() -> PretrainConfig:
    """4.7 M parameters each, 1 M tasks: one GPU. Not run to its end yet."""
    optimizer = OptimizerConfig(matrix_lr=5e-3, vector_lr=1e-3, decay_share=0.3, warmup_share=0.01)
    loop = LoopConfig(num_steps=16_384, batch_size=64, checkpoint_every=1024, optimizer=optimizer)
    return _preset(priors.base(), networks.base, loop)


def large() -> PretrainConfig:
    """27 M parameters each, 2 M tasks: a cluster. Not run to its end yet."""
    optimizer = OptimizerConfig(matrix_lr=2e-3, vector_lr=5e-4, decay_share=0.3, warmup_share=0.01)
    loop = LoopConfig(num_steps=32_768, batch_size=64, checkpoint_every=1024, optimizer=optimizer)
    return _preset(priors.large(), networks.large, loop)


_NetworkPreset = Callable[[LabelKind], NetworkConfig]


def _preset(prior: priors.GenerateConfig, network: _NetworkPreset, loop: LoopConfig) -> PretrainConfig:
    return PretrainConfig(
        data=DataConfig(shards=prior.shards, num_tasks=loop.num_steps * loop.batch_size),
        classification=ModelConfig(network=network(LabelKind.CLASSIFICATION), loop=loop),
        regression=ModelConfig(network=network(LabelKind.REGRESSION), loop=loop),
    )


PRESETS = {"tiny": tiny, "small": small, "base": base, "large": large}
