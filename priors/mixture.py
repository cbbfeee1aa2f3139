"""The prior: a weighted mixture of families, and the one function that turns a seed into tasks."""

import dataclasses
import json
import math

import numpy as np
import torch
import tyro

from priors.causes import CauseConfig
from priors.columns import ColumnConfig, blemish
from priors.draft import Draft
from priors.draws import Draws
from priors.forest import ForestConfig, sample_forest
from priors.group import TaskGroup
from priors.rules import RuleConfig, sample_rules
from priors.structural import StructuralConfig, sample_structural
from priors.targets import TargetConfig, classify, draw_noise, regress
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

VERSION = 6  # of the draws: raised whenever equal configs and seeds make other tasks than before
FAMILIES = ("structural", "forest", "rules")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorConfig:
    """Everything that tasks are drawn from."""

    kind: tyro.conf.EnumChoicesFromValues[TaskKind] = TaskKind.CLASSIFICATION
    """What is predicted: classification or regression."""
    min_rows: int = 64
    """Fewest rows of a task (context and query together)."""
    max_rows: int = 256
    """Most rows of a task."""
    row_step: int = 32
    """Rows are a multiple of this."""
    min_features: int = 2
    """Fewest columns of a task."""
    max_features: int = 24
    """Most columns of a task."""
    structural_weight: float = 0.55
    """Weight of MLP structural causal models."""
    forest_weight: float = 0.3
    """Weight of oblivious trees."""
    rules_weight: float = 0.15
    """Weight of exact rules."""
    causes: CauseConfig = CauseConfig()
    """How raw columns depend on each other."""
    columns: ColumnConfig = ColumnConfig()
    """How they are written down."""
    targets: TargetConfig = TargetConfig()
    """How targets are cut, scaled and disturbed."""
    structural: StructuralConfig = StructuralConfig()
    """MLP structural causal models."""
    forest: ForestConfig = ForestConfig()
    """Oblivious trees."""
    rules: RuleConfig = RuleConfig()
    """Exact rules."""


_FEWEST_ROWS = 16


def checked(config: PriorConfig) -> PriorConfig:
    """Returns the config if tasks can be drawn from it.

    Raises:
        Failure: BAD_FLAG, naming the flag, its value and what is possible.
    """
    classes = config.targets.max_classes
    weights = (config.structural_weight, config.forest_weight, config.rules_weight)
    rules = (
        (config.min_rows >= _FEWEST_ROWS, f"--min-rows {config.min_rows} is too small: give {_FEWEST_ROWS} or more"),
        (config.row_step >= 1, f"--row-step {config.row_step} is too small: give 1 or more"),
        (
            config.max_rows // max(config.row_step, 1) * config.row_step >= config.min_rows,
            f"--max-rows {config.max_rows} leaves no multiple of {config.row_step} above --min-rows {config.min_rows}: "
            "raise it",
        ),
        (config.min_features >= 1, f"--min-features {config.min_features} is too small: give 1 or more"),
        (
            config.max_features >= config.min_features,
            f"--max-features {config.max_features} is below --min-features {config.min_features}: raise it",
        ),
        (classes >= 2, f"--targets.max-classes {classes} is too small: give 2 or more"),
        (
            min(weights) >= 0 and sum(weights) > 0,
            f"the family weights {weights} are impossible: give none below 0 and one above",
        ),
    )
    for holds, complaint in rules:
        if not holds:
            raise Failure(ExitCode.BAD_FLAG, complaint)
    return config


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupShape:
    """Args: rows and features of every task in a group."""

    rows: int
    features: int


