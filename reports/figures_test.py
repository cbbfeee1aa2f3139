"""Figures: every one shows its data, and changes with it."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from reports import figures
from reports.drawing import Picture
from reports.figures import Curve, ModelScore


def _mask(num_context: int, num_query: int) -> np.ndarray:
    mask = np.zeros((num_context + num_query,) * 2)
    mask[:, :num_context] = 1
    return mask


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
    "mask": lambda x: figures.mask_picture(np.where(np.eye(5), x > 2, _mask(3, 2)), num_context=3, name="n"),
    "weights": lambda x: figures.weights_picture(_mask(3, 2) * x * np.eye(5), _mask(3, 2), num_context=3, name="n"),
    "read weights": lambda x: figures.read_weights_picture(
        np.array([x, 1, 1]) / (x + 2), np.array([0, 1, 1]), answer=0, name="n"
    ),
    "probabilities": lambda x: figures.probabilities_picture(np.array([x, 1]) / (x + 1), answer=0, name="n"),
    "band": lambda x: figures.band_picture(
        {"context_x": [0, 1], "context_labels": [x, 1], "curve_x": [0, 1]},
        {"0.05": [0, 0], "0.5": [1, 1], "0.95": [2, 2]},
        name="n",
    ),
    "scores": lambda x: figures.score_picture(_scores(x / 4), name="n", title="t", unit="u", higher_is_better=True),
    "seconds": lambda x: figures.seconds_picture({"train": x, "score": 1.0}, name="n"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_figure_is_drawn_from_constants(case: str) -> None:
    draw = CASES[case]
    assert draw(3.0).svg == draw(3.0).svg
    assert draw(3.0).svg != draw(2.0).svg


def test_the_mask_picture_names_four_blocks_and_prints_small_masks_cell_by_cell() -> None:
    """5.D, 5.6: the 2 + 2 heat map, block by block and cell by cell."""
    picture = figures.mask_picture(_mask(2, 2), num_context=2, name="n")
    texts = _texts(picture)
    assert [text for text in texts if "→" in text] == ["C→C", "C→Q", "Q→C", "Q→Q"]
    assert [text for text in texts if text in "01"] == ["1", "1", "0", "0"] * 4
    assert "C→C 100% visible, C→Q 0% visible, Q→C 100% visible, Q→Q 0% visible" in picture.alt


def test_a_mask_that_lets_queries_be_read_shows_it() -> None:
    """5.D: the picture is of the tensor itself; one open cell in Q→Q is seen."""
    mask = _mask(20, 4)
    mask[22, 23] = 1
    assert figures.block_shares(mask, 20)["Q→Q"] == 1 / 16
    assert "Q→Q 6%" in _texts(figures.mask_picture(mask, num_context=20, name="n"))


def test_a_weight_on_a_forbidden_key_is_named_a_leak() -> None:
    """5.6: forbidden keys have weight 0, and the caption says what was found."""
    mask, weights = _mask(3, 2), _mask(3, 2) / 3
    assert "forbidden key: 0." in figures.weights_picture(weights, mask, num_context=3, name="n").caption
    weights[0, 4] = 1e-9
    assert figures.forbidden_weight(weights, mask) == 1e-9
    assert "1e-09, which is a leak" in figures.weights_picture(weights, mask, num_context=3, name="n").caption


def test_read_weights_are_grouped_by_label_and_their_sums_are_written() -> None:
    """6.D: query → context read weights drawn, with the class mass that they sum to."""
    weights = np.array([0.5, 0.2, 0.2, 0.1])
    texts = _texts(figures.read_weights_picture(weights, np.array([2, 0, 2, 0]), answer=2, name="n"))
    assert [text for text in texts if text.startswith("Σ")] == ["Σ 0.300", "Σ 0.700"]


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
