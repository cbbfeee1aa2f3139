"""Figures of single tasks: a plane of two features, and a whole table with its columns against the target.

Shapes: R rows, C features, K classes.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, colors, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from scipy import spatial, stats

from reports import drawing
from reports.drawing import CLASSES, OTHERS, OURS, Picture

WIDTH = 9.6  # inches of a figure as wide as the page
TEN_COLOURS = (*CLASSES[:4], "#8c6bb1", OURS, "#a6761d", OTHERS, "#117733", "#56b4e9")
_TARGETS = "viridis"
_PIXELS = 140
_NEIGHBOURS = 5
_PALEST = 0.3  # opacity of a spot whose nearest rows all disagree
_SHADES = 40  # of each primary colour: fewer make smaller images
_FEW_VALUES = 24
_REACH = 0.035  # of the plane's width: a spot further from every row is empty
_BINS = 14
_MAX_LEVELS = 12
_REST = "…"  # names the bar of all rarer levels
_MAX_LABELS = 6
_LETTER = 0.047  # width of a letter below a column, as a share of the column's
_SHOWN_COLUMNS = 4
_PLANES_ACROSS = 4
_PLANE_DPI = 96
_DPI = 170  # of what is drawn as pixels
_CLASS_KEY = (
    f"Colour: the class that most of the {_NEIGHBOURS} nearest rows have, paler where they disagree; where both "
    "features have few values, each cell is split by its rows' shares of the classes."
)
_TARGET_KEY = (
    f"Colour: the target, from low (dark blue) to high (yellow), mean of the {_NEIGHBOURS} nearest rows (where both "
    "features have few values, of all rows of a cell)."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A task to be drawn.

    Args:
        x: [R, C]; NaN is missing; ordinals and categories are codes.
        y: [R] class ids or numbers.
        kinds: C words: number, ordinal or category.
        is_class: whether y holds class ids.
        title: one line about it.
    """

    x: np.ndarray
    y: np.ndarray
    kinds: Sequence[str]
    is_class: bool
    title: str


