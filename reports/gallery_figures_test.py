"""Figures that compare families."""

import dataclasses

import numpy as np
import pytest

from reports.gallery_figures import PropertyPanel, family_colours, percent, properties_picture, shares_picture

_FAMILIES = ("rules", "forest", "a<b")


def test_eleven_families_have_eleven_colours() -> None:
    names = [f"family {number}" for number in range(11)]
    assert len(set(family_colours(names).values())) == 11
    assert family_colours(names[:3]) == dict(list(family_colours(names).items())[:3])


def test_shares_are_written_beside_their_bars_and_unknown_rejections_are_left_out() -> None:
    shares = dict(zip(_FAMILIES, (0.5, 0.375, 0.125), strict=True))
    columns = {name: {"numbers": 0.5, "categories": 0.5} for name in _FAMILIES}
    unknown = shares_picture(shares, rejected=dict.fromkeys(_FAMILIES), columns=columns)
    assert ">38 %<" in unknown.svg and "a&lt;b" in unknown.svg and "Rejected" not in unknown.svg
    known = shares_picture(shares, rejected={"rules": 0.21, "forest": None, "a<b": 0.0}, columns=columns)
    assert ">21 %<" in known.svg and ">–<" in known.svg and "Rejected" in known.svg
    assert "rules 50 %" in known.alt


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


def test_zeros_that_are_left_out_are_counted_beside_the_ridge_and_not_in_its_median() -> None:
    values = {"rules": np.array([0.0, 0.0, 0.0, 0.3])}
    panel = PropertyPanel(title="Missing", unit="share", values=values, has_zeros=True)
    picture = properties_picture([panel], families=("rules",), name="properties")
    assert ">25 %<" in picture.svg and "the percentage is how many have" in picture.caption
    assert picture.alt == "Medians (Missing: of the tasks that have any). Missing: rules 0.3."
    plain = dataclasses.replace(panel, has_zeros=False)
    assert "percentage" not in properties_picture([plain], families=("rules",), name="properties").caption


@pytest.mark.parametrize("title", ["share", "classes"])
def test_few_tasks_are_a_dot_each_and_many_a_ridge(title: str) -> None:
    for number in (1, 4, 9, 10, 40):
        values = np.linspace(0, 1, number) if title == "share" else np.arange(number) % 4 + 2.0
        panel = PropertyPanel(title=title, unit="", values={"rules": values})
        svg = properties_picture([panel], families=("rules",), name="properties").svg
        assert svg.count("fill-opacity: 0.8;") == (number if number < 10 else 0)
        assert ("opacity: 0.55" in svg) == (number >= 10)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.4, "40 %"), (0.0801, "8.0 %"), (0.00781, "0.78 %"), (1.0, "100 %"), (0.999, "100 %"), (0.0996, "10 %")]
    + [(0.0, "0 %"), (0.00996, "1.0 %"), (0.00004, "0.0040 %")],
)
def test_shares_have_two_significant_digits(share: float, words: str) -> None:
    assert percent(share) == words
