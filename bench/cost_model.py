"""What the presets cost before they are run: tasks, FLOPs, GPU-hours, bytes. Nothing here depends on a machine.

FLOPs and what is kept for the backward pass are counted on the real networks for a few shapes of tables (`dry_step`).
Both are polynomials in the rows and columns of a table, whose coefficients those shapes fix; their means are taken over
shapes and splits drawn as the preset's stages draw them.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from model.network import NetworkConfig
from priors.mixture import draw_shape
from priors.presets import GenerateConfig
from priors.recipe import group_seed
from priors.task import TaskKind
from train.dry_step import TableShape, dry_step
from train.presets import PRESETS, ModelConfig, StageConfig
from train.room import grown_state, most_bytes
from train.state import checkpoint_bytes

_DRAWN_SHAPES = 2048  # of a stage
_COUNTED = ((16, 9, 3), (16, 40, 3), (60, 9, 3), (60, 40, 3), (16, 9, 12), (60, 40, 12), (33, 21, 7), (90, 12, 5))
_COUNTED_MORE = ((25, 70, 20),)  # one more than the eight terms need: a check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """Tables of training as arrays: context rows, query rows, columns."""

    context: np.ndarray
    queries: np.ndarray
    features: np.ndarray

    def __len__(self) -> int:
        return len(self.context)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCost:
    """What one table takes of a training step, as a function of its shape.

    Args:
        flops: coefficients of the terms of `_terms`.
        saved_bytes: the same, of what is kept for the backward pass.
    """

    flops: np.ndarray
    saved_bytes: np.ndarray

    def flops_of(self, shapes: Shapes) -> np.ndarray:
        """FLOPs of forward and backward pass, for each shape."""
        return _terms(shapes) @ self.flops

    def saved_of(self, shapes: Shapes) -> np.ndarray:
        """Bytes, for each shape."""
        return _terms(shapes) @ self.saved_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage of a curriculum, for one of the two models.

    Args:
        steps: of the optimizer.
        tasks: all that are trained on.
        batch_size: tasks of a step.
        mean_rows: of a task.
        mean_features: of a task.
        flops_per_task: mean.
        shard_bytes: of the stage's shards, about.
        largest_task_bytes: what the largest task that can be drawn keeps for the backward pass, at most.
    """

    steps: int
    tasks: int
    batch_size: int
    mean_rows: float
    mean_features: float
    flops_per_task: float
    shard_bytes: int
    largest_task_bytes: float

    @property
    def flops(self) -> float:
        """Of all of the stage."""
        return self.tasks * self.flops_per_task

    def gpu_hours(self, *, mfu: float, chip_flops: float) -> float:
        """Hours of one GPU that does `mfu` of `chip_flops` FLOP/s; as many GPUs share them."""
        return self.flops / (mfu * chip_flops) / 3600


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCost:
    """One of a preset's two models.

    Args:
        preset: its name.
        kind: of the tasks.
        parameters: how many.
        state_bytes: weights, gradients and optimizer, on every GPU.
        checkpoint_bytes: of one checkpoint.
        disk_bytes: of all checkpoints that exist at once.
        stages: in order.
    """

    preset: str
    kind: TaskKind
    parameters: int
    state_bytes: int
    checkpoint_bytes: int
    disk_bytes: int
    stages: tuple[StageCost, ...]


def model_cost(preset: str, kind: TaskKind) -> ModelCost:
    """The cost of one model of a preset."""
    config = PRESETS[preset]()
    model = config.models()[kind]
    state = grown_state(model.network, model.loop)
    size = checkpoint_bytes(state)
    weights = sum(parameter.nbytes for parameter in state.network.parameters())
    return ModelCost(
        preset=preset,
        kind=kind,
        parameters=sum(parameter.numel() for parameter in state.network.parameters()),
        state_bytes=size + weights,
        checkpoint_bytes=size,
        disk_bytes=most_bytes(model.network, model.loop),
        stages=tuple(
            _stage_cost(model, stage, steps=steps)
            for stage, steps in zip(config.stages(kind), config.stage_steps(kind), strict=True)
        ),
    )


def _stage_cost(model: ModelConfig, stage: StageConfig, *, steps: int) -> StageCost:
    cost, shapes, prior = task_cost(model.network), stage_shapes(stage), stage.shards.prior
    tasks = steps * stage.batch_size
    most = Shapes(
        context=np.array([round(stage.split.max_share * prior.max_rows)]),
        queries=np.array([prior.max_rows - round(stage.split.max_share * prior.max_rows)]),
        features=np.array([prior.max_features]),
    )
    return StageCost(
        steps=steps,
        tasks=tasks,
        batch_size=stage.batch_size,
        mean_rows=float((shapes.context + shapes.queries).mean()),
        mean_features=float(shapes.features.mean()),
        flops_per_task=float(cost.flops_of(shapes).mean()),
        shard_bytes=GenerateConfig(shards=stage.shards, num_tasks=tasks).num_bytes(),
        largest_task_bytes=float(cost.saved_of(most)[0]),
    )


def stage_shapes(stage: StageConfig, *, count: int = _DRAWN_SHAPES) -> Shapes:
    """Shapes of the groups of a stage of seed 0, each cut as a batch of it is."""
    prior, split = stage.shards.prior, stage.split
    drawn = [draw_shape(prior, seed=group_seed(0, index=index)) for index in range(count)]
    shares = np.random.default_rng(0).uniform(split.min_share, split.max_share, count)
    rows = np.array([shape.rows for shape in drawn])
    context = np.clip(np.round(shares * rows), 1, rows - 1).astype(np.int64)
    return Shapes(context=context, queries=rows - context, features=np.array([shape.features for shape in drawn]))


@functools.lru_cache(maxsize=16)
def task_cost(config: NetworkConfig) -> TaskCost:
    """Counts the network's step on a few shapes and solves for the coefficients.

    Raises:
        ArithmeticError: where the count is no such polynomial.
    """
    shapes = (*_COUNTED, *_COUNTED_MORE)
    counts = [
        dry_step(config, TableShape(tasks=1, context=context, queries=queries, features=features))
        for context, queries, features in shapes
    ]
    terms = _terms(_as_shapes(shapes))
    return TaskCost(
        flops=_solved(terms, [count.flops for count in counts]),
        saved_bytes=_solved(terms, [count.saved_bytes for count in counts]),
    )


def _solved(terms: np.ndarray, values: Sequence[int]) -> np.ndarray:
    wanted = np.array(values, np.float64)
    scale = np.abs(terms).max(0)
    found = np.linalg.lstsq(terms / scale, wanted, rcond=None)[0] / scale
    error = np.abs(terms @ found / wanted - 1).max()
    if error > 1e-6:
        raise ArithmeticError(f"costs of a step are off their polynomial by {error:.2g}")
    return found


def _terms(shapes: Shapes) -> np.ndarray:
    """[n, 8] of n shapes: 1, N, M, C, N·C, M·C, N², N·M."""
    n, m, c = (np.asarray(part, np.float64) for part in (shapes.context, shapes.queries, shapes.features))
    return np.stack([np.ones_like(n), n, m, c, n * c, m * c, n * n, n * m], axis=1)


def _as_shapes(shapes: Sequence[tuple[int, int, int]]) -> Shapes:
    context, queries, features = np.array(shapes).T
    return Shapes(context=context, queries=queries, features=features)