@drawing.styled
def planes_picture(planes: Sequence[Table], *, name: str, lead: str) -> Picture:
    """Tasks of two features: every spot in the colour of the nearest rows' classes or targets."""
    across, down = _PLANES_ACROSS, -(-len(planes) // _PLANES_ACROSS)
    figure = Figure(figsize=(WIDTH, down * (WIDTH / across + 0.1) + 0.15), layout="constrained", dpi=_PLANE_DPI)
    panels = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat[len(planes) :]:
        axes.set_axis_off()
    for axes, plane in zip(panels.flat, planes, strict=False):
        image, extent = plane_image(plane)
        axes.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        for axis, kind in zip((axes.xaxis, axes.yaxis), plane.kinds, strict=True):
            axis.set_major_locator(ticker.MaxNLocator(4, integer=kind != "number"))
        axes.set_title(plane.title)
    for axes in panels[:, 0]:
        axes.set_ylabel("second feature")
    for axes in panels.flat[max(0, len(planes) - across) : len(planes)]:
        axes.set_xlabel("first feature")
    caption = f"{lead} {_CLASS_KEY if planes[0].is_class else _TARGET_KEY} Spots without a row nearby are left empty."
    alt = f"{lead} {len(planes)} planes: {'; '.join(plane.title for plane in planes)}."
    return _lean(drawing.picture(figure, name=name, caption=caption, alt=alt))


def plane_image(plane: Table) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Colours the plane of two features: classes in their own colours, never in a mixture; targets by their mean.

    Returns:
        [P, P, 4] RGBA, transparent where no row is near, and the plane's borders (left, right, bottom, top).
    """
    sides = [_range(plane.x[:, side]) for side in range(2)]
    scaled = np.stack([(plane.x[:, i] - low) / (high - low) for i, (low, high) in enumerate(sides)], axis=1)
    spots = (np.arange(_PIXELS) + 0.5) / _PIXELS
    pixels = np.stack(np.meshgrid(spots, spots), axis=-1).reshape(-1, 2)
    reach = np.array([_reach(values) for values in scaled.T])
    is_lattice = min(reach) > _REACH
    tree = spatial.KDTree(scaled / reach)
    count = 1 if is_lattice else min(_NEIGHBOURS, len(scaled))
    distance, nearest = tree.query(pixels / reach, k=[*range(1, count + 1)], p=np.inf if max(reach) > _REACH else 2)
    if is_lattice:
        image = _cells(plane, scaled=scaled, nearest=nearest[:, 0], across=pixels[:, 0])
        image[_seams(scaled[nearest[:, 0]]), 3] = 0
    else:
        image = _class_spots(plane, nearest) if plane.is_class else _shaded(row_colours(plane)[nearest].mean(axis=1))
    image[distance[:, 0] >= 1, 3] = 0
    borders = tuple(border for side in sides for border in side)
    return image.reshape(_PIXELS, _PIXELS, 4), borders


def _seams(places: np.ndarray) -> np.ndarray:
    """[spots] where the spot right or above belongs to another cell, by the places [spots, 2] of their rows."""
    cells = places.reshape(_PIXELS, _PIXELS, 2)
    out = np.zeros((_PIXELS, _PIXELS), bool)
    out[:, :-1] |= (cells[:, 1:] != cells[:, :-1]).any(axis=-1)
    out[:-1] |= (cells[1:] != cells[:-1]).any(axis=-1)
    return out.reshape(-1)


def _shaded(colours: np.ndarray) -> np.ndarray:
    return np.round(colours * _SHADES) / _SHADES


def _class_spots(plane: Table, nearest: np.ndarray) -> np.ndarray:
    """[spots, 4] colours of the most frequent class among the rows `nearest` [spots, N] (of equals, the nearest's)."""
    labels = plane.y[nearest]
    votes = (labels[:, :, None] == labels[:, None, :]).sum(axis=1)
    best, spots = votes.argmax(axis=1), np.arange(len(nearest))
    image = row_colours(plane)[nearest[spots, best]]
    image[:, 3] = _PALEST + (1 - _PALEST) * votes[spots, best] / nearest.shape[1]
    return image


def _cells(plane: Table, *, scaled: np.ndarray, nearest: np.ndarray, across: np.ndarray) -> np.ndarray:
    """[spots, 4] colours of the cells of a lattice: upright stripes as wide as each class's share, or the mean.

    Args:
        plane: rows in few places.
        scaled: [R, 2] their places.
        nearest: [spots] a row of each spot's cell.
        across: [spots] first coordinates.
    """
    places, cell = np.unique(plane.x, axis=0, return_inverse=True)
    cell, rows = cell.reshape(-1), row_colours(plane)
    counts = np.bincount(cell, minlength=len(places))
    if not plane.is_class:
        sums = np.stack([np.bincount(cell, rows[:, part]) for part in range(4)], axis=1)
        return _shaded((sums / counts[:, None])[cell[nearest]])
    order = np.lexsort((plane.y, cell))  # of each cell the first class's rows, then the second's
    levels = np.unique(scaled[:, 0])
    borders = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])
    column = np.searchsorted(levels, scaled[nearest, 0])
    inside = (across - borders[column]) / (borders[column + 1] - borders[column])
    own = counts[cell[nearest]]
    start = (np.cumsum(counts) - counts)[cell[nearest]]
    return rows[order[start + np.clip((inside * own).astype(int), 0, own - 1)]]


def _reach(values: np.ndarray) -> float:
    """How far around a row, along one side, the plane is coloured: half-way to the next of few values."""
    levels = len(np.unique(values))
    return max(_REACH, 0.5 / (levels - 1)) if 1 < levels <= _FEW_VALUES else _REACH


def _range(values: np.ndarray) -> tuple[float, float]:
    """Where most of the values are, with a little room."""
    low, high = np.quantile(values, (0.005, 0.995))
    room = 0.04 * (high - low) or 0.5
    return float(low - room), float(high + room)


