"""How the gradients of two tasks lie to each other in every stage of their backbone (seed 6.11). Drawn from numbers."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports import drawing
from reports.drawing import INK, OTHERS, OURS, SECOND, Picture

_MAX_WINDOW = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCosines:
    """Cosines between the two tasks' gradients in one stage.

    Args:
        label: of the stage.
        values: one for each step.
        low: lower end of the mean's interval.
        high: upper end.
        same_task: mean cosine between two halves of one task's batch, for each task.
    """

    label: str
    values: Sequence[float]
    low: float
    high: float
    same_task: tuple[float, float]


def stage_label(stage: str) -> str:
    """A stage's module path in words: `icl.blocks.0` → "ICL block 1"."""
    path, _, number = stage.rpartition(".") if stage[-1:].isdigit() else (stage, "", "")
    words = {"column_blocks": "columns", "row_blocks": "rows", "icl.blocks": "ICL block", "icl.norm": "ICL norm"}
    words |= {"icl.injection": "ICL roles", "cell_embedding": "cells", "row_readout": "row read-out"}
    return words.get(path, path.replace("_", " ")) + (f" {int(number) + 1}" if number else "")


@drawing.styled
def cosine_picture(stages: Sequence[StageCosines], *, name: str) -> Picture:
    """Left: running means over the steps, a line for each stage. Right: means over all steps, with intervals.

    Args:
        stages: in the order of a forward pass; their colour goes from first to last.
        name: of the picture.
    """
    figure = Figure(figsize=(7.4, 0.9 + 0.23 * max(len(stages), 8)), layout="constrained")
    course, means = figure.subplots(1, 2, width_ratios=(1.15, 1))
    shades = colors.LinearSegmentedColormap.from_list("depth", [SECOND, OTHERS, OURS])
    ranks = np.linspace(0, 1, len(stages)) if len(stages) > 1 else [0.0]
    window = max(1, min(_MAX_WINDOW, len(stages[0].values) // 5))
    for row, (stage, rank) in enumerate(zip(stages, ranks, strict=True)):
        colour = colors.to_hex(shades(rank))
        _draw_course(course, stage, colour=colour, window=window)
        _draw_mean(means, stage, row=row, colour=colour)
    for axes in (course, means):
        axes.grid(visible=False, axis="y" if axes is means else "x")
    course.axhline(0, color=INK, linewidth=0.7)
    means.axvline(0, color=INK, linewidth=0.7)
    means.set_yticks(range(len(stages)), [stage.label for stage in stages])
    means.set_ylim(len(stages) - 0.5, -0.5)
    drawing.label(course, title="Cosine between the tasks' gradients", x="joint step", y=f"mean of {window} steps")
    drawing.label(means, title="Mean over all steps", x="cosine (ring, square: within one task)", y="")
    caption = (
        "Bars: 95 % block-bootstrap intervals of the mean. Ring (classification) and square (regression): cosine "
        "between two halves of one task's batch, which is what noise leaves of agreement with itself."
    )
    values = ", ".join(f"{stage.label} {np.mean(stage.values):.3f}" for stage in stages)
    return drawing.picture(figure, name=name, caption=caption, alt=f"Mean cosine by stage: {values}.")


def _draw_course(axes: Axes, stage: StageCosines, *, colour: str, window: int) -> None:
    smooth = np.convolve(np.asarray(stage.values, float), np.ones(window) / window, mode="valid")
    first = 1 + (window - 1) // 2
    axes.plot(np.arange(first, first + len(smooth)), smooth, color=colour, linewidth=1.1)


def _draw_mean(axes: Axes, stage: StageCosines, *, row: int, colour: str) -> None:
    axes.plot([stage.low, stage.high], [row, row], color=colour, linewidth=2)
    axes.plot(np.mean(stage.values), row, "o", color=colour, markersize=5)
    for value, marker in zip(stage.same_task, ("o", "s"), strict=True):
        axes.plot(value, row, marker, color=OTHERS, markersize=4, fillstyle="none")
