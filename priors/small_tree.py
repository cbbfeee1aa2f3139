"""Decision trees of depth two at most over ordinal columns, few enough to be enumerated.

The root is cut with probability `root_share`, each of its children with `child_share`; a cut is "column c ≥ t", drawn
uniformly from all pairs (c, t) with 1 ≤ t < levels of c, whatever the rows are (so a child may be cut in vain). Every
leaf has class probabilities of its own.
"""

import dataclasses

import numpy as np

from priors.draws import Draws
from priors.exact_draft import ExactDraft, dirichlet, drawn_classes, numpy_generator
from priors.task import ColumnKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallTreeConfig:
    """Everything that the tasks are drawn from, and all that the Bayes predictor knows."""

    max_levels: int = 4
    """Most levels of a column; each column has 2 to this many, all rows equally likely."""
    max_classes: int = 3
    """Most classes; a task has 2 to this many."""
    root_share: float = 0.95
    """Probability that the root is cut."""
    child_share: float = 0.8
    """Probability that a child of the root is cut."""
    concentration: float = 0.3
    """Dirichlet parameter of every class in a leaf."""


def cuts_of(level_counts: np.ndarray) -> np.ndarray:
    """[S, 2] int64 every possible cut (column, threshold) of columns with these level counts [C]."""
    return np.array([(column, t) for column, levels in enumerate(level_counts) for t in range(1, int(levels))])


def sample_small_tree(draws: Draws, config: SmallTreeConfig, *, count: int, rows: int, features: int) -> ExactDraft:
    """Draws `count` classification tasks; facts hold the number of leaves and of
    columns asked, and the share of labels that are not the likeliest of their leaf."""
    generator = numpy_generator(draws)
    levels = generator.integers(2, config.max_levels, (count, features), endpoint=True)
    x = (generator.uniform(size=(count, rows, features)) * levels[:, None, :]).astype(np.int64)
    x = np.minimum(x, levels[:, None, :] - 1)
    classes = generator.integers(2, config.max_classes, count, endpoint=True)
    is_cut = generator.uniform(size=(count, 3)) < np.array([config.root_share, config.child_share, config.child_share])
    is_cut[:, 1:] &= is_cut[:, :1]
    leaf = np.zeros((count, rows), np.int64)
    asked = np.zeros((count, 3), np.int64)
    for task in range(count):
        cuts = cuts_of(levels[task])
        root, left, right = cuts[generator.integers(0, len(cuts), 3)]
        side = is_cut[task, 0] & (x[task, :, root[0]] >= root[1])
        low = is_cut[task, 1] & (x[task, :, left[0]] >= left[1])
        high = is_cut[task, 2] & (x[task, :, right[0]] >= right[1])
        leaf[task] = 2 * side + np.where(side, high, low)
        asked[task] = root[0], left[0], right[0]
    real = np.broadcast_to(np.arange(config.max_classes) < classes[:, None, None], (count, 4, config.max_classes))
    table = dirichlet(generator, concentration=np.array(config.concentration), real=real)
    probabilities = np.take_along_axis(table, leaf[..., None], axis=1)
    y = drawn_classes(generator, probabilities)
    return ExactDraft(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=np.full((count, features), ColumnKind.ORDINAL, np.int8),
        level_counts=levels.astype(np.int32),
        num_classes=classes.astype(np.int32),
        facts={
            "leaves": 1 + is_cut.sum(1),
            "relevant": np.array([len(set(names[cut])) for names, cut in zip(asked, is_cut, strict=True)]),
            "noise_share": (y != probabilities.argmax(-1)).mean(1),
        },
    )
