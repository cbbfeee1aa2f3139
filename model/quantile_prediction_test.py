"""Quantiles at fixed levels: losses, crossing and its repair, what lies between and beyond them."""

import dataclasses
import math
import statistics

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from model.quantile_prediction import CrossingRepair, QuantilePrediction, isotonic
from model.specimens import distance
from model.target_scaling import TARGET_LIMIT
from tools.failure import BadInput, ExitCode

_few = settings(
    derandomize=True, database=None, deadline=None, max_examples=20, phases=[Phase.explicit, Phase.generate]
)
_NORMAL = statistics.NormalDist()


def _levels(count: int) -> Tensor:
    return torch.arange(1, count + 1, dtype=torch.float64) / (count + 1)


def _crossed(seed: int, *, count: int = 19, repair: CrossingRepair = CrossingRepair.SORT) -> QuantilePrediction:
    """Three tables of two queries whose quantiles rise on the whole and cross in places."""
    noise = torch.randn(3, 2, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return QuantilePrediction(
        values=torch.linspace(-2, 2, count).double() + 0.3 * noise,
        levels=_levels(count),
        location=torch.tensor([[0.0], [5.0], [-1e3]], dtype=torch.float64),
        scale=torch.tensor([[1.0], [0.1], [40.0]], dtype=torch.float64),
        repair=repair,
    )


def _normal(mean: float, deviation: float, *, count: int = 99) -> QuantilePrediction:
    """The quantiles of a normal distribution."""
    values = torch.special.ndtri(_levels(count)).expand(1, 1, -1)
    location, scale = torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[deviation]], dtype=torch.float64)
    return QuantilePrediction(values=values, levels=_levels(count), location=location, scale=scale)


def test_the_loss_is_the_mean_pinball_loss_on_the_scaled_axis() -> None:
    """6.10: by hand at three levels; winsorised like every training loss."""
    prediction = QuantilePrediction(
        values=torch.tensor([[[-1.0, 0.0, 2.0]]]),
        levels=_levels(3),
        location=torch.tensor([[10.0]]),
        scale=torch.tensor([[2.0]]),
    )
    assert prediction.losses(torch.tensor([[12.0]])).item() == pytest.approx((0.25 * 2 + 0.5 * 1 + 0.25 * 1) / 3)
    far, limit = torch.tensor([[1e9]]), torch.tensor([[10.0 + 2.0 * TARGET_LIMIT]])
    assert distance(prediction.losses(far), prediction.losses(limit)) == 0


def test_the_pinball_loss_is_least_at_the_quantiles() -> None:
    """6.10: over 20,000 draws of a normal, its own quantiles lose less than quantiles that are moved or stretched."""
    y = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(mean: float, deviation: float) -> float:
        normal = _normal(0.0, 1.0)
        moved = dataclasses.replace(normal, values=(normal.values * deviation + mean).expand(1, 20_000, -1))
        return float(moved.losses(y).mean())

    assert loss(0.0, 1.0) < min(loss(0.2, 1.0), loss(-0.2, 1.0), loss(0.0, 1.2), loss(0.0, 0.8)) - 0.001


def test_the_crossing_rate_counts_neighbours_in_the_wrong_order() -> None:
    """6.10: recorded before the repair, whatever the repair."""
    values = torch.tensor([[[0.0, 1.0, 0.5, 0.5, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 4.0, 3.0, 2.0, 1.0]]])
    for repair in CrossingRepair:
        prediction = QuantilePrediction(
            values=values, levels=_levels(5), location=torch.zeros(1, 1), scale=torch.ones(1, 1), repair=repair
        )
        assert prediction.crossing_rate().tolist() == [[0.25, 0.0, 1.0]]
        left = prediction.repaired().crossing_rate()
        assert (left == 0).all() if repair is not CrossingRepair.NONE else torch.equal(left, prediction.crossing_rate())


def test_a_nan_is_not_counted_as_in_order() -> None:
    """6.10: a network that gives NaN has no crossing rate, in place of a perfect one; its neighbours keep theirs."""
    values = torch.tensor([[[0.0, math.nan, 2.0], [math.nan] * 3, [0.0, 2.0, 1.0]]])
    found = QuantilePrediction(
        values=values, levels=_levels(3), location=torch.zeros(1, 1), scale=torch.ones(1, 1)
    ).crossing_rate()
    assert found[0, :2].isnan().all() and found[0, 2] == 0.5


