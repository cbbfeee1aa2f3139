"""Audit of the other ways to compute a prediction: from a remembered context, and in bf16 (5.9, 5.10)."""

import numpy as np
import torch

from eval.case import CONTROL_MULTIPLE, AuditResult, Case
from eval.specimens import relabelled, with_context_labels_changed, with_queries
from eval.subject import Subject, in_precision, readout
from eval.tracing import Stage, largest_gap
from model.icl_transformer import AttentionPath
from model.regression_heads import RegressionHeadKind
from priors.task import Episode, TaskKind

_CACHED = 1e-5
_BF16 = 2e-2  # probabilities and bucket masses
_BF16_TARGETS = 0.3  # means, quantiles and points, in deviations of the context's targets: outer ones round most


def paths(case: Case) -> AuditResult:
    """Cached predictions equal those of the audited path, and so do bf16 ones, coarsely; neither leaks, bit by bit.

    A context is remembered once and asked twice, with other questions between; another context is remembered before and
    meanwhile.
    """
    name, subject = "paths", case.subject.fresh()
    batch = subject.collate(list(case.episodes))
    base = subject.run_batch(batch).readout
    real = torch.from_numpy(batch.query_mask)
    figures = {"cached": largest_gap(_cached(subject, case.episodes)[real], base[real])}
    if figures["cached"] > max(_CACHED, case.noise.tolerance):
        what = f"from a remembered context predictions differ by {figures['cached']:.3g}"
        return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=what)
    rounded = _in_bf16(subject, case.episodes)
    probabilities = _num_probabilities(subject, base.shape[-1])
    for part, columns, limit in (
        ("bf16", slice(0, probabilities), _BF16),
        ("bf16_targets", slice(probabilities, None), _BF16_TARGETS),
    ):
        figures[part] = largest_gap(rounded[real][:, columns], base[real][:, columns])
        if figures[part] > limit:
            what = f"in bf16 predictions differ by {figures[part]:.3g} where at most {limit:g} is rounding"
            return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=what)
    for what, others in _illegal_changes(case.episodes):
        moved = largest_gap(_in_bf16(subject, others)[:, 0], rounded[:, 0])
        figures["bf16_moved"] = max(figures.get("bf16_moved", 0.0), moved)
        if moved > 0:
            message = f"in bf16 a prediction moved by {moved:.3g} when {what}"
            return case.failed(name, stage=Stage.BLOCKS, figures=figures, message=message)
    figures["control"] = largest_gap(_in_bf16(subject, _other_labels(case.episodes))[real], rounded[real])
    if figures["control"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = f"in bf16 half of the context labels move predictions by only {figures['control']:.3g}: blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="cached and bf16 predictions are those that were audited")


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


def _num_probabilities(subject: Subject, width: int) -> int:
    """How many of a readout's columns are probabilities."""
    config = subject.network.config
    if subject.kind is TaskKind.CLASSIFICATION:
        return width
    return config.regression.buckets.num_buckets if config.regression.kind is RegressionHeadKind.BAR else 0


def _other_labels(episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
    return tuple(with_context_labels_changed(episode, list(range(0, episode.num_context, 2))) for episode in episodes)


def _in_bf16(subject: Subject, episodes: tuple[Episode, ...]) -> torch.Tensor:
    own = subject.fresh(dtype=torch.float32)
    batch = own.collate(list(episodes))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return readout(own.network(own.gate(batch)), batch)


def _illegal_changes(episodes: tuple[Episode, ...]) -> list[tuple[str, tuple[Episode, ...]]]:
    """Changes that must not move the prediction of query 0, in equal shapes."""

    def others_replaced(episode: Episode) -> Episode:
        x = episode.evidence().x_query.copy()
        x[1:] = np.nan_to_num(x[1:], nan=1.0, posinf=2.0)[::-1] * 3.0 + 1.0
        return with_queries(episode, x, answers=episode.answers())

    return [
        ("only query labels changed", tuple(relabelled(episode, 0) for episode in episodes)),
        ("other queries were replaced", tuple(others_replaced(episode) for episode in episodes)),
    ]
