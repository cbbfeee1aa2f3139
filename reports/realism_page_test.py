"""Tests of the page of realism."""

from reports.drawing import Picture
from reports.realism_page import realism_text

ESTIMATE = {"value": 0.674, "low": 0.45, "high": 0.91}
RECORD = {
    "kind": "classification",
    "tables": 49,
    "parts": 196,
    "compared": 80,
    "half": "all",
    "seed": 3,
    "shards": "abc123",
    "floor": {"value": 0.151, "low": -0.16, "high": 0.53},
    "rows": [
        {
            "name": "mixture",
            "tasks": 96,
            "distance": ESTIMATE,
            "coverage": {"value": 0.432, "low": 0.36, "high": 0.52},
            "groups": {"marginals": {"value": 0.663}, "missing": {"value": -0.05}},
        },
        {"name": "peer <b>", "tasks": 50, "distance": {**ESTIMATE, "value": 1.4}, "coverage": ESTIMATE},
    ],
    "weights": {
        "families": ["forest", "rules"],
        **{
            title: {
                "shares": {"forest": share, "rules": 1 - share},
                "choosing_discrepancy": 0.0113,
                "reporting_discrepancy": 0.0176,
                "distance": ESTIMATE,
                "coverage": ESTIMATE,
            }
            for title, share in (("present", 0.3), ("nearest", 0.91))
        },
    },
}
PICTURE = Picture(name="plane", caption="Grey: real.", alt="Two points.", svg='<svg width="2" height="2"></svg>')


def test_the_page_shows_distance_and_coverage_of_every_prior_beside_real_against_real() -> None:
    """2.1: the distance is shown per prior family in a report."""
    text = realism_text(RECORD, distances=[PICTURE], separations=[])
    for words in (
        "<td>0.67</td><td>0.45 … 0.91</td>",
        "<td>0.43</td>",
        "<td>1.40</td>",
        "<td>0.15</td><td>-0.16 … 0.53",
    ):
        assert words in text
    assert "marginals 0.66, missing -0.05." in text and "Grey: real." in text and text.count("<figure") == 1
    assert "<td>0.91</td><td>0.09</td><td>0.0113</td><td>0.0176</td>" in text


def test_texts_are_escaped_and_the_page_asks_nobody() -> None:
    """K3: no external address, readable without JavaScript."""
    text = realism_text(RECORD, distances=[PICTURE], separations=[PICTURE])
    assert "peer &lt;b&gt;" in text and "<b>" not in text
    assert "<script" not in text and "//" not in text.replace("//priors:realism", "")


def test_a_study_that_chose_no_weights_has_no_section_of_them() -> None:
    text = realism_text({**RECORD, "weights": None}, distances=[], separations=[])
    assert "Weights" not in text and "MMD" not in text
