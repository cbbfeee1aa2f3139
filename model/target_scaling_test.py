"""The scaling of targets by their context."""

import math

import pytest
import torch

from model.target_scaling import SPREAD_FLOOR, TARGET_LIMIT, target_statistics, winsorised

FULL = torch.ones(1, 4, dtype=torch.bool)


def test_statistics_are_mean_and_deviation_of_the_context() -> None:
    """6.9 and 6.12: target normalisation by context alone, in fp64."""
    location, scale = target_statistics(torch.tensor([[1.0, 2.0, 4.0, 9.0]]), FULL)
    assert location.dtype is scale.dtype is torch.float64
    assert location.tolist() == [[4.0]]
    assert scale.tolist() == [[pytest.approx((38 / 4) ** 0.5)]]


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e-30, 123456.7, -1e9, 1e30])
def test_a_constant_target_is_not_blown_up(value: float) -> None:
    """6.9: rounding is no spread: scale 1, or what fp32 can tell apart at that size; scaled labels stay near 0."""
    for dtype in (torch.float32, torch.float64):
        y, mask = torch.full((1, 999), value, dtype=dtype), torch.ones(1, 999, dtype=torch.bool)
        location, scale = target_statistics(y, mask)
        assert float(location) == pytest.approx(value, rel=1e-6)
        assert float(scale) == pytest.approx(max(1.0, SPREAD_FLOOR * abs(value)), rel=1e-6)
        assert float(((y - location) / scale).abs().max()) < 1e-3


@pytest.mark.parametrize("value", [0.1, 5.0, -2000.0, 1e9])
def test_a_target_that_is_constant_but_for_rounding_does_not_explode(value: float) -> None:
    """6.9: one last digit of fp32 in one of 999 rows is no scale (unfloored, that row's label would be 31)."""
    y, mask = torch.full((1, 999), value), torch.ones(1, 999, dtype=torch.bool)
    y[0, 7] = torch.nextafter(y[0, 7], torch.tensor(math.inf))
    location, scale = target_statistics(y, mask)
    assert float(scale) >= 1.0
    assert float(((y - location) / scale).abs().max()) < 1.0
    spread_out = y.clone()
    spread_out[0, ::2] *= 1 + 1e-5
    assert float(target_statistics(spread_out, mask)[1]) == pytest.approx(0.5e-5 * abs(value), rel=0.1)


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_any_unit_is_scaled_away(unit: float) -> None:
    """Squares overflow fp32 at 1e30; they are taken in fp64."""
    y = torch.tensor([[1.0, 2.0, 4.0, 9.0]]) * unit
    location, scale = target_statistics(y, FULL)
    assert ((y - location) / scale).std(correction=0).item() == pytest.approx(1.0, rel=1e-5)


def test_a_small_spread_on_a_large_offset_is_kept() -> None:
    """Years: 2000 … 2003 are not constant."""
    assert float(target_statistics(torch.tensor([[2000.0, 2001.0, 2002.0, 2003.0]]), FULL)[1]) > 1.1


def test_padded_rows_take_no_part() -> None:
    """5.7: and a table without real rows has location 0 and scale 1."""
    y = torch.tensor([[1.0, 3.0, 0.0, 99.0], [5.0, 5.0, 5.0, 5.0]])
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    location, scale = target_statistics(y, mask)
    assert location.tolist() == [[2.0], [0.0]]
    assert scale.tolist() == [[1.0], [1.0]]


def test_training_targets_are_scaled_and_clipped() -> None:
    """6.9: what `losses` compare with; scores take targets as they are."""
    y = torch.tensor([[3.0, 1e9, -1e9]])
    found = winsorised(y, location=torch.tensor([[1.0]]), scale=torch.tensor([[4.0]]))
    assert found.tolist() == [[0.5, TARGET_LIMIT, -TARGET_LIMIT]]
    found = winsorised(y, location=torch.tensor([[1.0]]), scale=torch.tensor([[4.0]]), limit=torch.tensor(300.0))
    assert found.tolist() == [[0.5, 300.0, -300.0]]
