"""How every figure looks, and how it becomes SVG that follows the page: its ink, its light and dark, its width.

Colours are Okabe and Ito's, told apart by colour-blind readers as well ("Color Universal Design", 2008); what they mean
is always written beside them too. In a page the ink is the text's own colour, and each palette colour a CSS variable
(`--c-0072b2`) with the colour itself as the default, so that a dark page can lighten it.
"""

import dataclasses
import functools
import io
import re
from collections.abc import Callable
from typing import ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Parameters = ParamSpec("Parameters")
OURS = "#d55e00"
SECOND = "#0072b2"
OTHERS = "#6f7f8f"
CLASSES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#6f7f8f")
_INK = "#010203"  # stands for the page's text colour until the SVG is written
_PALETTE = sorted({OURS, SECOND, OTHERS, *CLASSES})
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.16,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "grid.color": _INK,
}
INK = _INK


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picture:
    """One drawn figure.

    Args:
        name: file name without ending.
        caption: what it shows, as plain text.
        alt: the same for those who cannot see it, with its main values.
        svg: a whole SVG document.
    """

    name: str
    caption: str
    alt: str
    svg: str

    def standalone(self) -> str:
        """A file of its own: fixed colours on white."""
        return re.sub(r"var\(--c-\w+, (#\w+)\)", r"\1", self.svg)

    def inline(self) -> str:
        """The SVG element alone, to stand in an HTML page; ids carry the picture's name so that none meet."""
        element = self.svg[self.svg.index("<svg") :]
        element = re.sub(r' xmlns(:\w+)?="[^"]*"', "", element)
        element = re.sub(r'\bid="', f'id="{self.name}-', element)
        element = re.sub(r"url\(#", f"url(#{self.name}-", element)
        element = re.sub(r'xlink:href="#', f'href="#{self.name}-', element).replace("xlink:href=", "href=")
        element = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", element, count=1)
        return re.sub(r'<svg ([^>]*?)height="[^"]*"', r'<svg aria-hidden="true" \1', element, count=1)


def styled(draw: Callable[Parameters, Picture]) -> Callable[Parameters, Picture]:
    """Lets a function that draws use the common style (matplotlib reads it whenever it makes an artist)."""

    @functools.wraps(draw)
    def in_style(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Picture:
        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return in_style


def canvas(*, width: float = 3.7, height: float = 2.6) -> tuple[Figure, Axes]:
    """An empty panel; sizes in inches. Panels are small: a page lays them side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def picture(figure: Figure, *, name: str, caption: str, alt: str) -> Picture:
    """Writes a figure as SVG: the same figure, the same bytes."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=metadata)
    svg = re.sub(r"<!DOCTYPE[^>]*>|<!--.*?-->", "", out.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"(font-family: |font: [^;\"]*?px )[^;\"]*", r"\1system-ui, sans-serif", svg)
    svg = re.sub(r"<style[^>]*>\*\{(.*?)\}</style>", "", svg).replace("<svg ", '<svg stroke-linejoin="round" ', 1)
    svg = svg.replace(_INK, "currentColor")
    for colour in _PALETTE:
        svg = svg.replace(f": {colour}", f": var(--c-{colour[1:]}, {colour})")
    return Picture(name=name, caption=caption, alt=alt, svg=svg)


def label(axes: Axes, *, title: str, x: str, y: str) -> None:
    """Names a panel and its axes."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def value_label(axes: Axes, text: str, *, x: float, y: float) -> None:
    """Writes a value right of the end of its bar."""
    axes.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