def draw_shape(config: PriorConfig, *, seed: int) -> GroupShape:
    """Draws rows (uniform over multiples of `row_step`) and features (between log-uniform and uniform) of a group."""
    generator = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    steps = np.arange(math.ceil(config.min_rows / config.row_step), config.max_rows // config.row_step + 1)
    spread = (config.max_features + 1) / config.min_features
    features = int(config.min_features * spread ** (generator.uniform() ** 0.75))
    rows = int(generator.choice(steps)) * config.row_step
    return GroupShape(rows=rows, features=min(features, config.max_features))


def sample_group(config: PriorConfig, *, seed: int, rows: int, features: int, count: int) -> TaskGroup:
    """Draws `count` tasks of one shape: a pure function of its arguments, on one torch thread.

    Args:
        config: the prior.
        seed: 0 … 2^63 − 1.
        rows: R of every task.
        features: C of every task.
        count: B.

    Returns:
        The group, families mixed in random order; each task's parameters hold what was sampled and realised.
    """
    draws = Draws(seed)
    weights = (config.structural_weight, config.forest_weight, config.rules_weight)
    family = draws.choice((count,), weights=weights)
    x, y, kinds, levels = [], [], [], []
    classes, notes, order = [], [], []
    for code, name in enumerate(FAMILIES):
        chosen = (family == code).nonzero().squeeze(-1)
        if not len(chosen):
            continue
        draft = _sample(draws, config, name=name, count=len(chosen), rows=rows, features=features)
        noise = draw_noise(draws, config.targets, count=len(chosen)) * draft.loudness
        labels, number = _labels(draws, config, draft=draft, noise=noise)
        x.append(blemish(draws, draft.columns, config=config.columns).transpose(1, 2))
        y.append(labels)
        kinds.append(draft.columns.kinds)
        levels.append(draft.columns.levels)
        classes.append(number)
        notes += _notes(draft, noise=noise, x=x[-1], y=y[-1], number=number)
        order.append(chosen)
    place = torch.cat(order).argsort()
    return TaskGroup(
        x=torch.cat(x)[place].numpy(),
        y=torch.cat(y)[place].numpy(),
        column_kinds=torch.cat(kinds)[place].numpy(),
        level_counts=torch.cat(levels)[place].int().numpy(),
        num_classes=torch.cat(classes)[place].int().numpy(),
        families=tuple(FAMILIES[code] for code in family.tolist()),
        seeds=np.full(count, seed, np.int64),
        parameters=tuple(
            json.dumps({**notes[i], "position": position}, sort_keys=True) for position, i in enumerate(place.tolist())
        ),
        kind=config.kind,
    )


def _sample(draws: Draws, config: PriorConfig, *, name: str, count: int, rows: int, features: int) -> Draft:
    shape = {"count": count, "rows": rows, "features": features, "causes": config.causes, "columns": config.columns}
    if name == "structural":
        return sample_structural(draws, config.structural, kind=config.kind, **shape)
    if name == "forest":
        return sample_forest(draws, config.forest, **shape)
    return sample_rules(draws, config.rules, **shape)


def _labels(
    draws: Draws, config: PriorConfig, *, draft: Draft, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """y [B, R] float32 and K [B]."""
    if config.kind is TaskKind.REGRESSION:
        y = regress(draws, config.targets, scores=draft.scores, noise=noise)
        return y, torch.zeros(len(y), dtype=torch.int64)
    y, number = classify(draws, config.targets, scores=draft.scores, fixed=draft.classes, noise=noise)
    return y.float(), number


def _notes(
    draft: Draft, *, noise: torch.Tensor, x: torch.Tensor, y: torch.Tensor, number: torch.Tensor
) -> list[dict[str, float]]:
    """Per task: what was sampled, and what came out (largest class share, share of missing cells)."""
    facts = {**draft.facts, "noise": noise, "missing": x.isnan().float().mean((1, 2))}
    if int(number.max()):
        sizes = torch.zeros((len(y), int(number.max()))).scatter_add_(1, y.long(), torch.ones_like(y))
        facts["largest_class"] = sizes.amax(-1) / y.shape[1]
    listed = {name: values.float().tolist() for name, values in facts.items()}
    known = [{name: values[i] for name, values in listed.items() if math.isfinite(values[i])} for i in range(len(y))]
    return [{name: round(value, 4) for name, value in facts_of_task.items()} for facts_of_task in known]
