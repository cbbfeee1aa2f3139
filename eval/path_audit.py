"""Audit of the other ways to compute a prediction: from a remembered context, in bf16, in training mode (5.9, 5.10)."""

from collections.abc import Callable

import numpy as np
import torch

from eval.case import CONTROL_MULTIPLE, AuditResult, Case
from eval.specimens import relabelled, with_context_labels_changed, with_queries
from eval.subject import Subject, in_precision, readout
from eval.tracing import Stage, largest_gap
from model.icl_transformer import AttentionPath
from model.regression_heads import RegressionHeadKind
from priors.task import Episode, TaskBatch, TaskKind


def paths(case: Case) -> AuditResult:
    """Predictions from a memory, in bf16 and in training mode equal the audited ones, and leak nothing bit by bit.

    A context is remembered once and asked twice, with other questions between; another context is remembered before
    and meanwhile. In equal shapes, other query labels and other queries move neither the first nor the last query.
    """
    name, subject = "paths", case.subject.fresh()
    batch = subject.collate(list(case.episodes))
    base, real = subject.run_batch(batch).readout, torch.from_numpy(batch.query_mask)
    probabilities, figures = _num_probabilities(subject, base.shape[-1]), {}
    for way, predict in _WAYS.items():
        found = predict(subject, case.episodes)
        for part, columns in (("", slice(0, probabilities)), ("_targets", slice(probabilities, None))):
            limit = max(_LIMITS[way + part], case.noise.tolerance)
            gap = figures[way + part] = largest_gap(found[real][:, columns], base[real][:, columns])
            if gap > limit:
                what = f"{way}: predictions differ by {gap:.3g} where at most {limit:.3g} is rounding"
                return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=what)
        for what, others in _illegal_changes(case.episodes):
            moved = largest_gap(*(_ends(readout_, batch) for readout_ in (predict(subject, others), found)))
            figures[f"{way}_moved"] = max(figures.get(f"{way}_moved", 0.0), moved)
            if moved > 0:
                message = f"{way}: a prediction moved by {moved:.3g} when {what}"
                return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=message)
        control = figures[f"{way}_control"] = largest_gap(
            predict(subject, _other_labels(case.episodes))[real], found[real]
        )
        if control < CONTROL_MULTIPLE * case.noise.tolerance:
            what = f"{way}: half of the context labels move predictions by only {control:.3g}: the audit is blind"
            return case.failed(name, stage=None, figures=figures, message=what)
    what = "predictions from a memory, in bf16 and in training mode are those that were audited"
    return case.passed(name, figures=figures, message=what)


def _ends(found: torch.Tensor, batch: TaskBatch) -> torch.Tensor:
    """[2 B, W] the readout of the first and the last real query of each table."""
    last = torch.from_numpy(batch.query_mask.sum(1) - 1)
    return torch.cat([found[:, 0], found[torch.arange(len(last)), last]])


def _cached(subject: Subject, episodes: tuple[Episode, ...]) -> torch.Tensor:
    """[B, M, W] the second reading of a remembered context."""
    own = subject.fresh(path=AttentionPath.CACHED)
    batch = own.collate(list(episodes))
    other = own.collate(list(_other_labels(episodes)))
    inputs, others = (in_precision(own.gate(part), own.dtype) for part in (batch, other))
    with torch.no_grad():
        own.network.remember(others)
        memory = own.network.remember(inputs)
        own.network.remember(others)
        own.network.predict(memory, -inputs.x_query, query_mask=inputs.query_mask)
        return readout(own.network.predict(memory, inputs.x_query, query_mask=inputs.query_mask), batch)


def _in_bf16(subject: Subject, episodes: tuple[Episode, ...]) -> torch.Tensor:
    own = subject.fresh(dtype=torch.float32)
    batch = own.collate(list(episodes))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return readout(own.network(own.gate(batch)), batch)


def _in_training(subject: Subject, episodes: tuple[Episode, ...]) -> torch.Tensor:
    """In training mode: what training leaves out of a context is chosen outside the network."""
    own = subject.fresh()
    batch = own.collate(list(episodes))
    own.network.train()
    with torch.no_grad():
        return readout(own.network(in_precision(own.gate(batch), own.dtype)), batch)


_WAYS: dict[str, Callable[[Subject, tuple[Episode, ...]], torch.Tensor]] = {
    "cached": _cached,
    "bf16": _in_bf16,
    "training": _in_training,
}
# Probabilities and bucket masses; and, in deviations of the context's targets, means, quantiles and points. Sharp
# networks round far in bf16 (.017 was seen of a trained one), and leaks are looked for bit by bit: these limits only
# tell another function from rounding.
_LIMITS = {
    "cached": 1e-5,
    "cached_targets": 1e-5,
    "bf16": 0.1,
    "bf16_targets": 0.5,
    "training": 1e-5,
    "training_targets": 1e-5,
}


def _num_probabilities(subject: Subject, width: int) -> int:
    """How many of a readout's columns are probabilities."""
    config = subject.network.config
    if subject.kind is TaskKind.CLASSIFICATION:
        return width
    return config.regression.buckets.num_buckets if config.regression.kind is RegressionHeadKind.BAR else 0


def _other_labels(episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
    return tuple(with_context_labels_changed(episode, list(range(0, episode.num_context, 2))) for episode in episodes)


def _illegal_changes(episodes: tuple[Episode, ...]) -> list[tuple[str, tuple[Episode, ...]]]:
    """Changes that must not move the predictions of the first and the last query, in equal shapes."""

    def others_replaced(episode: Episode) -> Episode:
        x = episode.evidence().x_query.copy()
        x[1:-1] = np.nan_to_num(x[1:-1], nan=1.0, posinf=2.0)[::-1] * 3.0 + 1.0
        return with_queries(episode, x, answers=episode.answers())

    return [
        ("only query labels changed", tuple(relabelled(episode, 0) for episode in episodes)),
        ("other queries were replaced", tuple(others_replaced(episode) for episode in episodes)),
    ]
