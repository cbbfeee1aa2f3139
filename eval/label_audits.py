"""Audits of labels: query labels reach no prediction (5.A), the unknown label is its own, no table is remembered."""

import dataclasses
import math

import numpy as np
import torch

from eval.case import CONTROL_MULTIPLE, AuditResult, Case, prediction_gap
from eval.specimens import lacking, relabelled, with_context_labels_changed
from eval.subject import Outcome, Run, Subject
from eval.tracing import Rows, Stage, differences, first_moved, largest_gap
from model.network import NetworkInputs
from priors.task import Episode, TaskKind

_VARIANTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moved:
    stage: Stage
    name: str
    size: float


def leakage(case: Case) -> AuditResult:
    """Changes only the query labels of the records; every stage, prediction and scored outcome stays bit by bit (5.A).

    Tables of different sizes share a padded batch, one is judged alone, and a large one; contexts also lack a class
    that queries have. The records go through collate, gate, network, scorer, and through the estimator.
    """
    name, subject = "leakage", case.subject.fresh()
    tables = list(case.episodes)
    figures = {"tolerance": 0.0, "relabelled_runs": 0.0, "readings": 0.0}
    for group in (tables, tables[:1], [case.large], *_with_a_class_missing(tables)):
        base = case.run(group)
        for variant in range(_VARIANTS):
            other = case.run([relabelled(episode, variant) for episode in group])
            moved = _first_move(base, other)
            figures["relabelled_runs"] += 1
            figures["readings"] += len(base.trace.readings)
            if moved is not None:
                figures["largest_move"] = moved.size
                what = f"{moved.name} moved by {moved.size:.3g} when only query labels changed"
                return case.failed(name, stage=moved.stage, figures=figures, message=what)
            if not _answers_changed(base.outcomes, other.outcomes):
                what = "the scorer's answers did not change with the query labels: this audit is blind"
                return case.failed(name, stage=Stage.SCORER, figures=figures, message=what)
    moved = _estimator_move(subject, tables)
    if moved is not None:
        what = f"{moved.name} moved by {moved.size:.3g} when only query labels changed"
        return case.failed(name, stage=moved.stage, figures=figures, message=what)
    return _with_control(case, name, subject=subject, figures={**figures, "largest_move": 0.0})


def _with_a_class_missing(tables: list[Episode]) -> list[list[Episode]]:
    """The tables whose contexts lack their first, their second, or their last class: queries alone may hold it."""
    if tables[0].task.kind is TaskKind.REGRESSION:
        return []
    return [[lacking(episode, missing % episode.task.num_classes) for episode in tables] for missing in (0, 1, -1)]


def _first_move(base: Run, other: Run) -> _Moved | None:
    everything = Rows()
    moved = first_moved(differences(base.trace, other.trace, rows_before=everything, rows_after=everything))
    if moved is not None:
        return _Moved(stage=moved.stage, name=moved.name, size=moved.absolute)
    gap = max(_outcome_gap(a, b) for a, b in zip(base.outcomes, other.outcomes, strict=True))
    if gap > 0:
        return _Moved(stage=Stage.SCORER, name="the scored prediction", size=gap)
    declared = {field.name for field in dataclasses.fields(NetworkInputs)}
    extra = [field.name for field in dataclasses.fields(base.inputs) if field.name not in declared]
    if extra:
        return _Moved(stage=Stage.COLLATE, name=f"inputs.{extra[0]} (the gate lets it through)", size=math.inf)
    return None


def _estimator_move(subject: Subject, tables: list[Episode]) -> _Moved | None:
    for episode in tables:
        base = subject.estimate(subject.network, episode)
        for variant in range(_VARIANTS):
            gap = _outcome_gap(base, subject.estimate(subject.network, relabelled(episode, variant)))
            if gap > 0:
                return _Moved(stage=Stage.ESTIMATOR, name="the estimator's prediction", size=gap)
    return None


def _outcome_gap(a: Outcome, b: Outcome) -> float:
    return largest_gap(torch.from_numpy(a.prediction), torch.from_numpy(b.prediction))


def _answers_changed(before: list[Outcome], after: list[Outcome]) -> bool:
    return any(not np.array_equal(a.answers, b.answers) for a, b in zip(before, after, strict=True))


