"""Figures of a run: what was trained, what it may read, what it read, and how it scored. Drawn from files alone.

Shapes: N context rows, M query rows, T = N + M, K classes.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps, colors, ticker
from matplotlib.axes import Axes

from reports import drawing
from reports.drawing import CLASSES, INK, OTHERS, OURS, SECOND, Picture

ALL = "all"
_SMOOTHING_POINTS = 30
_CELL_TEXT_ROWS = 14
_MAX_BARS = 400


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
    _label(axes, title=title, x="optimizer step", y=unit)
    caption = f"{title}: each record" + (f", and the mean of {window} records." if window > 1 else ".")
    alt = f"{title} goes from {values[0]:.3f} at step {steps[0]} to {values[-1]:.3f} at step {steps[-1]}."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


@drawing.styled
def validation_curves(curves: Mapping[str, Curve], *, name: str, title: str, unit: str) -> Picture:
    """Validation figures of one metric, a line for each group of tasks; the lowest point of each is marked."""
    figure, axes = drawing.canvas()
    ends = []
    for index, (label, curve) in enumerate(curves.items()):
        colour, width = (INK, 2.2) if label == ALL else (CLASSES[index % len(CLASSES)], 1.4)
        dashes = ("-", "--", ":")[index // len(CLASSES) % 3]
        line = {"color": colour, "linewidth": width, "label": label}
        axes.plot(curve.steps, curve.values, dashes, marker="o", markersize=3, **line)
        low = int(np.nanargmin(curve.values)) if not np.all(np.isnan(curve.values)) else 0
        axes.plot(curve.steps[low], curve.values[low], "o", color=colour, markersize=6, fillstyle="none")
        ends.append(f"{label} {curve.values[-1]:.3f} (lowest {curve.values[low]:.3f} at step {curve.steps[low]})")
    if len(curves) > 1:
        axes.legend()
    _label(axes, title=title, x="optimizer step", y=unit)
    caption = f"{title} on held-out synthetic tasks; the ring marks the lowest point."
    return drawing.picture(figure, name=name, caption=caption, alt=f"{title} at the last step: {'; '.join(ends)}.")


@drawing.styled
def mask_picture(mask: np.ndarray, *, num_context: int, name: str) -> Picture:
    """The [T, T] mask that reaches attention, with its four blocks (seeds 5.6, 5.D): filled cells are visible keys."""
    visible = np.asarray(mask, float)
    figure, axes = drawing.canvas(width=3.7, height=3.8)
    _heat_map(axes, _tint(visible, SECOND), num_context=num_context, total=len(visible))
    if len(visible) <= _CELL_TEXT_ROWS:
        for row, column in np.ndindex(visible.shape):
            colour = "white" if visible[row, column] else INK
            axes.text(column, row, f"{visible[row, column]:.0f}", ha="center", va="center", fontsize=6.5, color=colour)
    _name_blocks(axes, visible, num_context=num_context)
    axes.set_title("Mask: who may read whom")
    blocks = ", ".join(f"{label} {share:.0%} visible" for label, share in block_shares(visible, num_context).items())
    caption = "Each row reads the keys that are filled. Drawn from the tensor that attention received."
    return drawing.picture(figure, name=name, caption=caption, alt=f"Mask of {len(visible)} rows: {blocks}.")


@drawing.styled
def weights_picture(weights: np.ndarray, mask: np.ndarray, *, num_context: int, name: str) -> Picture:
    """Attention weights [T, T], mean over heads; keys with a weight of 0 stay empty."""
    values = np.asarray(weights, float)
    figure, axes = drawing.canvas(width=3.7, height=4.35)
    top = max(float(values.max()), 1e-12)
    scale = colormaps["viridis"].copy()
    _heat_map(axes, np.ma.masked_equal(values, 0.0), num_context=num_context, total=len(values), scale=scale)
    bar = figure.colorbar(axes.images[0], ax=axes, location="bottom", shrink=0.7, pad=0.02, aspect=30)
    bar.set_label("weight")
    bar.locator = ticker.MaxNLocator(5)
    bar.outline.set_visible(False)
    axes.set_title("Attention weights")
    leak = forbidden_weight(values, np.asarray(mask))
    alt = f"Weights up to {top:.3g}; on forbidden keys at most {leak:g}."
    verdict = "0" if leak == 0 else f"{leak:g}, which is a leak"
    caption = f"Mean over heads, first block; empty cells are 0. Largest weight on a forbidden key: {verdict}."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


def forbidden_weight(weights: np.ndarray, mask: np.ndarray) -> float:
    """The largest weight [T, T] at a key that the mask [T, T] forbids; 0 where all are visible."""
    hidden = np.asarray(weights, float)[np.asarray(mask) == 0]
    return float(np.abs(hidden).max()) if hidden.size else 0.0


def block_shares(mask: np.ndarray, num_context: int) -> dict[str, float]:
    """Share of visible keys in each block of mask [T, T], reader → read."""
    cut = num_context
    above, below = mask[:cut], mask[cut:]
    blocks = {"C→C": above[:, :cut], "C→Q": above[:, cut:], "Q→C": below[:, :cut], "Q→Q": below[:, cut:]}
    return {label: float(np.mean(block)) if block.size else 0.0 for label, block in blocks.items()}


@drawing.styled
def read_weights_picture(weights: np.ndarray, labels: np.ndarray, *, answer: int, name: str) -> Picture:
    """What one query reads: each context row's weight, grouped by its label; a group's sum is that class's mass."""
    weights, labels = np.asarray(weights, float), np.asarray(labels, int)
    figure, axes = drawing.canvas(width=3.7, height=2.8)
    position, sums, centres = 0, [], []
    classes = np.unique(labels)
    for index, label in enumerate(classes):
        group = np.sort(weights[labels == label])[::-1]
        shown = group[: max(1, _MAX_BARS // len(classes))]
        places = position + np.arange(len(shown))
        axes.bar(places, shown, width=1.0 if len(weights) > 60 else 0.85, color=CLASSES[index % len(CLASSES)])
        sums.append(float(group.sum()))
        centres.append(float(places.mean()))
        position += len(shown) + max(2, len(weights) // 30)
    axes.set_xticks(centres, [f"class {label}\nΣ {total:.3f}" for label, total in zip(classes, sums, strict=True)])
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    _label(axes, title="Read weights of one query", x="context rows by label, heaviest first", y="weight")
    caption = f"A bar is a context row; Σ is what a class receives. The query's class, unseen by the model: {answer}."
    masses = ", ".join(f"class {label} {total:.3f}" for label, total in zip(classes, sums, strict=True))
    return drawing.picture(figure, name=name, caption=caption, alt=f"Mass read from {masses}; the answer is {answer}.")


@drawing.styled
def probabilities_picture(probabilities: np.ndarray, *, answer: int, name: str) -> Picture:
    """The class probabilities [K] of the same query; the true class carries a mark."""
    values = np.asarray(probabilities, float)
    figure, axes = drawing.canvas(width=3.7, height=2.8)
    colours = [CLASSES[index % len(CLASSES)] for index in range(len(values))]
    axes.barh(np.arange(len(values)), values, color=colours, height=0.7)
    for index, value in enumerate(values):
        mark = "  ← answer" if index == answer else ""
        _value_label(axes, f"{value:.3f}{mark}", x=value, y=index)
    axes.set_yticks(np.arange(len(values)), [f"class {index}" for index in range(len(values))])
    axes.set_xlim(0, max(1.0, float(values.max())) * 1.32)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    _label(axes, title="…and the probabilities it gets", x="probability", y="")
    alt = "Probabilities: " + ", ".join(f"class {index} {value:.3f}" for index, value in enumerate(values)) + "."
    return drawing.picture(figure, name=name, caption=f"They sum to {values.sum():.3f} over classes.", alt=alt)


@drawing.styled
def band_picture(
    view: Mapping[str, Sequence[float]], quantiles: Mapping[str, Sequence[float]], *, name: str
) -> Picture:
    """A predictive distribution along one feature: context points, median, 5–95 % band, and the truth."""
    figure, axes = drawing.canvas(width=5.4, height=3.0)
    x = np.asarray(view["curve_x"], float)
    order = np.argsort(x)
    low, middle, high = (np.asarray(quantiles[level], float)[order] for level in ("0.05", "0.5", "0.95"))
    axes.fill_between(x[order], low, high, color=OURS, alpha=0.2, linewidth=0, label="5–95 %")
    axes.plot(x[order], middle, color=OURS, label="median")
    if "curve_truth" in view:
        truth = np.asarray(view["curve_truth"], float)[order]
        axes.plot(x[order], truth, "--", color=INK, linewidth=1, label="truth")
    axes.plot(view["context_x"], view["context_labels"], "o", color=SECOND, markersize=3, alpha=0.8, label="context")
    axes.legend(loc="best", ncols=2)
    _label(axes, title="Predictive distribution of one task", x="feature", y="target")
    width, inside = float(np.mean(high - low)), ""
    if "curve_truth" in view:
        share = float(np.mean((truth >= low) & (truth <= high)))
        inside = f"; the truth lies inside it at {share:.0%} of the points"
    alt = f"Median with a 5–95 % band of mean width {width:.3g}{inside}."
    return drawing.picture(figure, name=name, caption=f"Mean width of the band: {width:.3g}{inside}.", alt=alt)


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
    _label(axes, title=title, x=f"{unit} ({better} is better)", y="")
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
        _value_label(axes, f"{value:.1f} s · {value / max(total, 1e-9):.0%}", x=value, y=row)
    axes.set_yticks(rows, list(seconds))
    axes.invert_yaxis()
    axes.set_xlim(0, max(max(seconds.values()), 1e-3) * 1.25)
    axes.grid(visible=False, axis="y")
    _label(axes, title=f"Time by stage ({total:.0f} s in all)", x="wall-clock seconds", y="")
    alt = "Seconds: " + ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items()) + "."
    return drawing.picture(figure, name=name, caption="From events.jsonl and summary.json.", alt=alt)


def _draw_score(axes: Axes, score: ModelScore, *, row: int, low: float, high: float) -> None:
    colour, weight, size = (OURS, "bold", 6.5) if score.is_ours else (OTHERS, "normal", 5.5)
    mean = float(np.mean(score.values))
    inside = [value for value in score.values if low <= value <= high]
    axes.plot(inside, [row] * len(inside), "o", color=colour, markersize=3, alpha=0.45, markeredgewidth=0)
    marker = "o" if low <= mean <= high else ("<" if mean < low else ">")
    axes.plot(min(max(mean, low), high), row, marker, color=colour, markersize=size, clip_on=False)
    beside = axes.get_yaxis_transform()
    axes.text(1.06, row, f"{mean:.3f}", transform=beside, va="center", fontsize=8, fontweight=weight)


def _value_label(axes: Axes, text: str, *, x: float, y: float) -> None:
    """Writes a value right of the end of its bar."""
    axes.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)


def _label(axes: Axes, *, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _tint(visible: np.ndarray, colour: str) -> np.ndarray:
    """[T, T, 4]: the colour where visible, nothing elsewhere."""
    rgba = np.zeros((*visible.shape, 4))
    rgba[..., :3] = colors.to_rgb(colour)
    rgba[..., 3] = 0.9 * visible
    return rgba


def _heat_map(
    axes: Axes, cells: np.ndarray, *, num_context: int, total: int, scale: colors.Colormap | None = None
) -> None:
    axes.imshow(cells, interpolation="nearest", cmap=scale, vmin=0.0 if scale else None)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    for draw in (axes.axhline, axes.axvline):
        draw(num_context - 0.5, color=INK, linewidth=1.1)
    middle = [(num_context - 1) / 2, (num_context + total - 1) / 2]
    names = [f"context ({num_context})", f"query ({total - num_context})"]
    axes.set_xticks(middle, names)
    axes.set_yticks(middle, names, rotation=90, va="center")
    axes.tick_params(length=0)
    axes.set_xlabel("is read")
    axes.set_ylabel("reader")


def _name_blocks(axes: Axes, visible: np.ndarray, *, num_context: int) -> None:
    total, cut = len(visible), num_context
    has_numbers = total <= _CELL_TEXT_ROWS  # then labels go to the corners of their blocks
    place = {"C": -0.42, "Q": cut - 0.42} if has_numbers else {"C": (cut - 1) / 2, "Q": (cut + total - 1) / 2}
    align = {"ha": "left", "va": "top"} if has_numbers else {"ha": "center", "va": "center"}
    for label, share in block_shares(visible, cut).items():
        reader, read = label.split("→")
        note = f"{label} {share:.0%}" if 0 < share < 1 else label
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        axes.text(place[read], place[reader], note, fontsize=7.5, color="#111111", bbox=box, **align)


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
