"""Figures of single tasks: what the pixels and bars stand for."""

import re

import numpy as np
import pytest
from matplotlib import colors

from reports.drawing import OURS
from reports.task_figures import (
    TEN_COLOURS,
    Table,
    cell_colours,
    plane_image,
    planes_picture,
    row_colours,
    table_picture,
)


def _halves(*, is_class: bool) -> Table:
    """Two features on a square; the target is whether the first is above ½, or that feature itself."""
    x = np.random.default_rng(0).uniform(size=(1500, 2))
    y = (x[:, 0] > 0.5).astype(float) if is_class else x[:, 0]
    return Table(x=x, y=y, kinds=["number"] * 2, is_class=is_class, title="two <halves>")


def test_a_plane_has_the_colours_of_the_classes_on_their_sides() -> None:
    image, (left, right, bottom, top) = plane_image(_halves(is_class=True))
    assert left < 0.02 and right > 0.98 and bottom < 0.02 and top > 0.98
    half = image.shape[1] // 2
    for columns, colour in ((slice(12, half - 12), TEN_COLOURS[0]), (slice(half + 12, -12), TEN_COLOURS[1])):
        assert np.allclose(image[20:-20, columns, :3], colors.to_rgb(colour), atol=0.02)


def test_a_spot_far_from_every_row_is_empty() -> None:
    table = _halves(is_class=True)
    kept = table.x[:, 0] < 0.3
    x = np.concatenate([table.x[kept], [[1.0, 1.0]] * 20])
    image, _ = plane_image(Table(x=x, y=np.zeros(len(x)), kinds=table.kinds, is_class=True, title=""))
    half = image.shape[1] // 2
    assert not image[:, half : half + 20, 3].any() and image[20:-20, 10:30, 3].mean() > 0.95


def test_a_cell_of_a_lattice_is_split_by_the_shares_of_its_rows_and_holds_no_other_colour() -> None:
    """Three of four rows of one cell have the second class; the neighbouring cells are pure."""
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 4, float)
    y = np.array([0, 0, 0, 1] * 3 + [0, 0, 0, 0], float)
    image, _ = plane_image(Table(x=x, y=y, kinds=["category"] * 2, is_class=True, title=""))
    first, second = (colors.to_rgba(colour) for colour in TEN_COLOURS[:2])
    half = len(image) // 2
    split, pure = image[half + 1 :, half + 1 :], image[: half - 1, : half - 1]
    corner = np.isclose(split, second).all(axis=-1)
    assert abs(corner.mean() - 0.75) < 0.03 and np.array_equal(corner, corner[:1].repeat(len(corner), axis=0))
    assert np.isclose(split[~corner], first).all() and np.isclose(pure, first).all()
    assert 0 < (image[..., 3] == 0).sum() < 4 * len(image)  # a seam between the cells


def test_a_cell_of_a_lattice_of_targets_has_the_mean_of_its_rows() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 2, float)
    table = Table(x=x, y=np.array([0.0, 0, 0, 1, 0, 0, 0, 2]), kinds=["category"] * 2, is_class=False, title="")
    image, _ = plane_image(table)
    assert np.allclose(image[-10, -10], row_colours(table)[[3, 7]].mean(axis=0), atol=0.02)


def test_spots_of_classes_have_a_colour_of_a_class_and_are_paler_where_rows_disagree() -> None:
    """Left all rows agree, right each has any of three classes."""
    generator = np.random.default_rng(1)
    x = generator.uniform(size=(1500, 2))
    y = np.where(x[:, 0] < 0.5, 0, generator.integers(0, 3, 1500)).astype(float)
    image, _ = plane_image(Table(x=x, y=y, kinds=["number"] * 2, is_class=True, title=""))
    drawn = np.unique(image[image[..., 3] > 0][:, :3], axis=0)
    known = np.array([colors.to_rgb(colour) for colour in TEN_COLOURS[:3]])
    assert len(drawn) == 3 and np.isclose(drawn[:, None], known).all(axis=-1).any(axis=1).all()
    half = len(image) // 2
    agreed, mixed = (image[20:-20, columns, 3] for columns in (slice(20, half - 20), slice(half + 20, -20)))
    assert set(np.unique(agreed)) <= {0.0, 1.0} and agreed.mean() > 0.9 and mixed[mixed > 0].mean() < 0.8


