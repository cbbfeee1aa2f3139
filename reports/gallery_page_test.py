"""The page of a gallery as a document: escaped, complete, and needing nothing else."""

import dataclasses
import html.parser
import re

import pytest

from reports import drawing
from reports.drawing import Picture
from reports.gallery_page import FamilySection, Gallery, Grid, gallery_text

_EVIL = "<script>alert(1)</script>&\"'"
_VOID = {"meta", "link", "br", "img", "input", "hr", "image"}


@drawing.styled
def _picture(name: str) -> Picture:
    figure, axes = drawing.canvas()
    axes.set_title(_EVIL)
    return drawing.picture(figure, name=name, caption=_EVIL, alt=_EVIL)


@pytest.fixture(name="gallery", scope="module")
def _gallery() -> Gallery:
    grid = Grid(columns=("family", _EVIL), rows=((_EVIL, "1 (0 – 2)"),))
    family = FamilySection(
        name=_EVIL,
        caption=_EVIL,
        size="9 tasks",
        planes=_picture("planes-0"),
        tables=[_picture("table-0-0")],
        parameters=grid,
    )
    return Gallery(
        name=_EVIL,
        lead=_EVIL,
        identity=_EVIL,
        tiles={_EVIL: _EVIL},
        overview=_picture("overview"),
        shares=_picture("shares"),
        properties=[_picture("properties")],
        families=[family, dataclasses.replace(family, planes=None, tables=[], parameters=Grid(columns=(), rows=()))],
        sizes=grid,
        realised=grid,
        notes=[_EVIL],
        config=_EVIL,
    )


class _Balance(html.parser.HTMLParser):
    """Fails on a closing tag that does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in _VOID or self.open.pop() == tag


def test_every_text_is_escaped_and_every_element_closed(gallery: Gallery) -> None:
    """K3: strings are escaped."""
    text = gallery_text(gallery)
    assert "<script" not in text and text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 15
    balance = _Balance()
    balance.feed(text)
    assert balance.open == []


def test_the_page_needs_neither_network_nor_script(gallery: Gallery) -> None:
    """K3: no external URL, readable without JavaScript."""
    text = re.sub(r"data:image/png;base64,[^\"]*", "", gallery_text(gallery))
    assert "//" not in text.replace("//priors:gallery", "") and "<link" not in text and "@import" not in text
    assert "default-src 'none'" in text


def test_links_of_the_contents_lead_to_every_section_and_family(gallery: Gallery) -> None:
    text = gallery_text(gallery)
    targets = re.findall(r'href="#([\w-]+)"', text.split("<main>")[0])
    assert "family-1" in targets and "family-2" in targets
    assert all(text.count(f'id="{target}"') == 1 for target in targets)


def test_what_is_absent_is_said_or_left_out(gallery: Gallery) -> None:
    text = gallery_text(dataclasses.replace(gallery, overview=None, notes=[]))
    assert text.count("The set holds no task of this family.") == 1 and text.count("Sampled parameters") == 1
    assert gallery_text(gallery).count("<figure") == text.count("<figure") + 1