def row_colours(table: Table) -> np.ndarray:
    """[R, 4] RGBA of each row: its class (colours repeat after ten), or the rank of its target."""
    if table.is_class:
        return colors.to_rgba_array([TEN_COLOURS[int(label) % len(TEN_COLOURS)] for label in table.y])
    return colormaps[_TARGETS](_ranks(table.y))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1; equal values have equal ranks, NaN stays."""
    ranks = stats.rankdata(values, nan_policy="omit")
    return (ranks - 1) / max(float(np.nanmax(ranks, initial=1.0)) - 1, 1.0)


@drawing.styled
def table_picture(table: Table, *, name: str, family: str) -> Picture:
    """A whole table at a glance, and the columns that tell most about the target."""
    strength = [_told(table, column) for column in range(len(table.kinds))]
    chosen = np.argsort(-np.array(strength), kind="stable")[:_SHOWN_COLUMNS]
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained", dpi=_DPI)
    grid = figure.add_gridspec(2, _SHOWN_COLUMNS + 2, width_ratios=(0.09, 1.35, *[1] * _SHOWN_COLUMNS))
    _draw_cells(figure, grid, table)
    for place, column in enumerate(chosen):
        top, bottom = figure.add_subplot(grid[0, place + 2]), figure.add_subplot(grid[1, place + 2])
        _draw_column(top, bottom, table, column=int(column))
        if place == 0:
            top.set_ylabel("rows")
            bottom.set_ylabel("share of class" if table.is_class else "target")
    figure.suptitle(table.title, x=0.005, ha="left", fontsize=9.0)
    missing = float(np.isnan(table.x).mean())
    told = ", ".join(f"column {column + 1} {strength[column]:.0%}" for column in chosen)
    alt = (
        f"A {family} task of {len(table.y)} rows and {len(table.kinds)} features, {missing:.1%} missing; told: {told}."
    )
    return _lean(drawing.picture(figure, name=name, caption="", alt=alt))


def _lean(picture: Picture) -> Picture:
    """The same with places to a hundredth of a point: half the bytes."""
    svg = re.sub(r' d="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), picture.svg)
    return dataclasses.replace(picture, svg=svg)


def _draw_cells(figure: Figure, grid: GridSpec, table: Table) -> None:
    """The strip of targets and the cells, rows sorted by target."""
    order = np.argsort(table.y, kind="stable")
    strip, axes = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[:, 1])
    strip.imshow(row_colours(table)[order][:, None], aspect="auto", interpolation="nearest")
    strip.set_xticks([0], ["y"])
    axes.imshow(cell_colours(table)[order], aspect="auto", interpolation="nearest")
    axes.set_title("Rows sorted by target")
    features = len(table.kinds)
    places = np.arange(0, features, max(1, -(-features // 8)))
    axes.set_xticks(places, [str(place + 1) for place in places])
    axes.set_xlabel("column")
    for panel in (strip, axes):
        panel.set_yticks([])
        panel.grid(visible=False)
        panel.tick_params(length=0)


def cell_colours(table: Table) -> np.ndarray:
    """[R, C, 4] RGBA: grey by rank for numbers and ordinals, a hue for each category, vermilion where missing."""
    cells = np.empty((*table.x.shape, 4))
    for column, kind in enumerate(table.kinds):
        values = table.x[:, column]
        gone = np.isnan(values)
        if kind == "category":
            codes = np.where(gone, 0, values).astype(int)
            cells[:, column] = colormaps["Set3"](codes % 12)
        else:
            cells[:, column] = colormaps["Greys"](0.12 + 0.78 * _ranks(values))
        cells[gone, column] = colors.to_rgba(OURS)
    return cells


def _bins(table: Table, column: int) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Each row's bin [R] (−1 is missing), the bins' middles, and names if the bins are levels."""
    values = table.x[:, column]
    known = ~np.isnan(values)
    place = np.full(len(values), -1)
    if not known.any():
        return place, np.zeros(1), ["none"]
    levels, counts = np.unique(values[known], return_counts=True)
    if table.kinds[column] != "number":
        kept = levels if table.kinds[column] == "ordinal" else levels[np.argsort(-counts, kind="stable")]
        code = {level: min(index, _MAX_LEVELS - 1) for index, level in enumerate(kept)}
        place[known] = [code[value] for value in values[known]]
        names = [f"{level:.0f}" for level in kept[:_MAX_LEVELS]]
        if len(kept) > _MAX_LEVELS:
            names[-1] = _REST
        return place, np.arange(len(names), dtype=float), names
    low, high = np.quantile(values[known], (0.01, 0.99))
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    place[known] = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, _BINS - 1)
    return place, (edges[1:] + edges[:-1]) / 2, None


def _told(table: Table, column: int) -> float:
    """Share of the target's variance (of the classes' indicators) between a column's bins, less chance's part."""
    place, _, _ = _bins(table, column)
    target = np.eye(int(table.y.max()) + 1)[table.y.astype(int)] if table.is_class else _ranks(table.y)[:, None]
    total, between, groups = np.square(target - target.mean(axis=0)).sum(), 0.0, np.unique(place)
    for group in groups:
        own = target[place == group]
        between += len(own) * np.square(own.mean(axis=0) - target.mean(axis=0)).sum()
    freedom = len(place) - len(groups)
    if total <= 0 or freedom <= 0:
        return 0.0
    return max(0.0, 1 - (total - between) / freedom / (total / (len(place) - 1)))


