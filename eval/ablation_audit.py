"""Audit of the context's labels: shown without any, a network knows nothing of the answers (5.B)."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch

from eval.case import CONTROL_MULTIPLE, AuditResult, Case, prediction_gap
from eval.specimens import relabelled_by, specimens, with_context_labels_changed
from eval.subject import Run, Subject
from eval.tracing import Difference, Rows, Stage, differences, first_moved
from model.classification_head import RowReadingHead
from model.network import NetworkInputs
from priors.task import Episode, TaskKind

_SPECIMEN_SEEDS = range(100, 108)
_PERMUTATIONS = 1999
_LEAST_P = 1e-3
# What holds raw labels by design, or is measured in their unit; nothing else may move with them.
_LABEL_READINGS = ("inputs.y_context", "column_labels.labels", "icl.injection.labels", "prediction")


def context_ablation(case: Case) -> AuditResult:
    """Hides every context label: in the columns, at injection, in the head's values and the target's statistics (5.B).

    Then other labels in the records move nothing, bit by bit; a head that reads rows is uniform; predictions differ
    from those with labels; and they are at chance by a permutation test, classes in every rotation of the slots,
    targets with both signs.
    """
    name, subject = "context_ablation", case.subject.fresh()
    ablated = dataclasses.replace(subject, gate=lambda batch: _without_labels(subject.gate(batch)))
    tables = list(case.episodes)
    base = ablated.run(tables)
    changed = ablated.run([with_context_labels_changed(e, list(range(0, e.num_context, 2))) for e in tables])
    moved = _first_move(base, changed)
    figures = {"largest_move": 0.0 if moved is None else moved.absolute}
    if moved is not None:
        what = f"{moved.name} moved by {moved.absolute:.3g} with context labels that are hidden"
        return case.failed(name, stage=moved.stage, figures=figures, message=what)
    off = figures["not_uniform"] = _not_uniform(subject, base)
    if off > case.noise.tolerance:
        what = f"without labels the head is {off:.3g} off what it must be: uniform, or of location 0 and scale 1"
        return case.failed(name, stage=Stage.HEAD, figures=figures, message=what)
    figures["p_value"] = _p_value(ablated)
    if figures["p_value"] <= _LEAST_P:
        what = f"without labels, answers are still told better than chance (p = {figures['p_value']:.2g})"
        return case.failed(name, stage=Stage.HEAD, figures=figures, message=what)
    figures["control"] = prediction_gap(base, subject.run(tables))
    if figures["control"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = f"labels move predictions by only {figures['control']:.3g}: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="without context labels, predictions know nothing of the answers")


def _without_labels(inputs: NetworkInputs) -> NetworkInputs:
    return dataclasses.replace(inputs, label_mask=torch.zeros(inputs.y_context.shape, dtype=torch.bool))


def _first_move(base: Run, other: Run) -> Difference | None:
    found = differences(base.trace, other.trace, rows_before=Rows(), rows_after=Rows())
    return first_moved([item for item in found if item.name not in _LABEL_READINGS])


def _not_uniform(subject: Subject, run: Run) -> float:
    """How far a row-reading head's probabilities are from 1/K; in regression, location from 0 and scale from 1."""
    if subject.kind is TaskKind.REGRESSION:
        location, scale = run.trace.find("prediction.location"), run.trace.find("prediction.scale")
        return float(torch.maximum(location.abs(), (scale - 1).abs()).max())
    if not isinstance(subject.network.head, RowReadingHead):
        return 0.0
    probabilities = run.trace.find("prediction.log_p").exp()
    return float((probabilities - 1 / probabilities.shape[-1]).abs().max())


def _p_value(ablated: Subject) -> float:
    """Of a permutation test: are predictions better than where each table's class ids, or its sign, are exchanged?

    Every table is shown with its classes in every rotation of the slots, or its targets with both signs, so what a
    prediction says of a table without its labels cancels exactly, and a network that knows none is never accused by
    chance. The statistic sums hits over queries (ties are broken at random), or the correlation of ranks over tables;
    the null draws another assignment for each table shown, whose queries stay together.
    """
    generator = np.random.default_rng(0)
    observed, drawn = 0.0, np.zeros(_PERMUTATIONS)
    for prediction, answers in _told(ablated):
        if ablated.kind is TaskKind.REGRESSION:
            fit = _rank_correlation(prediction[:, 0], answers)
            observed, drawn = observed + fit, drawn + fit * generator.choice([-1.0, 1.0], size=_PERMUTATIONS)
            continue
        classes = prediction.shape[1]
        hits = _hits(prediction, answers, generator=generator)
        orders = generator.permuted(np.tile(np.arange(classes), (_PERMUTATIONS, 1)), axis=1)
        observed, drawn = observed + float(np.trace(hits)), drawn + hits[orders, np.arange(classes)].sum(axis=1)
    return float((1 + (drawn >= observed - 1e-12).sum()) / (1 + _PERMUTATIONS))


def _told(ablated: Subject) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Predictions and answers of many tables, each shown in every rotation of its classes or with both signs."""
    config = ablated.network.config
    limits = {"max_features": config.max_features, "max_classes": config.icl.max_classes}
    for seed in _SPECIMEN_SEEDS:
        for episode in specimens(ablated.kind, seed=seed, **limits):
            for outcome in ablated.run(_renamed(episode)).outcomes:
                yield outcome.prediction, outcome.answers


def _renamed(episode: Episode) -> list[Episode]:
    if episode.task.kind is TaskKind.REGRESSION:
        return [episode, dataclasses.replace(episode, task=dataclasses.replace(episode.task, y=-episode.task.y))]
    slots = np.arange(episode.task.num_classes)
    return [relabelled_by(episode, np.roll(slots, shift)) for shift in slots]


def _hits(prediction: np.ndarray, answers: np.ndarray, *, generator: np.random.Generator) -> np.ndarray:
    """[K, K]: for how many queries class i is predicted and class j is the answer."""
    told = np.argmax(np.round(prediction, 6) + 1e-9 * generator.random(prediction.shape), axis=1)
    found = np.zeros((prediction.shape[1],) * 2)
    np.add.at(found, (told, answers.astype(int)), 1.0)
    return found


def _rank_correlation(told: np.ndarray, true: np.ndarray) -> float:
    """Spearman's, without a correction of ties; 0 where nothing varies."""
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (told, true)]
    return float(np.corrcoef(*ranks)[0, 1]) if np.ptp(told) > 0 and np.ptp(true) > 0 else 0.0
