"""Figures that compare families."""

import numpy as np
import pytest

from reports.gallery_figures import PropertyPanel, family_colours, properties_picture, shares_picture

_FAMILIES = ("rules", "forest", "a<b")


def test_eleven_families_have_eleven_colours() -> None:
    names = [f"family {number}" for number in range(11)]
    assert len(set(family_colours(names).values())) == 11
    assert family_colours(names[:3]) == dict(list(family_colours(names).items())[:3])


def test_shares_are_written_beside_their_bars_and_unknown_rejections_are_left_out() -> None:
    shares = dict(zip(_FAMILIES, (0.5, 0.375, 0.125), strict=True))
    columns = {name: {"numbers": 0.5, "categories": 0.5} for name in _FAMILIES}
    unknown = shares_picture(shares, rejected=dict.fromkeys(_FAMILIES), columns=columns)
    assert ">37.5 %<" in unknown.svg and "a&lt;b" in unknown.svg and "Rejected" not in unknown.svg
    known = shares_picture(shares, rejected={"rules": 0.21, "forest": None, "a<b": 0.0}, columns=columns)
    assert ">21 %<" in known.svg and ">–<" in known.svg and "Rejected" in known.svg
    assert "rules 50.0%" in known.alt


def test_medians_are_told_to_those_who_cannot_see_the_ridges() -> None:
    values = {"rules": np.array([0.1, 0.2, 0.9]), "forest": np.array([np.nan]), "a<b": np.array([0.5])}
    panel = PropertyPanel(title="Noise", unit="share", values=values)
    picture = properties_picture([panel], families=_FAMILIES, name="properties")
    assert picture.alt == "Medians. Noise: rules 0.2, a<b 0.5." and ">–<" in picture.svg


@pytest.mark.parametrize(
    "values",
    [np.array([2.0, 2, 3, 10]), np.array([7.0]), np.zeros(4), np.array([]), np.geomspace(1, 4096, 50)],
    ids=["few whole numbers", "one", "only zeros", "none", "long range"],
)
@pytest.mark.parametrize("is_log", [False, True])
def test_any_values_can_be_drawn(values: np.ndarray, *, is_log: bool) -> None:
    panel = PropertyPanel(title="Classes", unit="classes", values={"rules": values}, is_log=is_log)
    picture = properties_picture([panel] * 5, families=_FAMILIES, name="properties")
    assert picture.svg.count(">Classes<") == 5


def test_zeros_that_are_left_out_are_counted_beside_the_ridge() -> None:
    values = {"rules": np.array([0.0, 0.0, 0.0, 0.3])}
    panel = PropertyPanel(title="Missing", unit="share", values=values, has_zeros=True)
    assert ">25%<" in properties_picture([panel], families=("rules",), name="properties").svg
