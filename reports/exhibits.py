"""Which figures a run's files give: absent files give none. Picture names are unique over the whole run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports import figures, readings, standings
from reports.drawing import Picture
from reports.figures import Curve, ModelScore
from reports.run_folder import KindFiles

MAX_DRAWN_TABLES = 12
_VALIDATION = "validation/"
_WATCHED_REGRET, _WATCHED_TABLES = "watch/regret", "watch/tables/"
_LOSS_UNITS = {"classification": "NLL, nats per query row", "regression": "NLL, nats (scaled target)"}
_LEVELS = ("0.05", "0.5", "0.95")


def training_pictures(part: KindFiles) -> list[Picture]:
    """Learning curves: training loss, each validation metric with its task families, and what was watched."""
    out = []
    if "train/loss" in part.curves:
        name, unit = f"{part.kind}-training-loss", _LOSS_UNITS[part.kind]
        out.append(figures.record_curve(part.curves["train/loss"], name=name, title="Training loss", unit=unit))
    for metric, curves in _validation(part.curves).items():
        title = f"Validation {standings.metric_of(metric).label}"
        unit = _LOSS_UNITS[part.kind] if metric == "nll" else metric
        name = f"{part.kind}-validation-{len(out)}"
        out.append(figures.validation_curves(curves, name=name, title=title, unit=unit))
    return out + _watched_pictures(part)


def _watched_pictures(part: KindFiles) -> list[Picture]:
    """Regret with its families and context sizes, and each metric of real tables, where looks were taken."""
    panels = [("regret", {}, "Regret", "nats per query row", "tasks whose posterior is known")]
    lines: dict[str, dict[str, Curve]] = {}
    for key, curve in part.curves.items():
        if key.startswith(_WATCHED_REGRET):
            panels[0][1][key.removeprefix(_WATCHED_REGRET).strip("/") or figures.ALL] = curve
        elif key.startswith(_WATCHED_TABLES):
            *table, metric = key.removeprefix(_WATCHED_TABLES).split("/")
            lines.setdefault(metric, {})[table[0] if table else figures.ALL] = curve
    for metric, curves in lines.items():
        label = standings.metric_of(metric).label
        panels.append((metric, curves, f"{label} during training", label, "a few rows of real tables"))
    return [
        figures.validation_curves(
            _first(curves), name=f"{part.kind}-watched-{key}", title=title, unit=unit, tasks=tasks, chooses=False
        )
        for key, curves, title, unit, tasks in panels
        if curves
    ]


def _first(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """As many lines as a panel can show: the mean of all, and the first ones."""
    return dict(sorted(curves.items(), key=lambda item: item[0] != figures.ALL)[: MAX_DRAWN_TABLES + 1])


def throughput_pictures(part: KindFiles) -> list[Picture]:
    """Tasks per second of the training loop over its steps."""
    curve = part.curves.get("train/tasks_per_second")
    if curve is None:
        return []
    title, name = f"Throughput, {part.kind}", f"{part.kind}-throughput"
    return [figures.record_curve(curve, name=name, title=title, unit="tasks per second", baseline=0.0)]


def growth_pictures(views: Mapping[str, Any], *, kind: str) -> list[Picture]:
    """Seconds of a prediction over context rows and query rows, where views.json holds them under "growth"."""
    growth = views.get("growth")
    if not growth:
        return []
    context = Curve(steps=growth["context_rows"], values=growth["context_seconds"])
    query = Curve(steps=growth["query_rows"], values=growth["query_seconds"])
    return [figures.growth_picture(context, query, name=f"{kind}-growth")]


def _validation(curves: Mapping[str, Curve]) -> dict[str, dict[str, Curve]]:
    """`validation/nll/forest` → {"nll": {"forest": curve}}; the mean over all is called "all"."""
    out: dict[str, dict[str, Curve]] = {}
    for key, curve in curves.items():
        if key.startswith(_VALIDATION):
            metric, _, family = key.removeprefix(_VALIDATION).partition("/")
            out.setdefault(metric, {})[family or figures.ALL] = curve
    return out


def mask_pictures(views: Mapping[str, Any], *, kind: str) -> list[Picture]:
    """The mask that reached attention, the weights that it let through, and the influence that was measured."""
    if "mask" not in views or "num_context" not in views:
        return []
    mask, cut = np.asarray(views["mask"], float), int(views["num_context"])
    out = [readings.mask_picture(mask, num_context=cut, name=f"{kind}-mask")]
    if "weights" in views:
        weights = np.asarray(views["weights"], float)
        out.append(readings.weights_picture(weights, mask, num_context=cut, name=f"{kind}-weights"))
    if "influence" in views:
        sizes, found = np.asarray(views["influence"], float), {"num_redrawn": int(views.get("influence_redrawn", 0))}
        out.append(readings.influence_picture(sizes, mask, num_context=cut, name=f"{kind}-influence", **found))
    return out


def reading_pictures(views: Mapping[str, Any], *, kind: str) -> list[Picture]:
    """What one query read and the probabilities that it got, or the predictive distribution of one task."""
    out = []
    if "read_weights" in views and "context_labels" in views:
        answer = int(views["query_label"])
        weights, labels = np.asarray(views["read_weights"], float), np.asarray(views["context_labels"], int)
        out.append(readings.read_weights_picture(weights, labels, answer=answer, name=f"{kind}-read-weights"))
        if "probabilities" in views:
            values = np.asarray(views["probabilities"], float)
            out.append(readings.probabilities_picture(values, answer=answer, name=f"{kind}-probabilities"))
    if "curve_x" in views and all(level in views.get("curve_quantiles", {}) for level in _LEVELS):
        out.append(readings.band_picture(views, views["curve_quantiles"], name=f"{kind}-band"))
    return out


def score_pictures(part: KindFiles, *, metric: standings.Metric, tables: Sequence[str]) -> list[Picture]:
    """One metric, one panel for each of `tables`: models best first, with their seeds."""
    out = []
    for index, table in enumerate(tables):
        scores = []
        for model in part.scores[table]:
            seeds = standings.seeds_of(part.scores, table=table, model=model, metric=metric.key)
            values = [value for value in seeds if np.isfinite(value)]
            if values:
                is_ours = model == standings.OURS
                scores.append(ModelScore(label=standings.label_of(model), values=values, is_ours=is_ours))
        if scores:
            panel = {"title": table, "unit": metric.label, "name": f"{part.kind}-{metric.key}-{index}"}
            out.append(figures.score_picture(scores, higher_is_better=_is_higher(metric), **panel))
    return out


def _is_higher(metric: standings.Metric) -> bool:
    return metric.direction is standings.Direction.HIGHER
