"""Lookup tables: a few of the categorical columns name a cell, and every cell has class probabilities of its own."""

import dataclasses
import itertools

import numpy as np

from priors.draws import Draws
from priors.exact_draft import ExactDraft, dirichlet, drawn_classes, numpy_generator
from priors.task import ColumnKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirichletTableConfig:
    """Everything that the tasks are drawn from, and all that the Bayes predictor knows."""

    max_levels: int = 4
    """Most levels of a column; each column has 2 to this many, all rows equally likely."""
    max_keys: int = 2
    """Most columns that name the cell; every number of them from 1 on is as likely, and then every choice."""
    max_classes: int = 4
    """Most classes; a task has 2 to this many."""
    concentrations: tuple[float, ...] = (0.1, 0.5, 2.0)
    """Dirichlet parameters of every class; a task has one of them, each as likely. Small ones make certain cells."""


def key_sets(config: DirichletTableConfig, *, features: int) -> list[tuple[tuple[int, ...], float]]:
    """Every choice of columns that may name the cell, with its prior probability."""
    most = min(config.max_keys, features)
    out = []
    for size in range(1, most + 1):
        choices = list(itertools.combinations(range(features), size))
        out += [(choice, 1 / (most * len(choices))) for choice in choices]
    return out


def cells_of(x: np.ndarray, keys: tuple[int, ...], *, max_levels: int) -> np.ndarray:
    """[...] int64 cell numbers of rows x [..., C] whose cell the columns `keys` name."""
    cell = np.zeros(x.shape[:-1], np.int64)
    for key in keys:
        cell = cell * max_levels + x[..., key].astype(np.int64)
    return cell


def sample_dirichlet_table(
    draws: Draws, config: DirichletTableConfig, *, count: int, rows: int, features: int
) -> ExactDraft:
    """Draws `count` classification tasks; facts hold the concentration, the number of key columns, and the
    share of labels that are not the likeliest of their cell."""
    generator = numpy_generator(draws)
    levels = generator.integers(2, config.max_levels, (count, features), endpoint=True)
    x = (generator.uniform(size=(count, rows, features)) * levels[:, None, :]).astype(np.int64)
    x = np.minimum(x, levels[:, None, :] - 1)
    classes = generator.integers(2, config.max_classes, count, endpoint=True)
    concentration = generator.choice(np.array(config.concentrations), count)
    sets = key_sets(config, features=features)
    chosen = generator.choice(len(sets), count, p=[share for _, share in sets])
    num_cells = config.max_levels ** min(config.max_keys, features)
    real = np.arange(config.max_classes) < classes[:, None, None]
    real = np.broadcast_to(real, (count, num_cells, config.max_classes))
    table = dirichlet(generator, concentration=concentration[:, None, None], real=real)
    cell = np.stack([cells_of(x[i], sets[chosen[i]][0], max_levels=config.max_levels) for i in range(count)])
    probabilities = np.take_along_axis(table, cell[..., None], axis=1)
    y = drawn_classes(generator, probabilities)
    return ExactDraft(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=np.full((count, features), ColumnKind.CATEGORY, np.int8),
        level_counts=levels.astype(np.int32),
        num_classes=classes.astype(np.int32),
        facts={
            "concentration": concentration,
            "relevant": np.array([len(sets[i][0]) for i in chosen]),
            "noise_share": (y != probabilities.argmax(-1)).mean(1),
        },
    )