def _with_control(case: Case, name: str, *, subject: Subject, figures: dict[str, float]) -> AuditResult:
    """Passes only where one changed context label moves hidden query states, predictions and the estimator's answer."""
    tables = list(case.episodes)
    changed = [with_context_labels_changed(episode, [1]) for episode in tables]
    base, other = subject.run(tables), subject.run(changed)
    hidden = largest_gap(base.trace.find("icl.h_query"), other.trace.find("icl.h_query"))
    estimated = _outcome_gap(*(subject.estimate(subject.network, episode) for episode in (tables[0], changed[0])))
    unit = float(np.std(tables[0].evidence().y_context)) if subject.kind is TaskKind.REGRESSION else 1.0
    effects = {
        "control_hidden": hidden,
        "control_prediction": prediction_gap(base, other),
        "control_estimator": estimated / unit,
    }
    floor = CONTROL_MULTIPLE * case.noise.tolerance
    figures = {**figures, **effects, "control_floor": floor}
    for effect, size in effects.items():
        if size < floor:
            moved = effect.removeprefix("control_")
            what = f"a changed context label moves the {moved} by only {size:.3g}: the audit is blind"
            return case.failed(name, stage=None, figures=figures, message=what)
    what = f"query labels move nothing; one context label moves predictions by {effects['control_prediction']:.3g}"
    return case.passed(name, figures=figures, message=what)


def history(case: Case) -> AuditResult:
    """A prediction does not depend on what was predicted before (bit by bit): no stale label, statistic or key.

    The second tables have the values and shapes of the first and other context labels; the third have other values.
    """
    name = "history"
    used, tables = case.subject.fresh(), list(case.episodes)
    first = used.run(tables)
    changed = [with_context_labels_changed(e, list(range(0, e.num_context, 2))) for e in tables]
    others = [
        dataclasses.replace(e, task=dataclasses.replace(e.task, x=np.ascontiguousarray(e.task.x[::-1]))) for e in tables
    ]
    everything = Rows()
    figures: dict[str, float] = {}
    for what, group in {"labels": changed, "values": others, "again": tables}.items():
        fresh, later = case.subject.fresh().run(group), used.run(group)
        moved = first_moved(differences(fresh.trace, later.trace, rows_before=everything, rows_after=everything))
        figures[f"moved_{what}"] = 0.0 if moved is None else moved.absolute
        figures[f"control_{what}"] = prediction_gap(first, fresh)
        if moved is not None:
            message = f"{moved.name} moved by {moved.absolute:.3g} because another table was predicted before"
            return case.failed(name, stage=moved.stage, figures=figures, message=message)
        if what != "again" and figures[f"control_{what}"] < CONTROL_MULTIPLE * case.noise.tolerance:
            message = f"other {what} move predictions by only {figures[f'control_{what}']:.3g}: the audit is blind"
            return case.failed(name, stage=None, figures=figures, message=message)
    return case.passed(name, figures=figures, message="predictions do not depend on what was predicted before")


def unknown_label(case: Case) -> AuditResult:
    """The query's unknown label is no class: other class embeddings move no query row at injection (5.3)."""
    name = "unknown_label"
    before, after = case.subject.fresh(), case.subject.fresh()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in after.network.icl.injection.encoder.parameters():
            value.add_(torch.randn(value.shape, generator=generator).to(value.dtype))
    tables = list(case.episodes)
    first, second = before.run(tables), after.run(tables)
    cut = first.batch.x_context.shape[1]
    gap = (first.trace.find("icl.injection") - second.trace.find("icl.injection")).abs()
    figures = {"query_rows": float(gap[:, cut:].max()), "control_context_rows": float(gap[:, :cut].max())}
    if figures["query_rows"] > 0:
        what = f"query rows move by {figures['query_rows']:.3g} with the class embeddings: a query carries a class"
        return case.failed(name, stage=Stage.INJECTION, figures=figures, message=what)
    if figures["control_context_rows"] < 1e-3:
        what = "context rows do not move with the label encoder: the audit is blind"
        return case.failed(name, stage=None, figures=figures, message=what)
    return case.passed(name, figures=figures, message="the unknown label is apart from every label")
