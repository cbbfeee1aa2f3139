"""Figures of the labs: each shows its data, changes with it, and says what it may not be taken for."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from reports import lab_figures
from reports.drawing import Picture


def _texts(picture: Picture) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture.svg)


def _duplication(x: float) -> Picture:
    episode = {
        "copies": [0, 1, 4],
        "reader": "head",
        "mass": [[0.1, 0.2], [0.2, 0.3], [0.4, x]],
        "frozen_mass": [[0.1, 0.2], [0.2, 0.3], [0.4, 0.6]],
        "towards": [[0.0, 0.0], [0.1, 0.0], [-0.1, 0.2]],
    }
    return lab_figures.duplication_picture([episode, episode], name="n", kind="classification")


def _view(x: float, *, kind: str = "classification") -> dict[str, Any]:
    return {
        "kind": kind,
        "reader": "head" if kind == "classification" else "last block",
        "num_context": 3,
        "x_context": [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]],
        "y_context": [0.0, 1.0, 1.0],
        "x_query": [[0.5, 0.5], [1.5, 1.5]],
        "y_query": [1.0, 0.0],
        "weights": [[x, 0.5, 0.4], [0.3, 0.3, 0.4]],
        "attention_first": [[x, 0.5, 0.4, 0.0, 0.0]] * 5,
        "attention_last": [[0.2, 0.4, 0.4, 0.0, 0.0]] * 5,
        "order_context": [0, 1, 2],
        "order_query": [1, 0],
    }


def _curves(x: float) -> dict[str, Any]:
    lines = {"x": [0.0, 1.0], "truth_mean": [0.0, 1.0], "truth_low": [-1.0, 0.0], "truth_high": [1.0, 2.0]}
    heads = {
        "bar": {"mean": [0.1, 1.0], "low": [-x, 0.1], "high": [0.9, 1.8]},
        "scalar": {"mean": [0.2, 0.8], "low": None, "high": None},
    }
    return {"outliers": {"x_context": [0.5, 0.6], "y_context": [0.0, 9.0], **lines, "heads": heads}}


def _table(x: float) -> dict[str, Any]:
    def score(value: float | None) -> dict[str, Any]:
        return {"per_seed": [value, value], "mean": value, "low": None, "high": None}

    known = {"per_seed": [x, 0.2], "mean": (x + 0.2) / 2, "low": 0.1, "high": 0.5}
    bar = {"centre_rmse": known, "coverage": score(0.88), "width_ratio": score(1.2)}
    scalar = {"centre_rmse": score(0.2), "coverage": score(None), "width_ratio": score(None)}
    return {arm: {"outliers": {"bar": bar, "scalar": scalar}} for arm in ("whole", "frozen")}


def _ways(x: float) -> dict[str, Any]:
    sides = {
        f"{side}_{unit}": values
        for side in ("context", "query")
        for unit, values in (("rows", [8, 16, 32]), ("seconds", [0.1, 0.2, x]), ("flops", [1e6, 4e6, 1.6e7]))
    }
    slopes = {f"{side}_{unit}_slope": 2.0 for side in ("context", "query") for unit in ("seconds", "flops")}
    return {"fast": {"fixed_context_rows": 64, "fixed_query_rows": 8, **sides, **slopes}}


CASES: dict[str, Callable[[float], Picture]] = {
    "duplication": _duplication,
    "weights": lambda x: lab_figures.weights_picture(_view(x), name="n"),
    "places": lambda x: lab_figures.places_picture(_view(x), name="n", queries=[0]),
    "places on a line": lambda x: lab_figures.places_picture(_view(x, kind="regression"), name="n", queries=[0]),
    "blocks": lambda x: lab_figures.blocks_picture(_view(x), name="n"),
    "intervals": lambda x: lab_figures.interval_picture(_curves(x), name="n"),
    "heads": lambda x: lab_figures.trial_picture(_table(x), name="n", yardsticks={"outliers": 1.0}),
    "cost": lambda x: lab_figures.cost_picture(_ways(x), name="n"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_figure_is_drawn_from_constants(case: str) -> None:
    draw = CASES[case]
    assert draw(0.3).svg == draw(0.3).svg
    assert draw(0.3).svg != draw(0.2).svg and "<svg" in draw(0.3).svg
    assert draw(0.3).caption and draw(0.3).alt


def test_a_copied_row_is_called_a_phenomenon() -> None:
    """6.B: reported as a phenomenon, not as bias or cause."""
    assert "phenomenon, not as bias or cause" in " ".join(_duplication(0.5).caption.split())
    assert "0.150 without copies, 0.450 with 4" in _duplication(0.5).alt


@pytest.mark.parametrize("case", ["weights", "places", "places on a line", "blocks"])
def test_read_weights_state_their_boundary(case: str) -> None:
    """6.F: neither causal neighbours nor a conclusion about mechanism."""
    assert "neither causal neighbours nor a conclusion about mechanism" in CASES[case](0.1).caption


def test_the_heat_map_is_sorted_by_class() -> None:
    """6.D: a swap of two context rows and of their place in the order changes nothing."""
    view = _view(0.1)
    swapped = copy.deepcopy(view)
    swapped["weights"] = [[row[1], row[0], row[2]] for row in view["weights"]]
    swapped["y_context"], swapped["order_context"] = [1.0, 0.0, 1.0], [1, 0, 2]
    first, second = (lab_figures.weights_picture(one, name="n").svg for one in (view, swapped))
    assert first == second
    swapped["order_context"] = [0, 1, 2]
    assert lab_figures.weights_picture(swapped, name="n").svg != first


def test_a_query_that_is_read_is_called_a_leak() -> None:
    """5.6: the lab's picture does not hide one."""
    view = _view(0.1)
    assert "no query is read" in lab_figures.blocks_picture(view, name="n").caption
    view["attention_last"] = [[0.2, 0.4, 0.3, 0.1, 0.0]] * 5
    assert "leak" in lab_figures.blocks_picture(view, name="n").caption


def test_a_point_has_no_interval_in_the_picture_and_it_says_so() -> None:
    """6.0, 6.C."""
    picture = lab_figures.interval_picture(_curves(0.5), name="n")
    assert "scalar none (true 2.000)" in picture.alt and "bar 1.550 (true 2.000)" in picture.alt
    assert "a point has none" in picture.caption
    assert "scalar coverage" not in lab_figures.trial_picture(_table(0.3), name="n", yardsticks={"outliers": 1.0}).alt


def test_slopes_are_written_beside_the_lines() -> None:
    """1.6: fitted exponents are reported."""
    assert "fast, slope 2.00" in _texts(lab_figures.cost_picture(_ways(0.4), name="n"))
