"""The page that shows what is inside a shard set: one HTML file without network or script (K3)."""

import dataclasses
import importlib.resources
from collections.abc import Mapping, Sequence

import jinja2

from reports.drawing import Picture


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of texts.

    Args:
        columns: heads, the first above the names of the rows.
        rows: as wide as `columns`.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FamilySection:
    """Everything the page shows of one family.

    Args:
        name: of the family.
        caption: what it stands for.
        size: how much of the set it is, in words.
        planes: tasks of two features, or None where none could be drawn.
        tables: tasks of the set.
        parameters: what was sampled for its tasks, and how it is distributed.
    """

    name: str
    caption: str
    size: str
    planes: Picture | None
    tables: Sequence[Picture]
    parameters: Grid


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gallery:
    """The whole page.

    Args:
        name: of the set.
        lead: what the set is, in a sentence.
        identity: its digests.
        tiles: its main figures, by what they are.
        overview: a plane of each family, or None where none could be drawn.
        shares: the figure of all families' shares.
        properties: figures of how properties are distributed.
        families: in the order of the figures.
        sizes: how many tasks of which size, by family.
        realised: how they came out, by family.
        notes: what is missing from the page, and why.
        config: the set's configuration as JSON.
    """

    name: str
    lead: str
    identity: str
    tiles: Mapping[str, str]
    overview: Picture | None
    shares: Picture
    properties: Sequence[Picture]
    families: Sequence[FamilySection]
    sizes: Grid
    realised: Grid
    notes: Sequence[str]
    config: str


def gallery_text(gallery: Gallery) -> str:
    """The page as one string; every text of the set is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("gallery.html.jinja").render(gallery=gallery)


def _template(name: str) -> str:
    return (importlib.resources.files("reports") / name).read_text(encoding="utf-8")
