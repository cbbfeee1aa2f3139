"""Figures of the labs: copied rows, rows that are read, heads under known noise, cost. Drawn from their JSON alone.

Shapes: N context rows, M query rows, T = N + M, L numbers of copies, G points of a curve.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports import drawing
from reports.drawing import CLASSES, INK, OTHERS, OURS, SECOND, Picture

READ_BOUNDARY = "Rows that a prediction mechanism reads: neither causal neighbours nor a conclusion about mechanism."
_HEAD_COLOURS = {"bar": OURS, "scalar": CLASSES[2], "quantile": SECOND}
_LARGEST_MARK = 260.0
_GOALS = {"coverage": 0.9, "width_ratio": 1.0}


@drawing.styled
def duplication_picture(episodes: Sequence[Mapping[str, Any]], *, name: str, kind: str) -> Picture:
    """Left: weight on the copied row and its copies. Right: how far predictions went towards its label.

    Args:
        episodes: `eval.duplication.Duplication.record` of each: copies [L], mass, frozen_mass, towards [L][M], reader.
        name: of the picture.
        kind: classification or regression.
    """
    figure = Figure(figsize=(7.4, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    copies, places = list(episodes[0]["copies"]), np.arange(len(episodes[0]["copies"]))
    mass, frozen, towards = (_query_means(episodes, key) for key in ("mass", "frozen_mass", "towards"))
    for axes, values, colour in ((left, mass, OURS), (right, towards, SECOND)):
        axes.plot(places, values.T, color=colour, linewidth=0.8, alpha=0.35)
        axes.plot(places, values.mean(0), color=colour, marker="o", markersize=4, linewidth=2.2, label="whole model")
        axes.set_xticks(places, [str(count) for count in copies])
    left.plot(places, frozen.mean(0), "--", color=INK, linewidth=1.2, label="hidden states as without copies")
    left.set_ylim(bottom=0)
    left.legend()
    right.axhline(0, color=INK, linewidth=0.8)
    is_class = kind == "classification"
    unit = "gain in probability" if is_class else "standard deviations of the context"
    reads = "head" if episodes[0]["reader"] == "head" else "last ICL block"
    drawing.label(
        left, title=f"Read weight on the row, by the {reads}", x="copies added", y="weight, mean over queries"
    )
    drawing.label(right, title=f"Way towards the row's {'class' if is_class else 'target'}", x="copies added", y=unit)
    caption = (
        f"Faint: {len(episodes)} episodes, one context row each; bold: their mean. Reported as a phenomenon, not as "
        "bias or cause: a context with copies is also other data."
    )
    first, last = mass.mean(0)[0], mass.mean(0)[-1]
    alt = f"Weight {first:.3f} without copies, {last:.3f} with {copies[-1]}; way {towards.mean(0)[-1]:+.3f} {unit}."
    return drawing.picture(figure, name=name, caption=caption, alt=alt)


def _query_means(episodes: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """[episodes, L] means over queries."""
    return np.array([np.mean(np.asarray(episode[key], float), axis=1) for episode in episodes])


@drawing.styled
def weights_picture(view: Mapping[str, Any], *, name: str) -> Picture:
    """All read weights [M, N], rows by class (regression: by the first feature), of `eval.row_reading.reading`."""
    order, rows = np.asarray(view["order_context"]), np.asarray(view["order_query"])
    weights = np.asarray(view["weights"], float)[np.ix_(rows, order)]
    figure, axes = drawing.canvas(width=5.4, height=1.5 + 3.6 * min(1.0, len(rows) / len(order)))
    image = axes.imshow(weights, cmap=colormaps["viridis"], vmin=0.0, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label("weight")
    bar.outline.set_visible(False)
    if view["kind"] == "classification":
        _mark_classes(axes.xaxis, np.asarray(view["y_context"])[order], draw=axes.axvline)
        _mark_classes(axes.yaxis, np.asarray(view["y_query"])[rows], draw=axes.axhline)
        axis = "rows by class"
    else:
        axis = "rows by the feature, ascending"
        axes.set_xticks([])
        axes.set_yticks([])
    reads = "the head" if view["reader"] == "head" else "the last ICL block"
    drawing.label(axes, title=f"Weights by which {reads} reads", x=f"context {axis}", y=f"query {axis}")
    sums = weights.sum(1)
    alt = f"{len(rows)} queries, {len(order)} context rows; weights up to {weights.max():.3f}."
    told = f"{view['reader']} reads; a query's weights sum to {sums.min():.3f} … {sums.max():.3f}. {READ_BOUNDARY}"
    return drawing.picture(figure, name=name, caption=f"The {told}", alt=alt)


def _mark_classes(axis: Any, labels: np.ndarray, *, draw: Any) -> None:
    """Names each class at the middle of its rows, and draws a line between classes."""
    classes, firsts = np.unique(labels, return_index=True)
    ends = [*firsts[1:], len(labels)]
    axis.set_ticks([(a + b - 1) / 2 for a, b in zip(firsts, ends, strict=True)], [f"{label:g}" for label in classes])
    axis.set_tick_params(length=0)
    for first in firsts[1:]:
        draw(first - 0.5, color="white", linewidth=1.4)


@drawing.styled
def places_picture(view: Mapping[str, Any], *, name: str, queries: Sequence[int]) -> Picture:
    """Where the read rows are: context rows as large as their weight, a panel for each of `queries`, marked by a cross.

    Classification episodes have two features, which are the axes; of regression episodes x and the target are, and a
    dotted line shows where the query is.
    """
    x, y = np.asarray(view["x_context"], float), np.asarray(view["y_context"], float)
    weights, is_class = np.asarray(view["weights"], float), view["kind"] == "classification"
    figure = Figure(figsize=(2.5 * len(queries) + 0.3, 2.9), layout="constrained")
    for axes, query in zip(np.atleast_1d(figure.subplots(1, len(queries), sharey=True)), queries, strict=True):
        sizes = 4.0 + _LARGEST_MARK * weights[query] / max(float(weights.max()), 1e-12)
        place, answer = np.asarray(view["x_query"], float)[query], float(view["y_query"][query])
        colours = [CLASSES[int(label) % len(CLASSES)] for label in y] if is_class else [SECOND] * len(y)
        axes.scatter(x[:, 0], x[:, 1] if is_class else y, s=sizes, c=colours, alpha=0.6, linewidths=0)
        if is_class:
            axes.plot(place[0], place[1], "x", color=INK, markersize=9, markeredgewidth=2)
            title = f"a query of class {answer:.0f}"
        else:
            axes.axvline(place[0], color=INK, linestyle=":", linewidth=1.4)
            title = f"a query at {place[0]:.2f}"
        drawing.label(axes, title=title, x="first feature", y="")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    figure.axes[0].set_ylabel("second feature" if is_class else "target")
    shown = "; ".join(f"{_heaviest(weights[query]):.3f} at query {query}" for query in queries)
    what = "Area: read weight. " + ("Colour: class. Cross: the query." if is_class else "Dotted: the query's place.")
    return drawing.picture(figure, name=name, caption=f"{what} {READ_BOUNDARY}", alt=f"Largest weights: {shown}.")


def _heaviest(weights: np.ndarray) -> float:
    return float(weights.max())


@drawing.styled
def blocks_picture(view: Mapping[str, Any], *, name: str) -> Picture:
    """Attention weights [T, T] of the first and the last ICL block; rows keep their order, empty cells are 0."""
    figure = Figure(figsize=(7.4, 3.7), layout="constrained")
    cut, told = int(view["num_context"]), []
    for axes, key, title in zip(
        figure.subplots(1, 2), ("attention_first", "attention_last"), ("First ICL block", "Last ICL block"), strict=True
    ):
        values = np.asarray(view[key], float)
        image = axes.imshow(np.ma.masked_equal(values, 0.0), cmap=colormaps["viridis"], vmin=0.0)
        bar = figure.colorbar(image, ax=axes, shrink=0.75, pad=0.02)
        bar.outline.set_visible(False)
        bar.locator = ticker.MaxNLocator(5)
        axes.grid(visible=False)
        axes.axhline(cut - 0.5, color=INK, linewidth=1.0)
        axes.axvline(cut - 0.5, color=INK, linewidth=1.0)
        middle = [(cut - 1) / 2, (cut + len(values) - 1) / 2]
        axes.set_xticks(middle, ["context", "query"])
        axes.set_yticks(middle, ["context", "query"], rotation=90, va="center")
        axes.tick_params(length=0)
        drawing.label(axes, title=title, x="is read", y="reader")
        told.append(f"{title}: up to {values.max():.3f}")
    caption = f"Mean over heads; no query is read by any row. {READ_BOUNDARY}"
    if any(np.any(np.asarray(view[key], float)[:, cut:]) for key in ("attention_first", "attention_last")):
        caption = f"Mean over heads; QUERY ROWS ARE READ, which is a leak. {READ_BOUNDARY}"
    return drawing.picture(figure, name=name, caption=caption, alt=f"{'; '.join(told)}.")


@drawing.styled
def interval_picture(curves: Mapping[str, Mapping[str, Any]], *, name: str) -> Picture:
    """x against interval: a row of panels for each family, a panel for each head, the true interval between lines.

    Args:
        curves: family → what `eval.head_scores.curves` returns.
        name: of the picture.
    """
    heads = list(next(iter(curves.values()))["heads"])
    figure = Figure(figsize=(7.4, 2.45 * len(curves) + 0.3), layout="constrained")
    panels = figure.subplots(len(curves), len(heads), squeeze=False, sharex=True, sharey="row")
    told = []
    for row, (family, curve) in zip(panels, curves.items(), strict=True):
        for axes, head in zip(row, heads, strict=True):
            told.append(f"{family} {head} {_draw_interval(axes, curve, head=head)}")
            axes.set_title(f"{family}, {head}")
        row[0].set_ylabel("target")
        low, high = np.min(curve["truth_low"]), np.max(curve["truth_high"])
        row[0].set_ylim(low - 0.35 * (high - low), high + 0.35 * (high - low))
    for axes in panels[-1]:
        axes.set_xlabel("feature")
    caption = (
        "Colour: predicted mean and central 90 % interval (a point has none). Black: the true mean, and dashed the "
        "true interval. Dots: the context; those beyond the axis are not drawn. One task of each family, first seed."
    )
    return drawing.picture(figure, name=name, caption=caption, alt=f"Mean interval widths: {'; '.join(told)}.")


def _draw_interval(axes: Axes, curve: Mapping[str, Any], *, head: str) -> str:
    """One panel; returns the mean width of its interval in words."""
    x, own, colour = curve["x"], curve["heads"][head], _HEAD_COLOURS.get(head, OTHERS)
    axes.plot(curve["x_context"], curve["y_context"], "o", color=OTHERS, markersize=2.4, alpha=0.7, markeredgewidth=0)
    axes.plot(x, curve["truth_mean"], color=INK, linewidth=1.0)
    for side in ("truth_low", "truth_high"):
        axes.plot(x, curve[side], "--", color=INK, linewidth=0.8)
    axes.plot(x, own["mean"], color=colour)
    true_width = float(np.mean(np.subtract(curve["truth_high"], curve["truth_low"])))
    if own["low"] is None:
        return f"none (true {true_width:.3f})"
    axes.fill_between(x, own["low"], own["high"], color=colour, alpha=0.25, linewidth=0)
    return f"{np.mean(np.subtract(own['high'], own['low'])):.3f} (true {true_width:.3f})"


@drawing.styled
def trial_picture(table: Mapping[str, Any], *, name: str, yardsticks: Mapping[str, float]) -> Picture:
    """Centre error, coverage and width ratio of every head, family and arm: means over seeds with 95 % intervals.

    Args:
        table: arm → family → head → metric → {per_seed, mean, low, high}.
        name: of the picture.
        yardsticks: family → centre error of the context's mean.
    """
    families = list(next(iter(table.values())))
    metrics = {"centre_rmse": "Centre error", "coverage": "Coverage of 90 %", "width_ratio": "Width / true width"}
    figure = Figure(figsize=(7.4, 1.9 * len(families) + 0.5), layout="constrained")
    panels, told = figure.subplots(len(families), len(metrics), squeeze=False, sharey=True, sharex="col"), []
    for place, family in enumerate(families):
        for axes, (metric, title) in zip(panels[place], metrics.items(), strict=True):
            told += _draw_scores(axes, table, family=family, metric=metric)
            axes.set_title(title if place == 0 else "")
            if metric in _GOALS:
                axes.axvline(_GOALS[metric], color=INK, linewidth=0.9)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
        panels[place, 0].set_ylabel(family)
    mean = ", ".join(f"{yardsticks[family]:.2f} on {family}" for family in families)
    caption = (
        "Large: mean over seeds, its 95 % t interval as a bar; small: seeds. Filled: each head trained its own "
        "network; hollow: heads alone, on the same frozen hidden states. Black: what the truth scores. Centre error: "
        f"RMSE to the true mean (the context's mean has {mean}). A point has no interval."
    )
    return drawing.picture(figure, name=name, caption=caption, alt="; ".join(told) + ".")


def _draw_scores(axes: Axes, table: Mapping[str, Any], *, family: str, metric: str) -> list[str]:
    """One panel; returns its means in words."""
    heads, told = list(next(iter(table.values()))[family]), []
    for step, (arm, by_family) in enumerate(table.items()):
        for row, head in enumerate(heads):
            score, colour = by_family[family][head][metric], _HEAD_COLOURS.get(head, OTHERS)
            if score["mean"] is None:
                continue
            place, fill = row + 0.3 * step - 0.15, "full" if arm == "whole" else "none"
            if score["low"] is not None:
                axes.plot([score["low"], score["high"]], [place, place], color=colour, linewidth=1.4)
            axes.plot(score["per_seed"], [place] * len(score["per_seed"]), "|", color=colour, markersize=5)
            axes.plot(score["mean"], place, "o", color=colour, markersize=5.5, fillstyle=fill)
            told.append(f"{arm} {family} {head} {metric} {score['mean']:.3f}")
    axes.set_yticks(range(len(heads)), heads)
    axes.set_ylim(len(heads) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    return told


@drawing.styled
def cost_picture(ways: Mapping[str, Mapping[str, Any]], *, name: str) -> Picture:
    """Cost over context rows (left) and query rows (right): seconds above, floating-point operations below.

    Args:
        ways: way → context_rows, context_seconds, context_flops, context_seconds_slope …, and the same for query.
        name: of the picture.
    """
    figure = Figure(figsize=(7.4, 5.4), layout="constrained")
    panels, told = figure.subplots(2, 2, sharex="col", sharey="row"), []
    for column, (side, what) in enumerate((("context", "context rows N"), ("query", "query rows M"))):
        for row, (unit, label) in enumerate((("seconds", "seconds"), ("flops", "FLOP"))):
            axes = panels[row, column]
            for index, (way, found) in enumerate(ways.items()):
                values, slope = found[f"{side}_{unit}"], found[f"{side}_{unit}_slope"]
                style = {"color": (OURS, CLASSES[2], SECOND)[index % 3], "marker": "osD"[index % 3], "markersize": 4}
                text = f"{way}, slope {slope:.2f}" if slope is not None and math.isfinite(slope) else way
                axes.loglog(found[f"{side}_rows"], values, label=text, **style)
                told.append(f"{way} {unit} ~ {side} rows^{slope if slope is None else format(slope, '.2f')}")
            axes.legend()
            axes.set_ylabel(label if column == 0 else "")
        panels[1, column].set_xlabel(what)
    one = next(iter(ways.values()))
    panels[0, 0].set_title(f"Over the context, {one['fixed_query_rows']} queries")
    panels[0, 1].set_title(f"Over the queries, {one['fixed_context_rows']} context rows")
    caption = (
        "fast: one pass over context and queries; remember: the context once; predict: queries from what is "
        "remembered. One table, one thread; slopes are fitted to the last three sizes."
    )
    return drawing.picture(figure, name=name, caption=caption, alt=f"{'; '.join(told)}.")
