"""Figures that compare families of synthetic tasks: how many there are, and how their properties are distributed."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import ndimage

from reports import drawing
from reports.drawing import INK, OTHERS, Picture
from reports.task_figures import TEN_COLOURS, WIDTH

_FAMILY_COLOURS = (*TEN_COLOURS, "#999933", "#aa4499")
_COLUMN_COLOURS = {"numbers": "#0072b2", "ordinals": "#009e73", "categories": "#e69f00"}
_BINS = 48
_FEW = 10  # fewer tasks are drawn one by one


@dataclasses.dataclass(frozen=True, kw_only=True)
class PropertyPanel:
    """A property of tasks, as families have it; whole numbers of a small range are drawn as bars.

    Args:
        title: what it is.
        unit: of its values.
        values: family → [n] values; families without any have an empty row.
        is_log: whether its axis is logarithmic.
        has_zeros: draw only values above 0, and say beside each row how common they are.
    """

    title: str
    unit: str
    values: Mapping[str, np.ndarray]
    is_log: bool = False
    has_zeros: bool = False


def family_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each family, the same wherever the same families are shown in this order."""
    return {name: _FAMILY_COLOURS[index % len(_FAMILY_COLOURS)] for index, name in enumerate(names)}


@drawing.styled
def shares_picture(
    shares: Mapping[str, float], *, rejected: Mapping[str, float | None], columns: Mapping[str, Mapping[str, float]]
) -> Picture:
    """Three bars for each family: its share of the tasks, what the filter rejected, its kinds of columns.

    Args:
        shares: family → share of all tasks.
        rejected: family → share of what was drawn; None where it is unknown.
        columns: family → kind of column → share of its columns.
    """
    names, colours = list(shares), family_colours(list(shares))
    has_filter = any(share is not None for share in rejected.values())
    figure = Figure(figsize=(WIDTH, 0.31 * len(names) + 0.95), layout="constrained")
    panels = list(figure.subplots(1, 2 + has_filter, sharey=True))
    _bars(panels[0], [shares[name] for name in names], colours=[colours[name] for name in names])
    drawing.label(panels[0], title="Tasks of each family", x="share of the set", y="")
    if has_filter:
        _bars(panels[1], [rejected[name] for name in names], colours=[OTHERS] * len(names))
        drawing.label(panels[1], title="Rejected: no signal found", x="share of the tasks drawn", y="")
    starts = np.zeros(len(names))
    for kind, colour in _COLUMN_COLOURS.items():
        widths = np.nan_to_num([columns[name].get(kind, 0.0) for name in names])
        panels[-1].barh(np.arange(len(names)), widths, left=starts, color=colour, height=0.66, label=kind)
        starts += widths
    panels[-1].set_xlim(0, 1)
    panels[-1].xaxis.set_major_formatter(_tick)
    panels[-1].grid(visible=False, axis="y")
    drawing.label(panels[-1], title="Columns of their tasks", x="share of the columns", y="")
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower right", ncols=3, handlelength=1.0)
    panels[0].set_yticks(np.arange(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    told = ", ".join(f"{name} {percent(shares[name])}" for name in names)
    return drawing.picture(figure, name="shares", caption="", alt=f"Shares of tasks: {told}.")


def percent(share: float) -> str:
    """A share in words, with two significant digits: 0.78 %, 8.0 %, 41 %."""
    value = 100 * share
    if not value:
        return "0 %"
    digits = max(0, 1 - math.floor(math.log10(abs(float(f"{value:.1e}")))))
    return f"{value:.{digits}f} %"


def _tick(value: float, place: int) -> str:
    return f"{100 * value:g} %"


def _bars(axes: Axes, values: Sequence[float | None], *, colours: Sequence[str]) -> None:
    known = np.array([value if value is not None else 0.0 for value in values])
    axes.barh(np.arange(len(values)), known, color=colours, height=0.66)
    for place, value in enumerate(values):
        drawing.value_label(axes, "–" if value is None else percent(value), x=known[place], y=place)
    axes.set_xlim(0, max(float(known.max(initial=0.0)) * 1.25, 0.02))
    axes.xaxis.set_major_formatter(_tick)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
    axes.grid(visible=False, axis="y")


@drawing.styled
def properties_picture(panels: Sequence[PropertyPanel], *, families: Sequence[str], name: str) -> Picture:
    """Small multiples: a panel for each property, in it a ridge (or a few dots) for each family, all equally high."""
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(WIDTH, down * (0.33 * len(families) + 0.75)), layout="constrained")
    grid = figure.subplots(down, across, sharey=True, squeeze=False)
    colours, told = family_colours(families), []
    for axes, panel in zip(grid.flat, panels, strict=False):
        medians = _draw_ridges(axes, panel, families=families, colours=colours)
        told.append(f"{panel.title}: " + ", ".join(f"{name} {value:.3g}" for name, value in medians.items()))
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    for row in grid:
        row[0].set_yticks(range(len(families)), families)
    grid[0, 0].set_ylim(len(families) - 0.35, -1.0)
    some = " and ".join(panel.title for panel in panels if panel.has_zeros)
    caption = (
        "Each ridge is one family's distribution over its tasks, scaled to the same height; the line under it spans "
        f"5–95 % of the tasks and the dark dot is their median. Fewer than {_FEW} tasks are drawn as a dot each. "
        "– means not recorded for the family, or meaningless there."
    )
    if some:
        caption += f" {some}: ridge, line and dot are of the tasks that have any; the percentage is how many have."
    alt = f"Medians{f' ({some}: of the tasks that have any)' if some else ''}. {'; '.join(told)}."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


def _draw_ridges(
    axes: Axes, panel: PropertyPanel, *, families: Sequence[str], colours: Mapping[str, str]
) -> dict[str, float]:
    """One panel; returns the median of every family that has the property: that of the tasks it draws."""
    known = {name: np.asarray(panel.values[name], float) for name in families if name in panel.values}
    known = {name: values[np.isfinite(values)] for name, values in known.items()}
    shown = {name: values[values > 0] if panel.has_zeros or panel.is_log else values for name, values in known.items()}
    edges = _edges(shown, is_log=panel.is_log)
    medians = {}
    for place, name in enumerate(families):
        values = shown.get(name, np.zeros(0))
        if not len(values):
            axes.annotate("–", (0.02, place), xycoords=("axes fraction", "data"), va="center", alpha=0.6)
            continue
        draw = _draw_dots if len(values) < _FEW else _draw_ridge
        draw(axes, values, edges=edges, place=place, colour=colours[name])
        medians[name] = _draw_spread(axes, values, place=place, colour=colours[name])
        if panel.has_zeros:
            text = percent(len(values) / len(known[name]))
            axes.annotate(text, (1.0, place - 0.2), xycoords=("axes fraction", "data"), ha="right", fontsize=7.5)
    axes.set_xscale("log" if panel.is_log else "linear")
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    drawing.label(axes, title=panel.title, x=panel.unit, y="")
    if panel.is_log:
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    return medians


def _edges(shown: Mapping[str, np.ndarray], *, is_log: bool) -> np.ndarray:
    """Borders of the bins that all families share: what is beyond 0.5–99.5 % of all is not drawn, but for dots."""
    values = np.concatenate([*shown.values(), np.zeros(0)])
    if not len(values):
        return np.linspace(1.0, 2.0, _BINS + 1)
    bulk = np.quantile(values, (0.005, 0.995), method="inverted_cdf")
    dots = np.concatenate([bulk, *(own for own in shown.values() if len(own) < _FEW)])
    low, high = dots.min(), dots.max()
    if is_log:
        low = max(float(low), 1e-6)
        return np.geomspace(low / 1.15, max(high, low * 1.5) * 1.15, _BINS // 2 + 1)
    if high - low < _BINS / 2 and np.all(values == np.round(values)) and high > 1:
        return np.arange(low - 0.5, high + 1.0)
    room = 0.04 * max(high - low, 0.05)
    return np.linspace(low - room, high + room, _BINS + 1)


def _draw_ridge(axes: Axes, values: np.ndarray, *, edges: np.ndarray, place: int, colour: str) -> None:
    heights = np.histogram(values, bins=edges)[0].astype(float)
    if edges[1] - edges[0] == 1.0:
        heights = 0.86 * heights / max(float(heights.max()), 1.0)
        axes.stairs(place - heights, edges, baseline=place, fill=True, color=colour, alpha=0.55, linewidth=0)
    else:
        heights = ndimage.gaussian_filter1d(heights, 1.2, mode="constant")
        middles, top = (edges[1:] + edges[:-1]) / 2, place - 0.86 * heights / max(float(heights.max()), 1e-9)
        axes.fill_between(middles, place, top, color=colour, alpha=0.55, linewidth=0)
        axes.plot(middles, top, color=colour, linewidth=1.0)


def _draw_dots(axes: Axes, values: np.ndarray, *, edges: np.ndarray, place: int, colour: str) -> None:
    """A dot for each task, one above the other where a bin has several."""
    ordered = np.sort(values)
    bins = np.searchsorted(edges, ordered, side="right")
    height = np.arange(len(bins)) - np.searchsorted(bins, bins)
    axes.plot(ordered, place - 0.14 - 0.08 * height, "o", color=colour, markersize=2.6, alpha=0.8)


def _draw_spread(axes: Axes, values: np.ndarray, *, place: int, colour: str) -> float:
    """The line and the dot below a row; returns the median."""
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95), method="inverted_cdf")
    axes.plot([low, high], [place + 0.04] * 2, color=colour, linewidth=1.6)
    axes.plot(median, place + 0.04, "o", color=INK, markersize=3.2, clip_on=False)
    return float(median)
