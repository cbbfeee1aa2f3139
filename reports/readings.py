"""Figures of one episode: who may read whom, who was read, and what was predicted. Drawn from views.json alone.

Shapes: N context rows, M query rows, T = N + M, K classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps, colors, ticker
from matplotlib.axes import Axes

from reports import drawing
from reports.drawing import CLASSES, INK, OURS, SECOND, Picture

_CELL_TEXT_ROWS = 14
_MAX_BARS = 400


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


@drawing.styled
def influence_picture(
    sizes: np.ndarray, mask: np.ndarray, *, num_context: int, name: str, num_redrawn: int = 0
) -> Picture:
    """How far each row that leaves the ICL stage moves with each that enters it [T, T]; exact zeros stay empty.

    `num_redrawn` weight tensors were all zero, as in an untrained network, and drawn anew before the measurement.
    """
    values, visible = np.asarray(sizes, float), np.asarray(mask) != 0
    figure, axes = drawing.canvas(width=3.7, height=4.35)
    positive = values[values > 0]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (1.0, 1.0)
    scale = colormaps["viridis"].copy()
    _heat_map(axes, np.ma.masked_equal(values, 0.0), num_context=num_context, total=len(values), scale=scale)
    axes.images[0].set_norm(colors.LogNorm(vmin=low, vmax=high if high > low else 2 * low))
    bar = figure.colorbar(axes.images[0], ax=axes, location="bottom", shrink=0.7, pad=0.02, aspect=30)
    bar.set_label("size of the Jacobian's block, log scale")
    bar.minorticks_off()
    bar.formatter = ticker.FuncFormatter(lambda size, _: f"{size:g}")
    bar.outline.set_visible(False)
    axes.set_title("Influence, measured")
    own = np.eye(len(values), dtype=bool)
    forbidden, allowed = values[~visible & ~own], values[visible | own]
    leak, dead = (float(forbidden.max()) if forbidden.size else 0.0), int((allowed == 0).sum())
    verdict = "exactly zero" if leak == 0 else f"up to {leak:.3g}, which is a leak"
    caption = (
        f"Empty cells are exactly 0. The {forbidden.size} forbidden blocks: {verdict}. The {allowed.size} allowed "
    )
    caption += f"ones (visible keys, and each row itself): from {allowed.min():.3g} to {allowed.max():.3g}."
    caption += f" Allowed, yet 0: {dead}." if dead else ""
    caption += f" {num_redrawn} weight tensors were all zero and were drawn anew first." if num_redrawn else ""
    alt = f"Jacobian blocks of {len(values)} rows: forbidden {verdict}; allowed {allowed.min():.3g} to {high:.3g}."
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
    position, num_drawn, sums, centres = 0, 0, [], []
    classes = np.unique(labels)
    for index, label in enumerate(classes):
        group = np.sort(weights[labels == label])[::-1]
        shown = group[: max(1, _MAX_BARS // len(classes))]
        places = position + np.arange(len(shown))
        axes.bar(places, shown, width=1.0 if len(weights) > 60 else 0.85, color=CLASSES[index % len(CLASSES)])
        sums.append(float(group.sum()))
        centres.append(float(places.mean()))
        num_drawn += len(shown)
        position += len(shown) + max(2, len(weights) // 30)
    axes.set_xticks(centres, [f"class {label}\nΣ {total:.3f}" for label, total in zip(classes, sums, strict=True)])
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    drawing.label(axes, title="Read weights of one query", x="context rows by label, heaviest first", y="weight")
    caption = f"A bar is a context row; Σ is what a class receives. The query's class, unseen by the model: {answer}."
    hidden = len(weights) - num_drawn
    if hidden:
        caption += f" The {hidden} lightest rows are not drawn."
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
        drawing.value_label(axes, f"{value:.3f}{mark}", x=value, y=index)
    axes.set_yticks(np.arange(len(values)), [f"class {index}" for index in range(len(values))])
    axes.set_xlim(0, max(1.0, float(values.max())) * 1.32)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    drawing.label(axes, title="…and the probabilities it gets", x="probability", y="")
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
    drawing.label(axes, title="Predictive distribution of one task", x="feature", y="target")
    width, inside = float(np.mean(high - low)), ""
    if "curve_truth" in view:
        share = float(np.mean((truth >= low) & (truth <= high)))
        inside = f"; the truth lies inside it at {share:.0%} of the points"
    alt = f"Median with a 5–95 % band of mean width {width:.3g}{inside}."
    return drawing.picture(figure, name=name, caption=f"Mean width of the band: {width:.3g}{inside}.", alt=alt)


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
