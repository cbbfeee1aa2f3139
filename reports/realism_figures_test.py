"""Tests of the figures of realism."""

from reports.realism_figures import distance_picture, plane_picture, separation_picture

FOUND = [
    {"name": "landmarkers.linear", "above": 0.8, "low": 0.7, "high": 0.9, "real": [1, 2, 3], "synthetic": [0, 1, 2]},
    {"name": "missing.missing_share", "above": 0.5, "low": 0.5, "high": 0.5, "real": [0, 0, 0], "synthetic": [0, 0, 0]},
]
ROWS = [
    {
        "name": name,
        "distance": {"value": value, "low": value - 0.1, "high": value + 0.1},
        "coverage": {"value": 0.3, "low": 0.2, "high": 0.4},
    }
    for name, value in (("mixture", 0.9), ("forest", 1.2))
]


def test_the_plane_shows_every_prior_beside_the_real_tables() -> None:
    """2.1: priors and real tables in one picture."""
    points = [{"name": name, "x": i, "y": -i} for i in range(3) for name in ("real", "forest", "rules")]
    drawn = plane_picture(points, name="plane")
    assert "3 real parts and 6 tasks of forest, rules" in drawn.alt
    assert "forest</text>" in drawn.svg and "rules</text>" in drawn.svg
    assert "grey: parts of real tables</text>" in drawn.standalone()
    assert "colour: tasks of the prior that the panel names</text>" in drawn.standalone()


def test_separations_say_which_side_has_more() -> None:
    drawn = separation_picture(FOUND, name="parts", prior="mixture")
    assert "landmarkers.linear, of which real tables have more in 0.80 of pairs" in drawn.alt
    assert "landmarkers: linear</text>" in drawn.svg
    fewer = separation_picture([{**FOUND[0], "above": 0.1, "low": 0.0, "high": 0.2}], name="parts", prior="mixture")
    assert "have less in 0.90 of pairs" in fewer.alt


def test_distances_are_told_in_words_too() -> None:
    drawn = distance_picture(ROWS, name="distance", floor={"value": 0.0, "low": -0.3, "high": 0.3})
    assert "mixture 0.90, 0.30; forest 1.20, 0.30" in drawn.alt
    assert drawn.svg == distance_picture(ROWS, name="distance", floor={"value": 0.0, "low": -0.3, "high": 0.3}).svg


def test_the_picture_of_distances_says_what_lines_and_band_are() -> None:
    drawn = distance_picture(ROWS, name="distance", floor={"value": 0.0, "low": -0.3, "high": 0.3})
    for words in (
        "distance, and its 95 % interval over tables",
        "coverage, and its 95 % interval over tables",
        "real tables against real tables",
        "real against real, range over random halvings",
    ):
        assert f"{words}</text>" in drawn.standalone()
