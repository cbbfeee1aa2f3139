"""Figures of realism: where real tables and priors lie, and what tells them apart. Drawn from a study's JSON alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from reports import drawing
from reports.drawing import CLASSES, INK, OTHERS, OURS, SECOND, Picture

_SHOWN = 14
_PANELS = 3
_REAL = "real"


@drawing.styled
def plane_picture(points: Sequence[Mapping[str, Any]], *, name: str) -> Picture:
    """Principal components of the meta-features: one panel for each prior, real tables in grey behind it."""
    real = np.array([(point["x"], point["y"]) for point in points if point["name"] == _REAL])
    priors = sorted({point["name"] for point in points} - {_REAL})
    rows = -(-len(priors) // _PANELS)
    figure = Figure(figsize=(7.4, 2.35 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, _PANELS, squeeze=False, sharex=True, sharey=True).ravel()
    for index, (axes, prior) in enumerate(zip(panels, priors, strict=False)):
        own = np.array([(point["x"], point["y"]) for point in points if point["name"] == prior])
        axes.scatter(*real.T, s=9, color=OTHERS, alpha=0.45, linewidths=0)
        axes.scatter(*own.T, s=9, color=CLASSES[index % (len(CLASSES) - 1)], alpha=0.6, linewidths=0)
        axes.set_title(prior)
    for axes in panels[len(priors) :]:
        axes.set_axis_off()
    dots = {"linestyle": "", "marker": "o", "markersize": 4}
    keys = [Line2D([], [], color=OTHERS, **dots), tuple(Line2D([], [], color=colour, **dots) for colour in CLASSES[:3])]
    words = ["grey: parts of real tables", "colour: tasks of the prior that the panel names"]
    figure.legend(keys, words, loc="outside upper left", ncols=2, handler_map={tuple: HandlerTuple(ndivide=None)})
    figure.supxlabel("first principal component of the meta-features", fontsize=8.5)
    figure.supylabel("second", fontsize=8.5)
    caption = f"Grey: {len(real)} parts of real tables. Colour: tasks of one prior. Two of many directions: what lies"
    alt = f"{len(real)} real parts and {len(points) - len(real)} tasks of {', '.join(priors)}."
    return drawing.picture(figure, name=name, caption=f"{caption} apart here is apart, not the other way.", alt=alt)


@drawing.styled
def separation_picture(found: Sequence[Mapping[str, Any]], *, name: str, prior: str) -> Picture:
    """The meta-features that tell real tables from a prior best: how often the real one is larger, and by how much."""
    shown = list(found[:_SHOWN])[::-1]
    figure = Figure(figsize=(7.4, 0.27 * len(shown) + 1.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.0, 1.25))
    places = np.arange(len(shown))
    above = np.array([part["above"] for part in shown])
    errors = np.array([(part["above"] - part["low"], part["high"] - part["above"]) for part in shown]).T.clip(0)
    left.barh(places, above - 0.5, left=0.5, xerr=errors, color=OURS, height=0.6, error_kw={"elinewidth": 0.8})
    left.axvline(0.5, color=INK, linewidth=0.8)
    left.set_xlim(0, 1)
    left.set_yticks(places, [part["name"].replace(".", ": ").replace("_", " ") for part in shown])
    drawing.label(left, title="Real table is above a task", x="share of pairs (½: alike)", y="")
    for shift, side, colour, text in ((0.17, "real", INK, "real tables"), (-0.17, "synthetic", SECOND, prior)):
        _ranges(right, shown, side=side, places=places + shift, colour=colour, text=text)
    figure.legend(loc="outside lower right", ncols=2)
    drawing.label(right, title="10 %, 50 %, 90 % quantiles", x="in units of both sides' range", y="")
    first = found[0]
    word = "more" if first["above"] > 0.5 else "less"
    pairs = max(first["above"], 1 - first["above"])
    alt = f"Most telling: {first['name']}, of which real tables have {word} in {pairs:.2f} of pairs."
    caption = "Right of the middle: real tables have more of it. Whiskers: 95 % bootstrap over tables."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


def _ranges(
    axes: Axes, shown: Sequence[Mapping[str, Any]], *, side: str, places: np.ndarray, colour: str, text: str
) -> None:
    ends = np.array([[*part["real"], *part["synthetic"]] for part in shown])
    low, span = ends.min(1), np.ptp(ends, axis=1).clip(1e-12)
    values = (np.array([part[side] for part in shown]) - low[:, None]) / span[:, None]
    axes.hlines(places, values[:, 0], values[:, 2], color=colour, linewidth=1.4)
    axes.plot(values[:, 1], places, "o", color=colour, markersize=4, label=text)


@drawing.styled
def distance_picture(rows: Sequence[Mapping[str, Any]], *, name: str, floor: Mapping[str, float]) -> Picture:
    """Distance and coverage of every prior with their intervals, and the floor: real tables against real tables."""
    shown = list(rows)[::-1]
    figure = Figure(figsize=(7.4, 0.3 * len(shown) + 1.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(shown))
    for axes, key, colour in ((left, "distance", OURS), (right, "coverage", SECOND)):
        values = np.array([(row[key]["low"], row[key]["value"], row[key]["high"]) for row in shown])
        text = f"{key}, and its 95 % interval over tables"
        axes.hlines(places, values[:, 0], values[:, 2], color=colour, linewidth=1.4)
        axes.plot(values[:, 1], places, "o", color=colour, markersize=5)
        axes.plot([], [], "o-", color=colour, linewidth=1.4, markersize=5, label=text)
    left.axvline(floor["value"], color=INK, linewidth=0.8, linestyle="--", label="real tables against real tables")
    between = "real against real, range over random halvings"
    left.axvspan(floor["low"], floor["high"], color=OTHERS, alpha=0.2, linewidth=0, label=between)
    right.axvline(0.5, color=INK, linewidth=0.8, linestyle="--")
    left.set_xlim(right=2.05)
    right.set_xlim(-0.03, 1.03)
    left.set_yticks(places, [row["name"] for row in shown])
    figure.legend(loc="outside lower center", ncols=2)
    drawing.label(left, title="Proxy A-distance to real tables", x="0: not told apart, 2: always", y="")
    drawing.label(right, title="Coverage of real tables", x="share with a near neighbour", y="")
    caption = "Dashed: real tables against real tables (left: mean and range over halvings). Lines: 95 % over tables."
    told = "; ".join(f"{row['name']} {row['distance']['value']:.2f}, {row['coverage']['value']:.2f}" for row in rows)
    return drawing.picture(figure, name=name, caption=caption, alt=f"Distance, coverage: {told}.")
