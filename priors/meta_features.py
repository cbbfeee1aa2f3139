"""Meta-features of a table: one vector for a real and for a synthetic one, by the same code.

Groups: `marginals` (columns one by one), `missing`, `dependence` (columns among each other, rows' geometry), `target`
(its own distribution) and `landmarkers` (how the target depends on the columns). Sizes are none of them: whoever
compares gives both sides tables of equal sizes (`priors.table_parts`).
"""

import dataclasses

import numpy as np

from priors.column_features import column_shape, dependence_features, marginal_features, missing_features
from priors.landmarkers import landmark_features
from priors.task import Task, TaskKind

GROUPS = ("marginals", "missing", "dependence", "target", "landmarkers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureVector:
    """Args: names of the features, "GROUP.NAME", and as many finite values."""

    names: tuple[str, ...]
    values: np.ndarray


def meta_features(task: Task, *, seed: int = 0) -> FeatureVector:
    """The meta-features of one table; tasks of one kind have the same names.

    Args:
        task: at least 16 rows; a target of at least two values.
        seed: of the landmarkers' folds and trees.
    """
    groups = {
        "marginals": marginal_features(task.x),
        "missing": missing_features(task.x),
        "dependence": dependence_features(task.x),
        "target": target_features(task),
        "landmarkers": landmark_features(task, seed=seed),
    }
    found = {f"{group}.{name}": value for group, part in groups.items() for name, value in part.items()}
    values = np.array(list(found.values()), np.float64)
    bad = [name for name, value in found.items() if not np.isfinite(value)]
    if bad:
        raise AssertionError(f"meta-feature {bad[0]} of a {task.family} task is {found[bad[0]]}")
    return FeatureVector(names=tuple(found), values=values)


def target_features(task: Task) -> dict[str, float]:
    """The target alone: its classes (log of the number, entropy ÷ its largest, shares), or the shape of its numbers."""
    if task.kind is TaskKind.CLASSIFICATION:
        shares = np.bincount(task.y.astype(int), minlength=task.num_classes) / len(task.y)
        entropy = -np.sum(shares * np.log(shares.clip(1e-12)))
        return {
            "classes": float(np.log(task.num_classes)),
            "class_entropy": float(entropy / np.log(task.num_classes)),
            "largest_class": float(shares.max()),
            "smallest_class": float(shares.min() * task.num_classes),
        }
    shape = column_shape(task.y)
    return {name: value for name, value in shape.items() if name != "distinct"}