def test_codes_of_categories_have_whole_numbers_as_ticks() -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 4, float)
    drawn = [
        planes_picture([Table(x=x, y=x[:, 0], kinds=[kind] * 2, is_class=True, title="")], name="p", lead="")
        for kind in ("category", "number")
    ]
    words = [re.findall(r"rotate\(-0 [^>]*>([\d.]+)</text>", picture.svg) for picture in drawn]
    assert words[0] and not any("." in word for word in words[0]) and any("." in word for word in words[1])


def test_targets_are_coloured_by_rank_so_that_one_outlier_hides_nothing() -> None:
    table = Table(x=np.zeros((4, 1)), y=np.array([3.0, 1.0, 1e9, 2.0]), kinds=["number"], is_class=False, title="")
    same = Table(x=np.zeros((4, 1)), y=np.array([2.0, 0.0, 3.0, 1.0]), kinds=["number"], is_class=False, title="")
    assert np.array_equal(row_colours(table), row_colours(same)) and len(np.unique(row_colours(table), axis=0)) == 4


def test_missing_cells_are_vermilion_and_no_others() -> None:
    x = np.array([[0.0, 0.0], [np.nan, 1.0], [2.0, np.nan]])
    table = Table(x=x, y=np.zeros(3), kinds=["number", "category"], is_class=True, title="")
    found = np.isclose(cell_colours(table), colors.to_rgba(OURS)).all(axis=-1)
    assert np.array_equal(found, np.isnan(x))


def _odd(*, is_class: bool) -> Table:
    """A number that tells the target, a constant, an empty column, 40 categories, an ordinal, with missing cells."""
    generator = np.random.default_rng(3)
    x = np.stack([generator.normal(size=200), np.ones(200), np.full(200, np.nan), *generator.integers(0, 40, (2, 200))])
    y = (x[0] > 0).astype(float) if is_class else x[0] * 1e6
    x[0, :20] = np.nan
    return Table(x=x.T, y=y, kinds=["number"] * 3 + ["category", "ordinal"], is_class=is_class, title="a <b> & c")


@pytest.mark.parametrize("is_class", [True, False])
def test_any_table_is_drawn_with_its_most_telling_column_first(is_class: bool) -> None:
    picture = table_picture(_odd(is_class=is_class), name="odd", family="rules")
    assert "a &lt;b&gt; &amp; c" in picture.svg and "missing" in picture.svg
    places = {column: picture.svg.find(f">{column}: ") for column in (1, 2, 3, 4, 5)}
    shown = {column: place for column, place in places.items() if place >= 0}
    assert len(shown) == 4 and min(shown, key=lambda column: shown[column]) == 1
    assert "200 rows and 5 features" in picture.alt and "22.0% missing" in picture.alt


@pytest.mark.parametrize("kind", ["category", "number"])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_words_below_a_column_never_meet(kind: str, *, has_gaps: bool) -> None:
    for levels in (1, 4, 7, 30):
        x = (np.arange(240) % levels).astype(float)[:, None].repeat(4, axis=1) * 1000
        x[:30] = np.nan if has_gaps else x[:30]
        table = Table(x=x, y=np.arange(240) % 2.0, kinds=[kind] * 4, is_class=True, title="")
        svg = table_picture(table, name="t", family="rules").svg
        found = re.findall(r'font-size: 8px;[^>]*text-anchor: middle[^>]* x="([\d.]+)"[^>]*>([^<]+)</text>', svg)
        words = sorted((float(place), word) for place, word in found if float(place) > 220)
        assert 4 <= len(words) <= 28 and [word for _, word in words].count("missing") == 4 * has_gaps
        assert [word for _, word in words].count("…") == (4 if kind == "category" and levels > 12 else 0)
        for (left, one), (right, other) in zip(words, words[1:], strict=False):
            assert right - left > 0.6 * 8 * (len(one) + len(other)) / 2 * 0.95, f"{levels} levels: {one} meets {other}"


@pytest.mark.parametrize("is_class", [True, False])
def test_planes_are_drawn_four_a_row_with_their_titles_escaped(is_class: bool) -> None:
    picture = planes_picture([_halves(is_class=is_class)] * 5, name="planes", lead="Five.")
    assert picture.svg.count("two &lt;halves&gt;") == 5 and picture.svg.count("<image") == 5
    assert picture.caption.startswith("Five. Colour: the " + ("class" if is_class else "target"))
    assert len(picture.svg) < 120_000
