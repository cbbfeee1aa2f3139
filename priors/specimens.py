"""Specimens: the few tasks of each family that somebody looks at."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from priors.families import Family
from priors.group import TaskGroup
from priors.mixture import PriorConfig, sample_group
from priors.task import Task
from tools.failure import BadInput, ExitCode

MOST_OF_A_CLASS = 0.8  # above this share of one class, a plane has hardly another colour
_PLANE_ROWS = 1536
_PLAIN_COLUMNS = {"numbers_share": 1.0, "plain_share": 1.0} | dict.fromkeys(
    ("discrete_share", "rounded_share", "copied_share", "constant_share", "outlier_share", "missing_share"), 0.0
)
_PLAIN_TARGETS = {"noiseless_share": 1.0} | dict.fromkeys(
    ("weak_share", "flip_share", "uneven_noise_share", "long_tail_share")
    + ("skewed_share", "bounded_share", "rounded_share"),
    0.0,
)


def noted(groups: Iterable[TaskGroup], *, specimens: dict[str, list[Task]], per_family: int) -> Iterator[TaskGroup]:
    """Passes groups on and keeps the first task of each family in each, until `per_family` are kept of it.

    Args:
        groups: of one set, in any order; one shape a group, so that specimens differ in shape.
        specimens: family → its tasks; filled.
        per_family: most tasks of a family.
    """
    for group in groups:
        for family in dict.fromkeys(group.families):
            kept = specimens.setdefault(family, [])
            if len(kept) < per_family:
                kept.append(group.task(group.families.index(family)))
        yield group


def draw_planes(config: PriorConfig, *, family: str, seed: int, count: int) -> list[Task]:
    """Tasks of a family with two features, both numbers, many rows, and nothing disturbed: what the family is like.

    Args:
        config: the prior; its own columns, noise and rows do not count here.
        family: a name in `Family`.
        seed: of the tasks; families draw from streams of their own.
        count: how many.

    Raises:
        BadInput: BAD_FLAG for an unknown family.
    """
    if family not in set(Family):
        known = ", ".join(Family)
        raise BadInput(ExitCode.BAD_FLAG, f"family {family!r} is not known: choose one of {known}")
    quiet = dataclasses.replace(
        config,
        only=(Family(family),),
        columns=dataclasses.replace(config.columns, **_PLAIN_COLUMNS),
        targets=dataclasses.replace(config.targets, **_PLAIN_TARGETS),
    )
    own = int(np.random.SeedSequence([seed, *family.encode()]).generate_state(1, np.uint64)[0] >> 1)
    return sample_group(quiet, seed=own, rows=_PLANE_ROWS, features=2, count=count).tasks()


def most_telling(tasks: Sequence[Task]) -> Task:
    """The first of tasks of two features whose target needs both and whose classes can all be seen, as far as any does.

    One that needs both features is preferred to one without a class above `MOST_OF_A_CLASS`.
    """
    return max(tasks, key=_told)


def _told(task: Task) -> tuple[bool, bool]:
    return task.parameters.get("relevant", 0) >= 2, task.parameters.get("largest_class", 0.0) < MOST_OF_A_CLASS
