"""Drawing: SVG that a page can hold, bytes that repeat, and colours that follow light and dark."""

import re

from reports import drawing
from reports.drawing import Picture


@drawing.styled
def _picture(name: str, *, height: float = 1.0) -> Picture:
    figure, axes = drawing.canvas()
    axes.plot([0, 1], [0, height], color=drawing.OURS)
    axes.set_title("<b>&")
    return drawing.picture(figure, name=name, caption="c", alt="a")


def test_the_same_drawing_gives_the_same_bytes() -> None:
    assert _picture("one").svg == _picture("one").svg
    assert _picture("one").svg != _picture("one", height=2.0).svg


def test_an_inline_picture_is_one_element_without_addresses_and_with_ids_of_its_own() -> None:
    """K3: no external URL, not even a namespace or a DTD."""
    text = _picture("one").inline()
    assert text.startswith("<svg ") and text.rstrip().endswith("</svg>")
    assert "//" not in re.sub(r"data:image/png;base64,[^\"]*", "", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    used = re.findall(r"url\(#([^)]*)\)", text) + re.findall(r'href="#([^"]*)"', text)
    assert ids and used and set(used) <= set(ids)
    assert all(name.startswith("one-") for name in ids)


def test_text_stays_text_and_is_escaped() -> None:
    text = _picture("one").inline()
    assert "&lt;b&gt;&amp;" in text and "<b>" not in text


def test_ink_is_the_pages_own_and_palette_colours_are_variables() -> None:
    picture = _picture("one")
    assert "currentColor" in picture.svg and drawing.INK not in picture.svg
    assert f"var(--c-{drawing.OURS[1:]}, {drawing.OURS})" in picture.inline()
    assert "var(" not in picture.standalone() and drawing.OURS in picture.standalone()
    assert picture.standalone().startswith("<?xml") and "xmlns=" in picture.standalone()
