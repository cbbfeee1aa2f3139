"""Regret to the Bayes predictor (5.I): what the results say about skill, apart from legality.

Rows of the metric `regret` stand in tables named `family@N`, one seed a task. They are no real tables: `split` takes
them out of a run's scores before standings are made.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports import drawing
from reports.drawing import CLASSES, INK, Picture
from reports.standings import OURS, Scores, label_of

METRIC = "regret"
YARDSTICK = "linear"
_RESAMPLES = 2000
_LINEAR_BELOW = 0.1  # nats; above it the axis is logarithmic
_TICKS = (-1.0, -0.3, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LABELS = {
    "linear_gaussian": "linear regression",
    "gaussian_process": "Gaussian process",
    "dirichlet_table": "lookup tables",
    "small_tree": "small trees",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """Regret of one model on one family at one context size.

    Args:
        num_context: N.
        mean: over tasks, in nats per query row.
        low: lower end of the 95 % interval; NaN with one task.
        high: upper end.
        num_tasks: tasks behind it.
    """

    num_context: int
    mean: float
    low: float
    high: float
    num_tasks: int


Regrets = Mapping[str, Mapping[str, Sequence[Point]]]
"""family → model → points by ascending N."""


def split(scores: Scores) -> tuple[Scores, Regrets]:
    """Scores on synthetic and real tables, and the regrets among them."""
    ordinary, found = {}, {}
    for table, by_model in scores.items():
        family, _, size = table.rpartition("@")
        if not (size.isdecimal() and all(METRIC in by_metric for by_metric in by_model.values())):
            ordinary[table] = by_model
            continue
        for model, by_metric in by_model.items():
            values = [value for value in by_metric[METRIC]["per_seed"] if value is not None]
            if values:
                found.setdefault(family, {}).setdefault(model, []).append(_point(values, num_context=int(size)))
    ordered = {
        family: {model: sorted(points, key=lambda point: point.num_context) for model, points in by_model.items()}
        for family, by_model in found.items()
    }
    return ordinary, ordered


def _point(values: Sequence[float], *, num_context: int) -> Point:
    low, high = interval(values)
    return Point(num_context=num_context, mean=float(np.mean(values)), low=low, high=high, num_tasks=len(values))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over tasks, the clusters (Efron 1979); NaN with fewer than two.

    Regret is paired already: each value is a difference on one task, the mean over its query rows.
    """
    if len(values) < 2:
        return math.nan, math.nan
    picks = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values, float)[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def regret_pictures(regrets: Regrets, *, kind: str) -> list[Picture]:
    """One panel: ours by family over N, and the linear baseline dashed; nothing where nothing was measured."""
    ours = {family: by_model[OURS] for family, by_model in regrets.items() if OURS in by_model}
    if not ours:
        return []
    rivals = {family: regrets[family].get(YARDSTICK, []) for family in ours}
    return [_picture(ours, rivals, name=f"{kind}-regret")]


@drawing.styled
def _picture(ours: Mapping[str, Sequence[Point]], rivals: Mapping[str, Sequence[Point]], *, name: str) -> Picture:
    figure, axes = drawing.canvas(width=5.4, height=3.2)
    axes.axhline(0.0, color=INK, linewidth=1.0)
    axes.text(1.01, 0.0, "Bayes", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    sizes = sorted({point.num_context for points in ours.values() for point in points})
    for index, (family, points) in enumerate(ours.items()):
        colour = CLASSES[index % len(CLASSES)]
        x, mean = [point.num_context for point in points], np.array([point.mean for point in points])
        ends = np.array([(point.low, point.high) for point in points]).T
        reach = np.nan_to_num(np.abs(ends - mean))
        style = {"color": colour, "marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 0.9}
        axes.errorbar(x, mean, yerr=reach, label=_LABELS.get(family, family), **style)
        rival = rivals[family]
        axes.plot([p.num_context for p in rival], [p.mean for p in rival], "--", color=colour, linewidth=1.0, alpha=0.7)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
    low, high = _limits(ours, rivals)
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in _TICKS if low <= tick <= high], [f"{t:g}" for t in _TICKS if low <= t <= high])
    axes.minorticks_off()
    axes.legend()
    drawing.label(axes, title="Regret to the Bayes predictor", x="context rows N", y="nats per query row")
    tasks = max(point.num_tasks for points in ours.values() for point in points)
    caption = (
        f"Mean over {tasks} tasks a family; bars: 95 % bootstrap intervals over tasks. Axis: logarithmic above 0.1."
    )
    if any(rivals.values()):
        caption += f" Dashed, in the family's colour: {label_of(YARDSTICK)} baseline."
    alt = "; ".join(_told(_LABELS.get(family, family), points) for family, points in ours.items())
    return drawing.picture(figure, name=name, caption=caption, alt=f"Regret of {label_of(OURS)} in nats: {alt}.")


def _limits(ours: Mapping[str, Sequence[Point]], rivals: Mapping[str, Sequence[Point]]) -> tuple[float, float]:
    """Of the axis: all intervals of ours and all means, and a little room."""
    points = [point for part in (*ours.values(), *rivals.values()) for point in part]
    own = [value for part in ours.values() for point in part for value in (point.low, point.high)]
    values = [value for value in (*own, *(point.mean for point in points)) if math.isfinite(value)]
    return min([0.0, *values]) - 0.15 * _LINEAR_BELOW, max([_LINEAR_BELOW, *values]) * 1.2


def _told(label: str, points: Sequence[Point]) -> str:
    each = (f"{p.mean:.3f} ({p.low:.3f} to {p.high:.3f}) at {p.num_context}" for p in points)
    return f"{label} {', '.join(each)} rows"


def sentences(regrets: Regrets, *, config: Any) -> list[str]:
    """What stands under the figure.

    Args:
        regrets: what is drawn; none gives no sentence.
        config: config.json, which names the families that the training prior mixed; None if it is not there.
    """
    if not regrets:
        return []
    return [
        "Passing audits prove legality only: that no query label reached a prediction. This shows skill, on families "
        "whose exact posterior is known: how many nats per query row the model pays above the Bayes predictor.",
        "Regret is an upper bound on what is missing on these tasks. It is not a conclusion about the algorithm that "
        "the network computes.",
        _membership(regrets, config=config),
    ]


def _membership(regrets: Regrets, *, config: Any) -> str:
    prior = training_prior(config) or {}
    weights, only = prior.get("weights", {}), prior.get("only")
    if only:
        weights = {name: weight for name, weight in weights.items() if name in only}
    if not weights:
        return "Whether these families were in the training prior is not recorded."
    parts = []
    for is_in, words in ((True, "in the training prior"), (False, "not in the training prior")):
        names = [_LABELS.get(name, name) for name in regrets if (weights.get(name, 0) > 0) is is_in]
        if names:
            parts.append(f"{' and '.join(names)}: {words}")
    rows = (prior.get("min_rows"), prior.get("max_rows"))
    sizes = f" Its tables had {rows[0]} to {rows[1]} rows, context and query together." if all(rows) else ""
    return f"{'; '.join(parts)}.{sizes}"


def training_prior(config: Any) -> Mapping[str, Any] | None:
    """The prior's part of config.json: the first object with the weights of its families; None if there is none."""
    if isinstance(config, Mapping):
        if isinstance(config.get("weights"), Mapping):
            return config
        nested = list(config.values())
    else:
        nested = config if isinstance(config, list) else []
    return next((found for node in nested if (found := training_prior(node)) is not None), None)
