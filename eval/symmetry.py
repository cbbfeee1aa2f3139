"""How far predictions move under changes that alter no answer: the order of columns, of classes, of context rows.

A context is a set, and so are its columns and classes. Context rows carry no position: their order moves predictions by
rounding alone (seed 1.4). Feature groups and the class slots of label embeddings are positions (seed 6.3): training
draws both at random, the estimator averages over a few random orders of both, and what is left is measured here. Sizes,
no verdict.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from eval import specimens
from eval.icl_predictor import ICLPredictor
from model.network import Network
from priors.task import Episode, TaskKind

NUM_ESTIMATORS = (1, 4)
"""One random order of the estimator's, and its default number of them."""

_NUM_ORDERS = 4

_Aligned = tuple[Episode, Callable[[np.ndarray], np.ndarray]]
"""A changed episode, and what puts its predictions beside those of the unchanged one."""


def symmetry(network: Network, kind: TaskKind, *, seed: int = 0) -> dict[str, float]:
    """Mean and largest change of predictions over queries and random orders, as users get them from the estimators.

    Args:
        network: in evaluation mode; not changed.
        kind: of the network.
        seed: of the tables and the orders.

    Returns:
        `CHANGE/NUM/mean` and `CHANGE/NUM/max` for each change and each of `NUM_ESTIMATORS`. Changes: `column_order`,
        `class_slots` (classification alone), `context_order`. Sizes: total variation distance of class probabilities,
        in 0..1, or the distance of predictive means in standard deviations of the context's targets.
    """
    limits = {"max_features": network.config.max_features, "max_classes": network.config.icl.max_classes}
    episodes = specimens.specimens(kind, seed=seed, **limits)
    changes: dict[str, Callable[[Episode, np.random.Generator], _Aligned]] = {"column_order": _columns_reordered}
    if kind is TaskKind.CLASSIFICATION:
        changes["class_slots"] = _classes_renumbered
    changes["context_order"] = _context_reordered
    found = {}
    for number in NUM_ESTIMATORS:
        predictor = ICLPredictor(name="symmetry", network=network, num_estimators=number)
        bases = [scaled_predictions(predictor, episode) for episode in episodes]
        for change, make in changes.items():
            generator, sizes = np.random.default_rng([seed, 3]), []  # the same orders for every number of estimators
            for episode, base in zip(episodes, bases, strict=True):
                for _ in range(_NUM_ORDERS):
                    changed, align = make(episode, generator)
                    sizes.append(distances(align(scaled_predictions(predictor, changed)), base))
            found[f"{change}/{number}/mean"] = float(np.concatenate(sizes).mean())
            found[f"{change}/{number}/max"] = float(np.concatenate(sizes).max())
    return found


def _columns_reordered(episode: Episode, generator: np.random.Generator) -> _Aligned:
    task = episode.task
    order = _order(task.x.shape[1], generator)
    columns = {name: getattr(task, name)[order] for name in ("column_kinds", "level_counts")}
    return dataclasses.replace(episode, task=dataclasses.replace(task, x=task.x[:, order], **columns)), _as_it_is


def _classes_renumbered(episode: Episode, generator: np.random.Generator) -> _Aligned:
    """Class k becomes slots[k], so that its probability stands there."""
    slots = _order(episode.task.num_classes, generator)
    return specimens.relabelled_by(episode, slots), lambda predictions: predictions[:, slots]


def _context_reordered(episode: Episode, generator: np.random.Generator) -> _Aligned:
    return specimens.with_context(episode, _order(episode.num_context, generator)), _as_it_is


def _as_it_is(predictions: np.ndarray) -> np.ndarray:
    return predictions


def _order(size: int, generator: np.random.Generator) -> np.ndarray:
    """A random order that is not the one at hand, where there is another."""
    order = generator.permutation(size)
    while size > 1 and (order == np.arange(size)).all():
        order = generator.permutation(size)
    return order


def scaled_predictions(predictor: ICLPredictor, episode: Episode) -> np.ndarray:
    """Class probabilities [M, K], or predictive means [M, 1] in standard deviations of the context's targets."""
    evidence = episode.evidence()
    if evidence.kind is TaskKind.CLASSIFICATION:
        return predictor.classify(evidence)
    return (predictor.forecast(evidence).mean / evidence.y_context.std())[:, None]


def distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[M] for each query: total variation of rows of probabilities, or the distance of two numbers."""
    distances = np.abs(left - right).sum(-1)
    return distances / 2 if left.shape[1] > 1 else distances
