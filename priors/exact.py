"""The families whose exact posterior predictive is known (5.I), by name: how they are drawn, and in what sizes.

Nothing is done to a task after its family drew it.
"""

import dataclasses
import enum
from typing import Self

import numpy as np

from priors.dirichlet_table import DirichletTableConfig, sample_dirichlet_table
from priors.draws import Draws, one_thread
from priors.exact_draft import ExactDraft
from priors.gaussian_process import GaussianProcessConfig, sample_gaussian_process
from priors.group import TaskGroup
from priors.linear_gaussian import LinearGaussianConfig, sample_linear_gaussian
from priors.small_tree import SmallTreeConfig, sample_small_tree
from priors.task import TaskKind


class ExactFamily(enum.StrEnum):
    """A family with a known posterior."""

    LINEAR_GAUSSIAN = "linear_gaussian"
    GAUSSIAN_PROCESS = "gaussian_process"
    DIRICHLET_TABLE = "dirichlet_table"
    SMALL_TREE = "small_tree"


FAMILIES_OF_KIND = {
    TaskKind.REGRESSION: (ExactFamily.LINEAR_GAUSSIAN, ExactFamily.GAUSSIAN_PROCESS),
    TaskKind.CLASSIFICATION: (ExactFamily.DIRICHLET_TABLE, ExactFamily.SMALL_TREE),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactConfig:
    """The four families. A Bayes predictor knows this and its evidence, nothing else."""

    linear_gaussian: LinearGaussianConfig = LinearGaussianConfig()
    """Linear regression."""
    gaussian_process: GaussianProcessConfig = GaussianProcessConfig()
    """Smooth functions."""
    dirichlet_table: DirichletTableConfig = DirichletTableConfig()
    """Lookup tables."""
    small_tree: SmallTreeConfig = SmallTreeConfig()
    """Decision trees."""
    features: tuple[int, ...] = (1, 2, 4, 8)
    """Columns of regression tasks; a group has one of them."""
    coded_features: tuple[int, ...] = (2, 3, 4, 6)
    """Columns of classification tasks; a group has one of them."""

    def feature_counts(self, family: ExactFamily) -> tuple[int, ...]:
        """The numbers of columns that tasks of a family have."""
        return self.features if kind_of(family) is TaskKind.REGRESSION else self.coded_features

    def within(self, *, max_features: int, max_classes: int) -> Self:
        """The same families with no more columns and classes than a model takes (2 classes remain in any case)."""
        classes = max(2, max_classes)
        table, tree = self.dirichlet_table, self.small_tree
        return dataclasses.replace(
            self,
            dirichlet_table=dataclasses.replace(table, max_classes=min(table.max_classes, classes)),
            small_tree=dataclasses.replace(tree, max_classes=min(tree.max_classes, classes)),
            features=tuple(count for count in self.features if count <= max_features) or (1,),
            coded_features=tuple(count for count in self.coded_features if count <= max_features) or (1,),
        )


def kind_of(family: ExactFamily) -> TaskKind:
    """What a family's tasks predict."""
    return next(kind for kind, families in FAMILIES_OF_KIND.items() if family in families)


def sample_exact_group(
    config: ExactConfig, family: ExactFamily, *, seed: int, rows: int, features: int, count: int
) -> TaskGroup:
    """Draws `count` tasks of one family and shape: a pure function of its arguments, on one torch thread."""
    stream = int(np.random.SeedSequence([seed, *family.encode()]).generate_state(1, np.uint64)[0] >> 1)
    with one_thread():
        draft = sample_exact(config, family, draws=Draws(stream), count=count, rows=rows, features=features)
    return draft.group(family=family.value, kind=kind_of(family), seed=seed)


def sample_exact(
    config: ExactConfig, family: ExactFamily, *, draws: Draws, count: int, rows: int, features: int
) -> ExactDraft:
    """Draws `count` finished tasks of one family and shape."""
    shape = {"count": count, "rows": rows, "features": features}
    match family:
        case ExactFamily.LINEAR_GAUSSIAN:
            return sample_linear_gaussian(draws, config.linear_gaussian, **shape)
        case ExactFamily.GAUSSIAN_PROCESS:
            return sample_gaussian_process(draws, config.gaussian_process, **shape)
        case ExactFamily.DIRICHLET_TABLE:
            return sample_dirichlet_table(draws, config.dirichlet_table, **shape)
    return sample_small_tree(draws, config.small_tree, **shape)
