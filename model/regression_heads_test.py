"""The bar head and the scaling of targets by their context."""

import pytest
import torch

from model.bar_distribution import BucketConfig, bucket_borders
from model.regression_heads import BarHead, target_statistics
from model.specimens import distance, redraw

FULL = torch.ones(1, 4, dtype=torch.bool)


def test_statistics_are_mean_and_deviation_of_the_context() -> None:
    """6.9 and 6.12: target normalisation by context alone, in fp64."""
    location, scale = target_statistics(torch.tensor([[1.0, 2.0, 4.0, 9.0]]), FULL)
    assert location.dtype is scale.dtype is torch.float64
    assert location.tolist() == [[4.0]]
    assert scale.tolist() == [[pytest.approx((38 / 4) ** 0.5)]]


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e-30, 1e30, 123456.7])
def test_a_constant_target_has_scale_one(value: float) -> None:
    """Rounding is no spread."""
    for dtype in (torch.float32, torch.float64):
        y, mask = torch.full((1, 999), value, dtype=dtype), torch.ones(1, 999, dtype=torch.bool)
        location, scale = target_statistics(y, mask)
        assert float(location) == pytest.approx(value, rel=1e-6)
        assert float(scale) == 1.0


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


def test_the_head_gives_a_distribution_over_its_buckets() -> None:
    """6.9: softmax over buckets; 6.0: a typed distribution that carries its scaling."""
    head = BarHead(8, BucketConfig(num_buckets=16))
    redraw(head)
    location, scale = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
    bars = head(torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)), location=location, scale=scale)
    assert bars.log_mass.shape == (2, 5, 16)
    assert distance(bars.log_mass.exp().sum(-1), torch.ones(2, 5)) < 1e-6
    assert bars.location is location
    assert bars.scale is scale


def test_borders_are_saved_with_the_weights_in_double_precision() -> None:
    """6.9: range and widths are recorded with the checkpoint and identical in training and evaluation."""
    config = BucketConfig(num_buckets=16, border=7.0)
    state = BarHead(8, config).state_dict()
    assert state["borders"].dtype is torch.float64
    assert torch.equal(state["borders"], bucket_borders(config))


def test_mass_is_fp32_under_autocast() -> None:
    """The softmax over buckets is an fp32 island."""
    head = BarHead(8, BucketConfig(num_buckets=16))
    with torch.autocast("cpu", torch.bfloat16):
        bars = head(torch.zeros(1, 2, 8), location=torch.zeros(1, 1), scale=torch.ones(1, 1))
    assert bars.log_mass.dtype is torch.float32
