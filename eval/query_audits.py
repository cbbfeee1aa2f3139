"""Audits of sets: other queries (5.C), their order, the order of the context, and padding (5.7) move no prediction."""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import torch

from eval.case import CONTROL_MULTIPLE, AuditResult, Case, blamed_stage, prediction_gap
from eval.specimens import with_context, with_labels, with_queries
from eval.subject import Run, Subject
from eval.tracing import Difference, Rows, Stage, differences, first_moved, largest_gap
from priors.task import Episode, TaskBatch, TaskKind

_PARTED = 1e-3  # relative: above rounding, below what a leak does


def query_set(case: Case) -> AuditResult:
    """Replaces, duplicates, drops and adds the other queries; a query's own prediction and states stay.

    In equal shapes every reading stays bit by bit (extreme values included); where shapes change, predictions stay
    within the noise floor. Permutation alone cannot see query→query attention or statistics over context and query.
    """
    name, subject = "query_set", case.subject.fresh()
    figures = {"tolerance": case.noise.tolerance, "largest_equal_shape": 0.0, "largest_other_shape": 0.0}
    for episode in (*case.episodes, case.large):
        base, kept = case.run([episode]), (0, len(episode.answers()) - 1)
        changes = itertools.islice(_same_shape(episode, kept), 1 if episode is case.large else None)
        for what, others in changes:
            moved = _moved(base, case.run([others]), kept=kept, kept_after=kept)
            if moved is not None:
                figures["largest_equal_shape"] = moved.absolute
                message = f"{moved.name} of a query moved by {moved.absolute:.3g} when other queries were {what}"
                return case.failed(name, stage=blamed_stage(moved, base), figures=figures, message=message)
        for what, others, before, after in _other_shape(episode, kept) if episode is not case.large else ():
            run = case.run([others])
            gap = largest_gap(base.readout[:, list(before)], run.readout[:, list(after)])
            figures["largest_other_shape"] = max(figures["largest_other_shape"], gap)
            if gap > case.noise.tolerance:
                moved = _moved(base, run, kept=before, kept_after=after, tolerance=case.noise.tolerance)
                stage = Stage.HEAD if moved is None else blamed_stage(moved, base)
                message = f"a query's prediction moved by {gap:.3g} when other queries were {what}"
                return case.failed(name, stage=stage, figures=figures, message=message)
    return _estimator_and_control(case, name, subject=subject, figures=figures)


def _same_shape(episode: Episode, kept: tuple[int, int]) -> Iterator[tuple[str, Episode]]:
    """Changes to the other queries that leave every shape as it is."""
    x = episode.evidence().x_query
    others = [row for row in range(len(x)) if row not in kept]

    def changed(values: np.ndarray | float) -> Episode:
        query = x.copy()
        query[others] = values
        return with_queries(episode, query, answers=episode.answers())

    yield "replaced", changed(np.nan_to_num(x[others], nan=1.0, posinf=2.0)[::-1] * 3.0 + 1.0)
    yield "replaced by copies of it", changed(x[kept[0]])
    for value in (np.nan, np.inf, 1e30, -1e30):
        yield f"set to {value:g}", changed(value)


def _other_shape(
    episode: Episode, kept: tuple[int, int]
) -> Iterator[tuple[str, Episode, tuple[int, ...], tuple[int, ...]]]:
    """Changes to the number of queries: what, the table, and where the kept queries stand before and after."""
    x = episode.evidence().x_query
    for row in kept:
        yield "dropped", with_queries(episode, x[[row]]), (row,), (0,)
    yield "dropped", with_queries(episode, x[list(kept)]), kept, (0, 1)
    more = np.concatenate([np.full((6, x.shape[1]), 50.0, np.float32), x, x + 1.0])
    yield "added", with_queries(episode, more), kept, (kept[0] + 6, kept[1] + 6)
    yield "duplicated", with_queries(episode, np.concatenate([x, x[[kept[1]] * 9]])), kept, kept


def _moved(
    before: Run, after: Run, *, kept: tuple[int, ...], kept_after: tuple[int, ...], tolerance: float = 0.0
) -> Difference | None:
    cut = before.batch.x_context.shape[1]
    found = differences(
        before.trace,
        after.trace,
        rows_before=Rows(query=kept, num_context=cut),
        rows_after=Rows(query=kept_after, num_context=cut),
    )
    return first_moved(found, tolerance=tolerance)


