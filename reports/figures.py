"""Figures of a run: how it was trained, how it scored, and what it cost. Drawn from files alone."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes

from reports import drawing
from reports.drawing import CLASSES, INK, OTHERS, OURS, SECOND, Picture

ALL = "all"
_SMOOTHING_POINTS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric over the steps.

    Args:
        steps: ascending.
        values: one for each step.
    """

    steps: Sequence[int]
    values: Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelScore:
    """A model's score on one table: one finite value per seed."""

    label: str
    values: Sequence[float]
    is_ours: bool


@drawing.styled
def record_curve(curve: Curve, *, name: str, title: str, unit: str, baseline: float | None = None) -> Picture:
    """What the training loop recorded, such as its loss: every record faint, their running mean on top.

    Args:
        curve: the records.
        name: of the picture.
        title: of the panel.
        unit: of the values.
        baseline: where the value axis starts; None lets it fit the values.
    """
    figure, axes = drawing.canvas()
    steps, values = np.asarray(curve.steps), np.asarray(curve.values, float)
    window = max(1, min(_SMOOTHING_POINTS, len(values) // 8))
    axes.plot(steps, values, color=SECOND, alpha=0.3 if window > 1 else 1, linewidth=0.9)
    if window > 1:
        smooth = np.convolve(values, np.ones(window) / window, mode="valid")
        first = (window - 1) // 2
        axes.plot(steps[first : first + len(smooth)], smooth, color=SECOND)
    if baseline is not None:
        axes.set_ylim(bottom=baseline)
    drawing.label(axes, title=title, x="optimizer step", y=unit)
    caption = f"{title}: each record" + (f", and the mean of {window} records." if window > 1 else ".")
    alt = f"{title} goes from {values[0]:.3f} at step {steps[0]} to {values[-1]:.3f} at step {steps[-1]}."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


@drawing.styled
def validation_curves(
    curves: Mapping[str, Curve],
    *,
    name: str,
    title: str,
    unit: str,
    tasks: str = "held-out synthetic tasks",
    chooses: bool = True,
) -> Picture:
    """Figures of one metric, a line for each group of tasks; where it chooses, the lowest point of each is marked."""
    figure, axes = drawing.canvas()
    ends = []
    for index, (label, curve) in enumerate(curves.items()):
        colour, width = (INK, 2.2) if label == ALL else (CLASSES[index % len(CLASSES)], 1.4)
        dashes = ("-", "--", ":")[index // len(CLASSES) % 3]
        line = {"color": colour, "linewidth": width, "label": label}
        axes.plot(curve.steps, curve.values, dashes, marker="o", markersize=3, **line)
        low = int(np.nanargmin(curve.values)) if not np.all(np.isnan(curve.values)) else 0
        ends.append(f"{label} {curve.values[-1]:.3f}")
        if chooses:
            axes.plot(curve.steps[low], curve.values[low], "o", color=colour, markersize=6, fillstyle="none")
            ends[-1] += f" (lowest {curve.values[low]:.3f} at step {curve.steps[low]})"
    if len(curves) > 1:
        axes.legend()
    drawing.label(axes, title=title, x="optimizer step", y=unit)
    rule = "the ring marks the lowest point" if chooses else "watched, and chooses nothing"
    caption = f"{title} on {tasks}; {rule}."
    return drawing.picture(figure, name=name, caption=caption, alt=f"{title} at the last step: {'; '.join(ends)}.")


@drawing.styled
def score_picture(scores: Sequence[ModelScore], *, name: str, title: str, unit: str, higher_is_better: bool) -> Picture:
    """Models on one table, best on top: small dots are seeds, the large one their mean, its value written beside it."""
    ranked = sorted(scores, key=lambda score: float(np.mean(score.values)), reverse=higher_is_better)
    figure, axes = drawing.canvas(width=3.1, height=0.75 + 0.225 * len(ranked))
    low, high = _window([float(np.mean(score.values)) for score in ranked], [v for s in ranked for v in s.values])
    for row, score in enumerate(ranked):
        _draw_score(axes, score, row=row, low=low, high=high)
    axes.set_yticks(range(len(ranked)), [score.label for score in ranked])
    for tick, score in zip(axes.get_yticklabels(), ranked, strict=True):
        tick.set_fontweight("bold" if score.is_ours else "normal")
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.set_xlim(low, high)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
    better = "higher" if higher_is_better else "lower"
    drawing.label(axes, title=title, x=f"{unit} ({better} is better)", y="")
    alt = f"{title}, {unit}, best first: " + ", ".join(f"{s.label} {np.mean(s.values):.3f}" for s in ranked) + "."
    seeds = max((len(score.values) for score in ranked), default=0)
    caption = f"Small dots: the {seeds} seeds." if seeds > 1 else "One seed."
    if any(not low <= float(np.mean(score.values)) <= high for score in ranked):
        caption += " Arrow: beyond the axis."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


@drawing.styled
def seconds_picture(seconds: Mapping[str, float], *, name: str) -> Picture:
    """Where the time went: wall-clock seconds by stage, in the order of the run."""
    figure, axes = drawing.canvas(width=5.4, height=0.8 + 0.27 * len(seconds))
    rows = np.arange(len(seconds))
    axes.barh(rows, list(seconds.values()), color=SECOND, height=0.7)
    total = sum(seconds.values())
    for row, value in enumerate(seconds.values()):
        drawing.value_label(axes, f"{value:.1f} s · {value / max(total, 1e-9):.0%}", x=value, y=row)
    axes.set_yticks(rows, list(seconds))
    axes.invert_yaxis()
    axes.set_xlim(0, max(max(seconds.values()), 1e-3) * 1.25)
    axes.grid(visible=False, axis="y")
    drawing.label(axes, title=f"Time by stage ({total:.0f} s in all)", x="wall-clock seconds", y="")
    alt = "Seconds: " + ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items()) + "."
    return drawing.picture(figure, name=name, caption="From events.jsonl and summary.json.", alt=alt)


@drawing.styled
def growth_picture(context: Curve, query: Curve, *, name: str) -> Picture:
    """Measured cost of a prediction: seconds over context rows and over query rows, with the slopes found (seed 1.6).

    Args:
        context: rows and seconds at a fixed number of query rows; attention makes this quadratic in the end.
        query: rows and seconds at a fixed number of context rows; linear in the end.
        name: of the picture.
    """
    figure, axes = drawing.canvas(width=5.4, height=3.0)
    found = []
    for label, curve, colour, marker in (("context", context, OURS, "o"), ("query", query, SECOND, "s")):
        rows, seconds = np.asarray(curve.steps, float), np.asarray(curve.values, float)
        slope = float(np.polyfit(np.log(rows[-3:]), np.log(seconds[-3:]), 1)[0]) if len(rows) > 2 else math.nan
        found.append(f"{label} rows^{slope:.2f}")
        axes.loglog(rows, seconds, marker=marker, markersize=4, color=colour, label=f"{label} rows, slope {slope:.2f}")
    axes.legend()
    drawing.label(axes, title="Cost of one prediction", x="rows", y="seconds")
    alt = f"Time grows like {' and '.join(found)} over the last three sizes."
    return drawing.picture(figure, name=name, caption="Slopes are fitted to the last three sizes.", alt=alt)


def _draw_score(axes: Axes, score: ModelScore, *, row: int, low: float, high: float) -> None:
    colour, weight, size = (OURS, "bold", 6.5) if score.is_ours else (OTHERS, "normal", 5.5)
    mean = float(np.mean(score.values))
    inside = [value for value in score.values if low <= value <= high]
    axes.plot(inside, [row] * len(inside), "o", color=colour, markersize=3, alpha=0.45, markeredgewidth=0)
    marker = "o" if low <= mean <= high else ("<" if mean < low else ">")
    axes.plot(min(max(mean, low), high), row, marker, color=colour, markersize=size, clip_on=False)
    beside = axes.get_yaxis_transform()
    axes.text(1.06, row, f"{mean:.3f}", transform=beside, va="center", fontsize=8, fontweight=weight)


def _window(means: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Axis limits around the best half of the models, so that one hopeless baseline does not hide the rest.

    Args:
        means: best first.
        values: all seeds of all models.
    """
    distances = [abs(mean - means[0]) for mean in means]
    reach = 2.5 * sorted(distances)[len(distances) // 2] or max(distances) or abs(means[0]) * 0.1 or 0.1
    near = [value for value in values if abs(value - means[0]) <= reach]
    low, high = min([*near, means[0]]), max([*near, means[0]])
    margin = 0.08 * (high - low) or reach
    return (low - margin, high + margin) if math.isfinite(low + high) else (0.0, 1.0)
