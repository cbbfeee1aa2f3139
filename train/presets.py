"""Presets of the main job: complete configs from one word; the command line changes single fields."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
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
from tools import ray_session
from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig
from train.feed import TaskSource
from train.looks import WatchConfig
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig, base_optimizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageConfig:
    """A stage of a curriculum."""

    begins: float
    """Share of the steps after which it begins."""
    shards: ShardConfig
    """Prior, group and file sizes; the kind of task is set for each model."""
    num_tasks: int
    """Tasks for each model; rounded up to whole files."""
    split: SplitConfig
    """How training cuts them into context and query."""
    batch_size: int
    """Tasks in one step over all workers together."""
    accumulation: int = 1
    """Parts into which each worker cuts its share of a batch."""

    def first_step(self, num_steps: int) -> int:
        """Its first step of `num_steps`."""
        return round(self.begins * num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The training tasks of each of the two models."""

    shards: ShardConfig
    """Prior, group and file sizes; the kind of task is set for each model."""
    num_tasks: int
    """Tasks for each model, or as many as its steps read where those are fewer; rounded up to whole files."""
    source: tyro.conf.EnumChoicesFromValues[TaskSource] = TaskSource.SHARDS
    """Where they come from: shards, made first and read, or fresh, drawn beside the training."""
    num_validation_tasks: int = 128
    """Held-out tasks that choose the checkpoint."""
    split: SplitConfig = SplitConfig()
    """How training cuts them into context and query."""
    later: tuple[StageConfig, ...] = ()
    """Further stages of a curriculum, in order; what is above is the first one's, with the loop's batch size."""


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
        """The config without what changes no result: `NEUTRAL`."""
        return dataclasses.replace(self, **NEUTRAL)

    def models(self) -> dict[TaskKind, ModelConfig]:
        """The two models by kind."""
        return {TaskKind.CLASSIFICATION: self.classification, TaskKind.REGRESSION: self.regression}

    def shards(self, kind: TaskKind) -> ShardConfig:
        """The shards of the first stage of one of the two models."""
        return _of_kind(self.data.shards, kind)

    def stages(self, kind: TaskKind) -> tuple[StageConfig, ...]:
        """All stages of one of the two models, in order, with no more tasks than its steps read."""
        data, loop = self.data, self.models()[kind].loop
        first = StageConfig(
            begins=0.0,
            shards=data.shards,
            num_tasks=data.num_tasks,
            split=data.split,
            batch_size=loop.batch_size,
            accumulation=loop.accumulation,
        )
        stages = (first, *data.later)
        return tuple(
            dataclasses.replace(
                stage,
                shards=_of_kind(stage.shards, kind),
                num_tasks=min(stage.num_tasks, max(1, num_steps) * stage.batch_size),
            )
            for stage, num_steps in zip(stages, _steps(stages, num_steps=loop.num_steps), strict=True)
        )

    def stage_steps(self, kind: TaskKind) -> tuple[int, ...]:
        """How many steps each of those stages takes."""
        return _steps(self.stages(kind), num_steps=self.models()[kind].loop.num_steps)


def _steps(stages: Sequence[StageConfig], *, num_steps: int) -> tuple[int, ...]:
    bounds = [*(stage.first_step(num_steps) for stage in stages), num_steps]
    return tuple(end - first for first, end in itertools.pairwise(bounds))


def _of_kind(shards: ShardConfig, kind: TaskKind) -> ShardConfig:
    return dataclasses.replace(shards, prior=dataclasses.replace(shards.prior, kind=kind))


def tiny() -> PretrainConfig:
    """1.0 M parameters each, 14,336 and 24,576 tasks, each seen once: about 10 minutes on 2 cores."""
    (stage,), loop = priors.CURRICULA["tiny"], LoopConfig(num_steps=768, batch_size=32, checkpoint_every=192)
    shorter = dataclasses.replace(loop, num_steps=448, checkpoint_every=112)
    return PretrainConfig(
        data=DataConfig(
            shards=priors.PRESETS[stage.preset]().shards,
            num_tasks=loop.num_steps * loop.batch_size,
            num_validation_tasks=64,
            split=stage.split,
        ),
        classification=ModelConfig(network=networks.tiny(LabelKind.CLASSIFICATION), loop=shorter),
        regression=ModelConfig(network=networks.tiny(LabelKind.REGRESSION), loop=loop),
    )


def small() -> PretrainConfig:
    """2.2 M parameters each, 24,576 tasks each, seen once: about half an hour on 2 cores."""
    return _preset("small", networks.small, LoopConfig(num_steps=768, batch_size=32, checkpoint_every=192))


# Shares of the steps after which stages 2 and 3 begin. TabICL v2's recipe (500,000 steps of 64 tasks of 1,024 rows,
# 40,000 of 400–10,240 and 10,000 of 400–60,000; with rows drawn log-uniformly, 3,034 and 11,895 at the mean) shows its
# network 68 %, 16 % and 16 % of all rows in the three stages; so do these shares, with the mean rows of our stages
# (160, 576 and 2,176 or 5,248) and batches of 64, 64 and 16 tasks.
_BASE_BEGINS, _LARGE_BEGINS = (0.88, 0.94), (0.91, 0.97)


def base() -> PretrainConfig:
    """5.0 M parameters each, 1 M tasks in three stages: one GPU. Not run to its end yet."""
    loop = LoopConfig(num_steps=16_384, batch_size=64, checkpoint_every=1024, optimizer=base_optimizer())
    return _preset("base", networks.base, loop, begins=_BASE_BEGINS)