@_few
@given(seed=st.integers(0, 1000), count=st.integers(2, 40))
def test_a_repaired_prediction_never_crosses(seed: int, count: int) -> None:
    """6.10: sorting keeps the values and never loses by the pinball loss; every quantile read ascends."""
    levels = torch.linspace(0.001, 0.999, 333, dtype=torch.float64)
    y = 3 * torch.randn(3, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for repair in (CrossingRepair.SORT, CrossingRepair.ISOTONIC):
        crossed = _crossed(seed, count=count, repair=repair)
        y_on_axis = y * crossed.scale + crossed.location
        repaired = crossed.repaired()
        assert (repaired.crossing_rate() == 0).all()
        assert (crossed.icdf(levels).diff(dim=-1) >= -1e-9).all()
        assert distance(crossed.icdf(levels), repaired.icdf(levels)) == 0
        if repair is CrossingRepair.SORT:
            assert torch.equal(repaired.values, crossed.values.sort(dim=-1).values)
            assert (repaired.losses(y_on_axis) <= crossed.losses(y_on_axis) + 1e-12).all()


@_few
@given(seed=st.integers(0, 1000), count=st.integers(1, 40))
def test_isotonic_repair_is_the_least_squares_one(seed: int, count: int) -> None:
    """6.10: against scikit-learn's pooling of adjacent violators."""
    values = _crossed(seed, count=count).values
    wanted = [torch.from_numpy(isotonic_regression(row.numpy())) for row in values.flatten(0, 1)]
    assert distance(isotonic(values).flatten(0, 1), torch.stack(wanted)) < 1e-12


def test_training_sees_the_quantiles_as_the_network_gave_them() -> None:
    """6.10: the repair belongs to reading: a loss after sorting would not know which output is which level."""
    y = torch.tensor([[0.3, -0.4]] * 3, dtype=torch.float64)
    losses = [_crossed(2, repair=repair).losses(y) for repair in CrossingRepair]
    assert torch.equal(losses[0], losses[1]) and torch.equal(losses[0], losses[2])
    assert (losses[0] > _crossed(2).repaired().losses(y)).any()


def test_without_a_repair_crossed_quantiles_show() -> None:
    """6.10: the option is recorded and does what it says."""
    prediction = _crossed(0, repair=CrossingRepair.NONE)
    assert (prediction.icdf(prediction.levels).diff(dim=-1) < 0).any()
    assert torch.equal(prediction.repaired().values, prediction.values)


def test_quantiles_at_the_levels_are_the_values_and_those_between_are_linear() -> None:
    """6.10: the policy between levels."""
    prediction = _crossed(1)
    values = prediction.repaired().values * prediction.scale[..., None] + prediction.location[..., None]
    assert distance(prediction.icdf(prediction.levels), values) < 1e-9
    between = 0.75 * prediction.levels[:-1] + 0.25 * prediction.levels[1:]
    wanted = 0.75 * values[..., :-1] + 0.25 * values[..., 1:]
    assert distance(prediction.icdf(between), wanted) < 1e-9


def test_beyond_the_outermost_levels_the_quantiles_are_those_of_a_normal() -> None:
    """6.10: the policy beyond: exact for a normal distribution, without end, and continuous at the outermost level."""
    prediction = _normal(3.0, 2.0)
    levels = torch.tensor([1e-12, 1e-4, 0.01 - 1e-9, 0.5, 0.99 + 1e-9, 0.9999, 1 - 1e-12], dtype=torch.float64)
    wanted = [3 + 2 * _NORMAL.inv_cdf(float(level)) for level in levels]
    assert prediction.icdf(levels)[0, 0].tolist() == pytest.approx(wanted, rel=1e-6)


def test_mean_median_interval_coverage_and_width_are_those_of_the_distribution() -> None:
    """6.10: a normal's, and a skewed distribution's mean by the integral of its quantile function."""
    prediction = _normal(3.0, 2.0)
    assert prediction.mean().item() == pytest.approx(3.0)
    assert prediction.median().item() == pytest.approx(3.0)
    z = _NORMAL.inv_cdf(0.95)
    assert prediction.central_interval(0.9)[0, 0].tolist() == pytest.approx([3 - 2 * z, 3 + 2 * z], rel=1e-4)
    assert prediction.width(0.9).item() == pytest.approx(4 * z, rel=1e-4)
    y = 3 + 2 * torch.tensor([[-z - 0.01, -z + 0.01, 0.0, z - 0.01, z + 0.01]], dtype=torch.float64)
    covered = [bool(prediction.covers(y[:, [i]], level=0.9)) for i in range(5)]
    assert covered == [False, True, True, True, False]
    skewed = dataclasses.replace(prediction, values=(0.5 * prediction.values).exp())
    assert skewed.mean().item() == pytest.approx(3 + 2 * math.exp(0.125), rel=2e-3)


@_few
@given(seed=st.integers(0, 1000), count=st.integers(2, 30))
def test_the_mean_is_the_integral_of_the_quantile_function(seed: int, count: int) -> None:
    """6.10: numerically, tails included."""
    prediction = _crossed(seed, count=count)
    levels = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    wanted = prediction.icdf(levels).mean(-1)
    assert float(((prediction.mean() - wanted) / prediction.scale).abs().max()) < 1e-4


@_few
@given(seed=st.integers(0, 1000), factor=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_everything_follows_the_unit_of_y(seed: int, factor: float, shift: float) -> None:
    """6.10: under y → a·y + b places follow, widths are multiplied by a, and the loss on the scaled axis stays."""
    before = _crossed(seed)
    after = dataclasses.replace(before, location=before.location * factor + shift, scale=before.scale * factor)
    levels, tolerance = torch.tensor([0.001, 0.3, 0.98]), 1e-9 * (factor * 1e4 + abs(shift))
    assert distance(after.mean(), before.mean() * factor + shift) < tolerance
    assert distance(after.icdf(levels), before.icdf(levels) * factor + shift) < tolerance
    assert distance(after.width(0.9), before.width(0.9) * factor) < tolerance
    y = before.location + 0.4 * before.scale.expand(3, 2)
    assert distance(after.losses(y * factor + shift), before.losses(y)) < 1e-5


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    """Bad input: a ValueError that names argument, value and what is allowed."""
    prediction = _crossed(0)
    for call in (
        lambda: prediction.icdf(torch.tensor([0.5, level])),
        lambda: prediction.width(level),
        lambda: prediction.covers(torch.zeros(3, 2), level=level),
    ):
        with pytest.raises(ValueError, match=rf"holds {level:g}: give levels inside \(0, 1\)") as caught:
            call()
        assert isinstance(caught.value, BadInput) and caught.value.code is ExitCode.BAD_LEVEL
