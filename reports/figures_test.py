"""Figures of a run: every one shows its data, and changes with it."""

import re
from collections.abc import Callable

import pytest

from reports import figures
from reports.drawing import Picture
from reports.figures import Curve, ModelScore


def _texts(picture: Picture) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture.svg)


def _scores(best: float) -> list[ModelScore]:
    ours = ModelScore(label="veritab", values=[best, best - 0.01], is_ours=True)
    return [ModelScore(label="linear", values=[0.9, 0.91], is_ours=False), ours]


CASES: dict[str, Callable[[float], Picture]] = {
    "record curve": lambda x: figures.record_curve(Curve(steps=[1, 2], values=[x, 1]), name="n", title="t", unit="u"),
    "validation": lambda x: figures.validation_curves(
        {"all": Curve(steps=[1, 2], values=[x, 1])}, name="n", title="t", unit="u"
    ),
    "scores": lambda x: figures.score_picture(_scores(x / 4), name="n", title="t", unit="u", higher_is_better=True),
    "seconds": lambda x: figures.seconds_picture({"train": x, "score": 1.0}, name="n"),
    "growth": lambda x: figures.growth_picture(
        Curve(steps=[8, 16, 32], values=[0.1, 0.2 * x, 0.9]), Curve(steps=[8, 16], values=[0.1, 0.2]), name="n"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_figure_is_drawn_from_constants(case: str) -> None:
    draw = CASES[case]
    assert draw(3.0).svg == draw(3.0).svg
    assert draw(3.0).svg != draw(2.0).svg


def test_models_are_ranked_by_the_metrics_direction_and_values_are_written() -> None:
    high = figures.score_picture(_scores(0.95), name="n", title="t", unit="u", higher_is_better=True)
    low = figures.score_picture(_scores(0.95), name="n", title="t", unit="u", higher_is_better=False)
    labels = ("veritab", "linear")
    assert [text for text in _texts(high) if text in labels] == ["veritab", "linear"]
    assert [text for text in _texts(low) if text in labels] == ["linear", "veritab"]
    assert {"0.945", "0.905"} <= set(_texts(high))


def test_one_hopeless_model_does_not_hide_the_rest() -> None:
    good = [ModelScore(label=f"m{i}", values=[0.99 - 0.002 * i], is_ours=False) for i in range(5)]
    bad = ModelScore(label="majority", values=[0.5], is_ours=False)
    picture = figures.score_picture([*good, bad], name="n", title="t", unit="u", higher_is_better=True)
    ticks = [float(text) for text in _texts(picture) if re.fullmatch(r"0\.9\d+", text)]
    assert min(ticks) > 0.9 and "0.500" in _texts(picture) and "Arrow" in picture.caption


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5], [float("nan"), 0.5]])
def test_short_flat_and_broken_curves_are_drawn(values: list[float]) -> None:
    curve = Curve(steps=list(range(len(values))), values=values)
    assert "<svg" in figures.record_curve(curve, name="n", title="t", unit="u").svg
    assert "<svg" in figures.validation_curves({"all": curve}, name="n", title="t", unit="u").svg


def test_the_cost_of_a_prediction_carries_the_slopes_that_were_found() -> None:
    """1.6: measured growth with N is drawn: quadratic in the context here, linear in the queries."""
    rows = [100, 200, 400, 800]
    context = Curve(steps=rows, values=[1e-6 * n**2 for n in rows])
    query = Curve(steps=rows, values=[1e-4 * n for n in rows])
    texts = _texts(figures.growth_picture(context, query, name="n"))
    assert "context rows, slope 2.00" in texts and "query rows, slope 1.00" in texts