def large() -> PretrainConfig:
    """28 M parameters each, 2 M tasks in three stages: a cluster. Not run to its end yet."""
    optimizer = OptimizerConfig(matrix_lr=2e-3, vector_lr=5e-4, decay_share=0.3, warmup_share=0.01)
    loop = LoopConfig(num_steps=32_768, batch_size=64, checkpoint_every=1024, optimizer=optimizer)
    return _preset("large", networks.large, loop, begins=_LARGE_BEGINS)


_NetworkPreset = Callable[[LabelKind], NetworkConfig]


def _preset(
    curriculum: str, network: _NetworkPreset, loop: LoopConfig, *, begins: tuple[float, ...] = ()
) -> PretrainConfig:
    """Trains through a curriculum, whose later stages begin after shares `begins` of the steps; every task once.

    Where a group has fewer tasks than the loop's batch, a batch is a group, read in as many parts as it has fewer.
    """
    stages, bounds = priors.CURRICULA[curriculum], (0.0, *begins, 1.0)
    made = []
    for number, stage in enumerate(stages):
        shards = priors.PRESETS[stage.preset]().shards
        size = min(loop.batch_size, shards.group_size)
        first, end = (round(bound * loop.num_steps) for bound in bounds[number : number + 2])
        made.append(
            StageConfig(
                begins=bounds[number],
                shards=shards,
                num_tasks=(end - first) * size,
                split=stage.split,
                batch_size=size,
                accumulation=loop.batch_size // size,
            )
        )
    return PretrainConfig(
        data=DataConfig(shards=made[0].shards, num_tasks=made[0].num_tasks, split=made[0].split, later=tuple(made[1:])),
        classification=ModelConfig(network=network(LabelKind.CLASSIFICATION), loop=loop),
        regression=ModelConfig(network=network(LabelKind.REGRESSION), loop=loop),
    )


PRESETS = {"tiny": tiny, "small": small, "base": base, "large": large}


def checked(config: PretrainConfig) -> PretrainConfig:
    """Returns the config if a run of it can begin; what a part can tell by itself, it refused when it was made.

    Raises:
        Failure: BAD_FLAG, naming the flag, its value and what it may be.
    """
    ray_session.check_address(config.cluster.address)
    at_least_one = {
        "--data.num-tasks": config.data.num_tasks,
        "--data.num-validation-tasks": config.data.num_validation_tasks,
        "--data.shards.group-size": config.data.shards.group_size,
        "--data.shards.groups-per-part": config.data.shards.groups_per_part,
        "--scoring.num-seeds": config.scoring.num_seeds,
        "--scoring.num-synthetic-tasks": config.scoring.num_synthetic_tasks,
        "--scoring.num-estimators": config.scoring.num_estimators,
    }
    for number, stage in enumerate(config.data.later):
        at_least_one |= {
            f"--data.later.{number}.{name.replace('_', '-')}": getattr(stage, name)
            for name in ("num_tasks", "batch_size", "accumulation")
        }
        at_least_one |= {
            f"--data.later.{number}.shards.{name.replace('_', '-')}": getattr(stage.shards, name)
            for name in ("group_size", "groups_per_part")
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
        _check_stages(config, kind)
    return config


def _check_stages(config: PretrainConfig, kind: TaskKind) -> None:
    """Refuses stages that do not follow one another, or whose tasks fit neither the batches nor the network.

    Raises:
        Failure: BAD_FLAG, naming the flag, its value and what it may be.
    """
    model, before = config.models()[kind], -1
    for number, stage in enumerate(config.stages(kind), start=-1):
        here = "--data" if number < 0 else f"--data.later.{number}"
        sizes = f"--{kind}.loop" if number < 0 else here
        if stage.shards.group_size % stage.batch_size:
            mend = f"give a number that divides {here}.shards.group-size {stage.shards.group_size}"
            text = f"{sizes}.batch-size {stage.batch_size} does not fit the shards: {mend}"
            raise Failure(ExitCode.BAD_FLAG, text)
        first, num_steps = stage.first_step(model.loop.num_steps), model.loop.num_steps
        if not before < first < num_steps:
            mend = f"let stages begin one after the other, each with a step of its own ({kind} has {num_steps})"
            raise Failure(ExitCode.BAD_FLAG, f"{here}.begins {stage.begins} is step {first} of {kind}: {mend}")
        before = first
        found, most = stage.shards.prior.max_features, model.network.max_features
        if found > most:
            mend = f"give {most} or fewer, or raise --{kind}.network.max-features"
            raise Failure(ExitCode.BAD_FLAG, f"{here}.shards.max-features {found} is too large: {mend}")
        found, most = stage.shards.prior.targets.max_classes, model.network.icl.max_classes
        if kind is TaskKind.CLASSIFICATION and found > most:
            mend = f"give {most} or fewer, or raise --{kind}.network.icl.max-classes"
            raise Failure(ExitCode.BAD_FLAG, f"{here}.shards.targets.max-classes {found} is too large: {mend}")


def _check_network(kind: TaskKind, config: NetworkConfig) -> None:
    """Builds the network without its numbers: what its parts refuse is refused before anything is generated.

    Raises:
        Failure: BAD_FLAG, with the part's own words.
    """
    try:
        with torch.device("meta"):
            Network(config)
    except Failure as failure:
        text = f"--{kind}.network: {failure.message.replace('_', '-')}"  # its parts speak of fields
        raise Failure(ExitCode.BAD_FLAG, text) from failure
