"""Figures of one episode: every one shows its data, and changes with it."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from reports import readings
from reports.drawing import Picture


def _mask(num_context: int, num_query: int) -> np.ndarray:
    mask = np.zeros((num_context + num_query,) * 2)
    mask[:, :num_context] = 1
    return mask


def _texts(picture: Picture) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture.svg)


CASES: dict[str, Callable[[float], Picture]] = {
    "mask": lambda x: readings.mask_picture(np.where(np.eye(5), x > 2, _mask(3, 2)), num_context=3, name="n"),
    "weights": lambda x: readings.weights_picture(_mask(3, 2) * x * np.eye(5), _mask(3, 2), num_context=3, name="n"),
    "influence": lambda x: readings.influence_picture(
        _mask(3, 2) * np.linspace(1, x, 5), _mask(3, 2), num_context=3, name="n"
    ),
    "read weights": lambda x: readings.read_weights_picture(
        np.array([x, 1, 1]) / (x + 2), np.array([0, 1, 1]), answer=0, name="n"
    ),
    "probabilities": lambda x: readings.probabilities_picture(np.array([x, 1]) / (x + 1), answer=0, name="n"),
    "band": lambda x: readings.band_picture(
        {"context_x": [0, 1], "context_labels": [x, 1], "curve_x": [0, 1]},
        {"0.05": [0, 0], "0.5": [1, 1], "0.95": [2, 2]},
        name="n",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_figure_is_drawn_from_constants(case: str) -> None:
    draw = CASES[case]
    assert draw(3.0).svg == draw(3.0).svg
    assert draw(3.0).svg != draw(2.0).svg


def test_the_mask_picture_names_four_blocks_and_prints_small_masks_cell_by_cell() -> None:
    """5.D, 5.6: the 2 + 2 heat map, block by block and cell by cell."""
    picture = readings.mask_picture(_mask(2, 2), num_context=2, name="n")
    texts = _texts(picture)
    assert [text for text in texts if "→" in text] == ["C→C", "C→Q", "Q→C", "Q→Q"]
    assert [text for text in texts if text in "01"] == ["1", "1", "0", "0"] * 4
    assert "C→C 100% visible, C→Q 0% visible, Q→C 100% visible, Q→Q 0% visible" in picture.alt


def test_a_mask_that_lets_queries_be_read_shows_it() -> None:
    """5.D: the picture is of the tensor itself; one open cell in Q→Q is seen."""
    mask = _mask(20, 4)
    mask[22, 23] = 1
    assert readings.block_shares(mask, 20)["Q→Q"] == 1 / 16
    assert "Q→Q 6%" in _texts(readings.mask_picture(mask, num_context=20, name="n"))


def test_a_weight_on_a_forbidden_key_is_named_a_leak() -> None:
    """5.6: forbidden keys have weight 0, and the caption says what was found."""
    mask, weights = _mask(3, 2), _mask(3, 2) / 3
    assert "forbidden key: 0." in readings.weights_picture(weights, mask, num_context=3, name="n").caption
    weights[0, 4] = 1e-9
    assert readings.forbidden_weight(weights, mask) == 1e-9
    assert "1e-09, which is a leak" in readings.weights_picture(weights, mask, num_context=3, name="n").caption


def test_the_influence_tells_exact_zeros_from_measured_sizes() -> None:
    """5.5, 5.D: forbidden blocks are exactly 0 in the caption, or a leak, however small; a dead allowed one is told."""
    mask = _mask(3, 2)
    sizes = 0.5 * mask + np.eye(5)
    fine = readings.influence_picture(sizes, mask, num_context=3, name="n")
    assert "The 8 forbidden blocks: exactly zero. The 17 allowed ones" in fine.caption
    assert "from 0.5 to 1.5" in fine.caption and "yet 0" not in fine.caption and "anew" not in fine.caption
    redrawn = readings.influence_picture(sizes, mask, num_context=3, name="n", num_redrawn=7)
    assert "7 weight tensors were all zero and were drawn anew" in redrawn.caption
    leaking, dead = sizes.copy(), sizes.copy()
    leaking[4, 3], dead[4, 0] = 1e-12, 0.0
    assert "up to 1e-12, which is a leak" in readings.influence_picture(leaking, mask, num_context=3, name="n").caption
    assert "Allowed, yet 0: 1." in readings.influence_picture(dead, mask, num_context=3, name="n").caption


def test_an_influence_without_any_size_is_drawn() -> None:
    """Of a network that reads nothing at all, or the same everywhere, there is a picture too."""
    for sizes in (np.zeros((4, 4)), np.ones((4, 4))):
        assert "<svg" in readings.influence_picture(sizes, _mask(2, 2), num_context=2, name="n").svg


def test_read_weights_are_grouped_by_label_and_their_sums_are_written() -> None:
    """6.D: query → context read weights drawn, with the class mass that they sum to."""
    weights = np.array([0.5, 0.2, 0.2, 0.1])
    texts = _texts(readings.read_weights_picture(weights, np.array([2, 0, 2, 0]), answer=2, name="n"))
    assert [text for text in texts if text.startswith("Σ")] == ["Σ 0.300", "Σ 0.700"]


def test_of_many_context_rows_the_lightest_are_not_drawn_and_that_is_said() -> None:
    weights, labels = np.full(1000, 0.001), np.arange(1000) % 2
    assert "600 lightest rows" in readings.read_weights_picture(weights, labels, answer=0, name="n").caption
