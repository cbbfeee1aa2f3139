"""The small tables on which audits are taken: deterministic, learnable, with missing values, categories and sizes that
differ. They depend on no prior. Shapes: N context rows, M query rows, C features, K classes.
"""

import dataclasses

import numpy as np

from priors.task import ColumnKind, Episode, Task, TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows and features of a specimen."""

    num_context: int
    num_query: int
    num_features: int
    num_classes: int = 3


SHAPES = (
    Shape(num_context=24, num_query=7, num_features=6, num_classes=3),
    Shape(num_context=17, num_query=5, num_features=4, num_classes=2),
    Shape(num_context=31, num_query=6, num_features=5, num_classes=3),
)
"""Three tables of different sizes, so that a batch of them pads context rows, query rows and columns."""

LARGE = Shape(num_context=300, num_query=64, num_features=24, num_classes=8)
"""A table beyond those sizes: what happens from some size on only is looked for up to here."""


def specimens(kind: TaskKind, *, max_features: int = 100, max_classes: int = 10, seed: int = 0) -> list[Episode]:
    """The tables of `SHAPES`, cut to what a network takes."""
    shapes = [
        dataclasses.replace(
            shape, num_features=min(shape.num_features, max_features), num_classes=min(shape.num_classes, max_classes)
        )
        for shape in SHAPES
    ]
    return [specimen(kind, shape, seed=seed + index) for index, shape in enumerate(shapes)]


def large_specimen(kind: TaskKind, *, max_features: int = 100, max_classes: int = 10, seed: int = 0) -> Episode:
    """The table of `LARGE`, cut to what a network takes."""
    features, classes = min(LARGE.num_features, max_features), min(LARGE.num_classes, max_classes)
    shape = dataclasses.replace(LARGE, num_features=features, num_classes=classes)
    return specimen(kind, shape, seed=seed + 1000)


def specimen(kind: TaskKind, shape: Shape, *, seed: int) -> Episode:
    """One table: classes are Gaussian blobs, a target is a smooth function; the last column is a category.

    Columns before it are numbers (one value in twelve is missing, one is infinite) and, from four columns on, one
    ordinal. Every class is among the context rows.
    """
    generator = np.random.default_rng(np.random.SeedSequence([seed, 41, len(kind)]))
    rows, columns, classes = shape.num_context + shape.num_query, shape.num_features, shape.num_classes
    parts = (shape.num_context, shape.num_query)
    label = np.concatenate([generator.permutation(np.arange(part) % classes) for part in parts])
    x = generator.normal(size=(rows, columns))
    if kind is TaskKind.CLASSIFICATION:
        x = x + 2.0 * generator.normal(size=(classes, columns))[label]
    level_counts, kinds = np.zeros(columns, np.int32), np.full(columns, ColumnKind.NUMBER, np.int8)
    if columns > 1:
        kinds[-1], level_counts[-1] = ColumnKind.CATEGORY, 4
        x[:, -1] = (np.floor(x[:, -1]) + label) % 4
    if columns > 3:
        kinds[-2], level_counts[-2] = ColumnKind.ORDINAL, 5
        x[:, -2] = np.clip(np.round(x[:, -2]) + 2, 0, 4)
    y = label.astype(np.float64) if kind is TaskKind.CLASSIFICATION else _smooth(x, generator)
    x[generator.random(x.shape) < 1 / 12] = np.nan
    x[2, 0] = np.inf
    x[shape.num_context, -1] = 4.0  # a level that the context does not have
    task = Task(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=kinds,
        level_counts=level_counts,
        kind=kind,
        num_classes=classes if kind is TaskKind.CLASSIFICATION else 0,
        family="specimen",
        seed=seed,
    )
    return Episode(task=task, num_context=shape.num_context)


def _smooth(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A smooth function of the first columns plus an effect per category, in a unit that is not standard."""
    weights = generator.normal(size=x.shape[1])
    value = x @ weights / np.sqrt(x.shape[1]) + np.sin(2 * x[:, 0]) + 0.05 * generator.normal(size=len(x))
    return 37.0 * value + 11.0


def relabelled(episode: Episode, variant: int) -> Episode:
    """The same records with other *query* labels; nothing else differs. Variants are 0, 1 and 2."""
    answers, classes = episode.answers().astype(np.float64), episode.task.num_classes
    if episode.task.kind is TaskKind.CLASSIFICATION:
        changed = ((answers + 1) % classes, np.zeros_like(answers), np.full_like(answers, classes - 1))[variant]
    else:
        changed = (100.0 - answers, 1e4 * answers[::-1] + 7.0, np.full_like(answers, -3.0))[variant]
    return with_labels(episode, rows=slice(episode.num_context, None), labels=changed)


def relabelled_by(episode: Episode, slots: np.ndarray) -> Episode:
    """The same classes under other ids: class k becomes slots[k], in context and queries."""
    y = slots[episode.task.y.astype(int)].astype(np.float32)
    return dataclasses.replace(episode, task=dataclasses.replace(episode.task, y=y))


def lacking(episode: Episode, missing: int) -> Episode:
    """The same records whose context lacks class `missing`: its rows have the next class."""
    labels = episode.evidence().y_context
    other = (missing + 1) % episode.task.num_classes
    return with_labels(episode, rows=slice(0, episode.num_context), labels=np.where(labels == missing, other, labels))


def with_labels(episode: Episode, *, rows: slice, labels: np.ndarray) -> Episode:
    """The same records with other labels in `rows`."""
    y = episode.task.y.copy()
    y[rows] = labels
    return dataclasses.replace(episode, task=dataclasses.replace(episode.task, y=y))


def with_context_labels_changed(episode: Episode, rows: list[int]) -> Episode:
    """The same records with the labels of some context rows changed: the next class, or a target far off."""
    y, task = episode.task.y.copy(), episode.task
    if task.kind is TaskKind.CLASSIFICATION:
        y[rows] = (y[rows] + 1) % task.num_classes
    else:
        y[rows] = y[rows] + 2.0 * np.std(y[: episode.num_context])
    return dataclasses.replace(episode, task=dataclasses.replace(task, y=y))


def with_queries(episode: Episode, x_query: np.ndarray, *, answers: np.ndarray | None = None) -> Episode:
    """The same context with other query rows [M', C]; their labels are repeated from the old ones where not given."""
    cut, task = episode.num_context, episode.task
    if answers is None:
        answers = np.resize(episode.answers(), len(x_query))
    x = np.concatenate([task.x[:cut], x_query.astype(np.float32)])
    y = np.concatenate([task.y[:cut], answers.astype(np.float32)])
    return dataclasses.replace(episode, task=dataclasses.replace(task, x=x, y=y))


def with_context(episode: Episode, order: np.ndarray) -> Episode:
    """The same table with its context rows, and their labels, in another order (or a part of them)."""
    cut, task = episode.num_context, episode.task
    x = np.concatenate([task.x[:cut][order], task.x[cut:]])
    y = np.concatenate([task.y[:cut][order], task.y[cut:]])
    return Episode(task=dataclasses.replace(task, x=x, y=y), num_context=len(order))