def _estimator_and_control(case: Case, name: str, *, subject: Subject, figures: dict[str, float]) -> AuditResult:
    """The estimator, one query at a time (5.9); then: a query's own features must move its prediction."""
    episode, floor = case.episodes[0], CONTROL_MULTIPLE * case.noise.tolerance
    x = episode.evidence().x_query
    precise = case.subject.fresh(dtype=torch.float64).network  # quantiles magnify the rounding of fp32
    together = subject.estimate(precise, episode).prediction
    alone = [subject.estimate(precise, with_queries(episode, x[[row]])).prediction for row in range(len(x))]
    unit = float(np.std(episode.evidence().y_context)) if subject.kind is TaskKind.REGRESSION else 1.0
    gap = float(np.abs(together - np.concatenate(alone)).max()) / unit
    figures["estimator_one_at_a_time"] = gap
    if gap > case.noise.tolerance:
        what = f"the estimator's prediction of a query moved by {gap:.3g} when it was asked alone"
        return case.failed(name, stage=Stage.ESTIMATOR, figures=figures, message=what)
    own = x.copy()
    own[0] = x[len(x) // 2]
    moved = prediction_gap(case.run([episode]), case.run([with_queries(episode, own, answers=episode.answers())]))
    figures |= {"control_own_features": moved, "control_floor": floor}
    if moved < floor:
        what = f"a query's own features move its prediction by only {moved:.3g}: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="a query's prediction does not depend on the other queries")


def query_permutation(case: Case) -> AuditResult:
    """Permutes the queries and aligns back: predictions stay."""
    name = "query_permutation"
    figures = {"tolerance": case.noise.tolerance, "largest": 0.0, "control_distinct": 0.0}
    for seed, episode in enumerate(case.episodes):
        x, answers = episode.evidence().x_query, episode.answers()
        order = np.roll(np.random.default_rng(seed).permutation(len(x)), 1)
        base, permuted = case.run([episode]), case.run([with_queries(episode, x[order], answers=answers[order])])
        gap = largest_gap(base.readout[:, order], permuted.readout)
        figures["largest"] = max(figures["largest"], gap)
        figures["control_distinct"] = max(figures["control_distinct"], largest_gap(base.readout, permuted.readout))
        if gap > case.noise.tolerance:
            rows = tuple(int(row) for row in order)
            moved = _moved(base, permuted, kept=rows, kept_after=tuple(range(len(x))), tolerance=case.noise.tolerance)
            stage = Stage.HEAD if moved is None else blamed_stage(moved, base)
            message = f"predictions moved by {gap:.3g} when the queries were permuted"
            return case.failed(name, stage=stage, figures=figures, message=message)
    if figures["control_distinct"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = "all queries have the same prediction: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="the order of the queries does not matter")


def context_order(case: Case) -> AuditResult:
    """Permutes the context rows with their labels: predictions stay to rounding (1.4, 5.C)."""
    name = "context_order"
    figures = {"tolerance": case.noise.tolerance, "largest": 0.0, "control_labels_alone": 0.0}
    for seed, episode in enumerate(case.episodes):
        cut, labels = episode.num_context, episode.evidence().y_context
        order = np.random.default_rng(seed).permutation(cut)
        base, permuted = case.run([episode]), case.run([with_context(episode, order)])
        mixed = case.run([with_labels(episode, rows=slice(0, cut), labels=labels[order])])
        gap = prediction_gap(base, permuted)
        figures["largest"] = max(figures["largest"], gap)
        figures["control_labels_alone"] = max(figures["control_labels_alone"], prediction_gap(base, mixed))
        if gap > case.noise.tolerance:
            rows = Rows(context=tuple(int(row) for row in order), num_context=cut)
            found = differences(base.trace, permuted.trace, rows_before=rows, rows_after=Rows(num_context=cut))
            moved = first_moved(found, tolerance=10 * case.noise.tolerance)
            stage = Stage.HEAD if moved is None else blamed_stage(moved, base)
            message = f"predictions moved by {gap:.3g} when context rows were permuted with their labels"
            return case.failed(name, stage=stage, figures=figures, message=message)
    if figures["control_labels_alone"] < CONTROL_MULTIPLE * case.noise.tolerance:
        what = "labels permuted without their rows move nothing: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="the order of the context does not matter")


def padding(case: Case) -> AuditResult:
    """A table in a padded batch is predicted as alone, whatever stands in the padded rows and in other tables (5.7)."""
    name, subject = "padding", case.subject.fresh()
    tables, tolerance = list(case.episodes), case.noise.tolerance
    base = subject.run(tables)
    dirty = dataclasses.replace(subject, collate=lambda episodes: _dirtied(subject.collate(episodes))).run(tables)
    figures = {"tolerance": tolerance, "largest_alone": 0.0, "largest_dirty": 0.0, "padded_rows": 0.0}
    for index, episode in enumerate(tables):
        rows = Rows(
            tables=(index,),
            context=tuple(range(episode.num_context)),
            query=tuple(range(len(episode.answers()))),
            num_context=base.batch.x_context.shape[1],
        )
        moved = first_moved(differences(base.trace, dirty.trace, rows_before=rows, rows_after=rows))
        lone = subject.run([episode])
        alone = largest_gap(base.readout[index, : len(episode.answers())], _padded_to(lone, base))
        figures["largest_alone"] = max(figures["largest_alone"], alone)
        figures["padded_rows"] += float((~base.batch.context_mask[index]).sum() + (~base.batch.query_mask[index]).sum())
        if moved is not None:
            figures["largest_dirty"] = moved.absolute
            message = f"{moved.name} of a real row moved by {moved.absolute:.3g} with what stands in padded rows"
            return case.failed(name, stage=blamed_stage(moved, base), figures=figures, message=message)
        if alone > tolerance:
            message = f"a table's prediction moved by {alone:.3g} between a padded batch and alone"
            return case.failed(name, stage=_parted(base, lone, rows=rows), figures=figures, message=message)
    if not figures["padded_rows"]:
        return case.failed(name, stage=None, figures=figures, message="no row was padded: the audit is blind")
    spoilt = dataclasses.replace(subject, collate=lambda episodes: _spoilt(subject.collate(episodes))).run(tables)
    figures["control_real_row"] = prediction_gap(base, spoilt)
    if figures["control_real_row"] < CONTROL_MULTIPLE * tolerance:
        what = f"the same content in a real row moves predictions by only {figures['control_real_row']:.3g}: blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="padding and other tables of a batch do not matter")


def _parted(batch: Run, lone: Run, *, rows: Rows) -> Stage:
    """Where a table in a batch first parts from the same table alone, from label injection on; the head if nowhere."""
    own = Rows(num_context=lone.batch.x_context.shape[1])
    found = differences(batch.trace, lone.trace, rows_before=rows, rows_after=own)
    comparable = [item for item in found if item.name.startswith("icl.") and np.isfinite(item.absolute)]
    moved = first_moved(comparable, tolerance=_PARTED)
    return Stage.HEAD if moved is None else blamed_stage(moved, batch)


def _padded_to(alone: Run, batch: Run) -> torch.Tensor:
    """A lone table's readout [M, W'] with absent classes appended as probability 0."""
    values = alone.readout[0]
    return torch.nn.functional.pad(values, (0, batch.readout.shape[-1] - values.shape[-1]))


def _dirtied(batch: TaskBatch) -> TaskBatch:
    """The batch with other content in its padded rows: values, and labels that exist."""
    x_context, x_query, y_context = batch.x_context.copy(), batch.x_query.copy(), batch.y_context.copy()
    x_context[~batch.context_mask], x_query[~batch.query_mask], y_context[~batch.context_mask] = 30.0, -30.0, 1.0
    return dataclasses.replace(batch, x_context=x_context, x_query=x_query, y_context=y_context)


def _spoilt(batch: TaskBatch) -> TaskBatch:
    """The batch with the content of `_dirtied` in the first context row of every table, which is real."""
    x_context, y_context = batch.x_context.copy(), batch.y_context.copy()
    x_context[:, 0], y_context[:, 0] = 30.0, 1.0
    return dataclasses.replace(batch, x_context=x_context, y_context=y_context)