def _draw_column(top: Axes, bottom: Axes, table: Table, *, column: int) -> None:
    """Above: how the column's values are distributed. Below: how the target depends on them."""
    place, middles, names = _bins(table, column)
    width = 0.9 * (middles[1] - middles[0] if len(middles) > 1 else 1.0)
    gone = middles[-1] + max(2.2, 0.35 * len(middles)) * (width / 0.9)
    places, keys = np.append(middles, gone), [*range(len(middles)), -1]
    has_gone = bool((place == -1).any())
    classes = [table.y == label for label in np.unique(table.y)] if table.is_class else [np.ones(len(place), bool)]
    tints = [_tint(table, rows) for rows in classes]
    counts = np.array([[(rows & (place == key)).sum() for key in keys] for rows in classes], float)
    _stack(top, counts, places=places, width=width, tints=tints)
    if table.is_class:
        _stack(bottom, counts / np.maximum(counts.sum(axis=0), 1), places=places, width=width, tints=tints)
        bottom.set_ylim(0, 1)
    else:
        _scatter(bottom, table, column=column, place=place, spots=places if names else None, gone=gone)
    top.set_title(f"{column + 1}: {table.kinds[column]}")
    top.tick_params(labelbottom=False)
    for axes in (top, bottom):
        axes.set_xlim(middles[0] - 0.8 * width, (gone if has_gone else middles[-1]) + 0.8 * width)
        axes.grid(visible=False)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(3))
        ticks, words = _ticks(middles, names, gone=gone if has_gone else None)
        axes.set_xticks(ticks, words)
    if table.is_class:
        bottom.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])


def _ticks(middles: np.ndarray, names: list[str] | None, *, gone: float | None) -> tuple[list[float], list[str]]:
    """Places and words below a column: every k-th level or round number, so that none meet, and "missing"."""
    ticks = list(middles) if names else list(ticker.MaxNLocator(3).tick_values(middles[0], middles[-1]))
    words = names or [f"{tick:.6g}" for tick in ticks]
    known = [(tick, word) for tick, word in zip(ticks, words, strict=True) if middles[0] <= tick <= middles[-1]]
    has_others = names is not None and names[-1] == _REST
    last = [known.pop()] if has_others else []
    last += [] if gone is None else [(gone, "missing")]
    margin = 1.44 * (middles[1] - middles[0] if len(middles) > 1 else 1.0)
    span = (middles[-1] if gone is None else gone) - middles[0] + margin
    choices = [known[::step] + last for step in range(max(1, -(-len(known) // _MAX_LABELS)), len(known) + 1)]
    kept = next((choice for choice in choices if _are_apart(choice, letter=_LETTER * span)), last or known[:1])
    return [tick for tick, _ in kept], [word for _, word in kept]


def _are_apart(labels: Sequence[tuple[float, str]], *, letter: float) -> bool:
    """Whether words centred at their places leave a letter's width between them."""
    pairs = zip(labels, labels[1:], strict=False)
    return all((len(one) + len(other) + 2) / 2 * letter <= right - left for (left, one), (right, other) in pairs)


def _tint(table: Table, rows: np.ndarray) -> str:
    return TEN_COLOURS[int(table.y[rows][0]) % len(TEN_COLOURS)] if table.is_class else OTHERS


def _stack(axes: Axes, heights: np.ndarray, *, places: np.ndarray, width: float, tints: Sequence[str]) -> None:
    """Stacked bars: a layer [bars] of `heights` for each tint, each one path with gaps of height 0."""
    edges = np.stack([places - width / 2, places + width / 2], axis=1).ravel()
    floor = np.zeros(2 * len(places) - 1)
    for layer, tint in zip(heights, tints, strict=True):
        bars = np.zeros_like(floor)
        bars[::2] = layer
        axes.stairs(floor + bars, edges, baseline=floor, fill=True, color=tint, linewidth=0)
        floor += bars


def _scatter(
    axes: Axes, table: Table, *, column: int, place: np.ndarray, spots: np.ndarray | None, gone: float
) -> None:
    """Rows as points; levels are spread sideways so that rows do not hide each other."""
    values = table.x[:, column].copy()
    sideways = ((np.arange(len(place)) * 0.618) % 1 - 0.5) * 0.7
    if spots is not None:
        values = spots[place] + sideways
    values = np.where(place == -1, gone + sideways * (1.0 if spots is not None else 0.0), values)
    tint = row_colours(table)
    axes.scatter(values, table.y, s=5, c=tint, alpha=0.8, linewidths=0, rasterized=True)
    low, high = np.quantile(table.y, (0.01, 0.99))
    room = 0.08 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
