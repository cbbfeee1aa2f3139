"""Borders of every rule: they ascend strictly, follow from the configuration alone, and are recorded with it."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bar_distribution import BarDistribution
from model.bucket_borders import BorderRule, BucketConfig, OutOfRange, bucket_borders, check_ascending, from_prior
from model.specimens import distance
from tools import config as configs
from tools.failure import BadInput, ExitCode

_few = settings(
    derandomize=True, database=None, deadline=None, max_examples=30, phases=[Phase.explicit, Phase.generate]
)


def _prior(seed: int, *, count: int = 20_000) -> Tensor:
    """Scaled targets of a heavy-tailed prior that repeats some values."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.randn(count, generator=generator, dtype=torch.float64)
    heavy = t / torch.rand(count, generator=generator, dtype=torch.float64).clamp_min(0.01).sqrt()
    return torch.where(torch.rand(count, generator=generator) < 0.2, heavy.round(), heavy)


def _config(rule: BorderRule, **sizes: Any) -> BucketConfig:
    config = BucketConfig(rule=BorderRule.SINH if rule is BorderRule.PRIOR_QUANTILES else rule, **sizes)
    return from_prior(config, _prior(0)) if rule is BorderRule.PRIOR_QUANTILES else config


@_few
@given(
    rule=st.sampled_from(BorderRule),
    num_buckets=st.integers(2, 700),
    border=st.floats(0.1, 100.0),
    inner_width=st.floats(0.0005, 1.0),
)
def test_borders_of_every_rule_ascend_strictly(
    rule: BorderRule, num_buckets: int, border: float, inner_width: float
) -> None:
    """6.9: Q + 1 finite borders in fp64, whatever the rule and the sizes."""
    borders = bucket_borders(_config(rule, num_buckets=num_buckets, border=border, inner_width=inner_width))
    assert borders.dtype is torch.float64 and borders.shape == (num_buckets + 1,)
    assert borders.isfinite().all() and (borders.diff() > 0).all()


@_few
@given(
    num_buckets=st.integers(2, 300),
    border=st.floats(1.0, 50.0),
    inner_width=st.floats(0.001, 0.5),
)
def test_sinh_borders_are_symmetric_and_widen_outwards(num_buckets: int, border: float, inner_width: float) -> None:
    """6.9: the default."""
    borders = bucket_borders(BucketConfig(num_buckets=num_buckets, border=border, inner_width=inner_width))
    assert float(borders[-1]) == pytest.approx(border, rel=1e-12)
    assert distance(borders, -borders.flip(0)) < 1e-9
    assert (borders.diff().diff()[num_buckets // 2 :] > -1e-9).all()


@pytest.mark.parametrize(("num_buckets", "inner_width"), [(128, 0.02), (256, 0.02), (512, 0.02), (5000, 0.001)])
def test_central_buckets_have_the_inner_width(num_buckets: int, inner_width: float) -> None:
    """6.9: at every preset size."""
    widths = bucket_borders(BucketConfig(num_buckets=num_buckets, inner_width=inner_width)).diff()
    assert widths[num_buckets // 2].item() == pytest.approx(inner_width, rel=1e-6)


@pytest.mark.parametrize("num_buckets", [5, 7, 129])
def test_the_central_bucket_of_an_odd_number_has_the_inner_width(num_buckets: int) -> None:
    """6.9: around 0 there is one bucket then, and not two."""
    widths = bucket_borders(BucketConfig(num_buckets=num_buckets, inner_width=0.02)).diff()
    assert widths[num_buckets // 2].item() == pytest.approx(0.02, rel=1e-6)
    assert widths.min().item() == pytest.approx(0.02, rel=1e-6)


def test_the_default_borders_are_those_of_earlier_checkpoints() -> None:
    """6.9: borders are identical in training and evaluation; these stand in checkpoints that exist."""
    borders = bucket_borders(BucketConfig())
    measured = {0: -12.0, 1: -11.199369582405147, 64: 0.0, 65: 0.02, 100: 1.7251453061985}
    for index, value in measured.items():
        assert float(borders[index]) == pytest.approx(value, rel=1e-12, abs=1e-15), index


def test_a_width_that_would_not_fit_gives_equal_buckets() -> None:
    """inner_width beyond 2·border/Q; the uniform rule has them for any inner_width."""
    wide = bucket_borders(BucketConfig(num_buckets=10, border=1.0, inner_width=5.0)).diff()
    uniform = bucket_borders(BucketConfig(num_buckets=10, border=1.0, rule=BorderRule.UNIFORM)).diff()
    for widths in (wide, uniform):
        assert distance(widths, torch.full((10,), 0.2, dtype=torch.float64)) < 1e-9


def test_the_knots_are_tabpfn3_s_and_scale_to_any_number_of_buckets() -> None:
    """6.9: full size of 5,000 buckets from -128 to 128, piecewise linear; 1,000 buckets are every fifth border."""
    full = bucket_borders(BucketConfig(num_buckets=5000, rule=BorderRule.TABPFN3))
    knots = {0: -128.0, 5: -16.9, 20: -13.0, 100: -9.9, 200: -8.47, 500: -6.48, 1000: -4.40, 2500: 0.0}
    for index, place in knots.items():
        assert float(full[index]) == pytest.approx(place, abs=1e-12)
        assert float(full[5000 - index]) == pytest.approx(-place, abs=1e-12)
    for low, high in zip(knots, list(knots)[1:], strict=False):
        widths = full[low : high + 1].diff()
        assert distance(widths, widths.mean().expand_as(widths)) < 1e-9
    fifth = bucket_borders(BucketConfig(num_buckets=1000, rule=BorderRule.TABPFN3))
    assert distance(fifth, full[::5]) < 1e-12


@pytest.mark.parametrize("num_buckets", [2, 7, 64, 500])
def test_prior_quantiles_give_every_bucket_the_same_mass(num_buckets: int) -> None:
    """6.9: of the prior's scaled targets, tails included: half of an outer bucket lies beyond its border."""
    smooth = torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    borders = bucket_borders(from_prior(BucketConfig(num_buckets=num_buckets), smooth))
    counts = torch.histogram(smooth, torch.cat([smooth.min()[None] - 1, borders[1:-1], smooth.max()[None] + 1])).hist
    assert float((counts / len(smooth) * num_buckets - 1).abs().max()) < 0.25
    outside = ((smooth < borders[0]).double().mean(), (smooth > borders[-1]).double().mean())
    assert [float(share) * num_buckets for share in outside] == pytest.approx([0.5, 0.5], abs=0.1)


def test_a_prior_that_repeats_values_still_gives_ascending_borders() -> None:
    """Nine tenths of the targets are one number."""
    targets = torch.where(torch.arange(1000) % 10 == 0, torch.linspace(-3, 3, 1000), torch.tensor(0.25)).double()
    borders = bucket_borders(from_prior(BucketConfig(num_buckets=100), targets))
    assert (borders.diff() > 0).all()
    assert ((borders - 0.25).abs() < 0.01).double().mean() > 0.8


@pytest.mark.parametrize("rule", list(BorderRule))
def test_the_config_survives_json_with_the_same_borders(rule: BorderRule) -> None:
    """6.9: range, widths and out-of-range policy are recorded with the checkpoint, and bring back the same borders."""
    config = _config(rule, num_buckets=77, border=9.5, inner_width=0.03)
    text = configs.to_json(config)
    assert text["out_of_range"] == "half_normal" and text["rule"] == rule.value
    again = configs.from_json(BucketConfig, text)
    assert again == config and again.out_of_range is OutOfRange.HALF_NORMAL
    assert torch.equal(bucket_borders(again), bucket_borders(config))


@pytest.mark.parametrize("rule", list(BorderRule))
def test_borders_take_no_memory_on_the_meta_device(rule: BorderRule) -> None:
    """Presets of any size are counted without building them."""
    config = _config(rule, num_buckets=50)
    with torch.device("meta"):
        borders = bucket_borders(config)
    assert borders.is_meta and borders.shape == (51,)


_LISTED = BucketConfig(num_buckets=3, rule=BorderRule.PRIOR_QUANTILES, borders=(-1.0, 0.0, 1.0, 2.0))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_buckets": 1}, "num_buckets is 1: give 2 or more"),
        ({"borders": (-1.0, 0.0, 0.0, 2.0)}, r"buckets.borders\[1\] is 0.0 and .*\[2\] is 0.0: .* ascend strictly"),
        ({"borders": (-1.0, 3.0, 1.0, 4.0)}, r"\[1\] is 3.0 and .*\[2\] is 1.0"),
        ({"borders": (-1.0, 0.0, 1.0, math.inf)}, r"\[3\] is inf: borders must be finite"),
        ({"borders": (-1.0, 0.0, 1.0)}, "has 3 values: give 4"),
        ({"rule": BorderRule.SINH}, "has 4 values: give 0 under the rule sinh"),
        ({"border": 0.0}, "border is 0.0: give a positive number"),
        ({"inner_width": math.nan}, "inner_width is nan"),
    ],
)
def test_borders_that_cannot_be_are_refused(changes: dict[str, Any], match: str) -> None:
    """Bad input: a ValueError that names argument, value and what is allowed."""
    assert bucket_borders(_LISTED).tolist() == [-1.0, 0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match=match) as caught:
        bucket_borders(dataclasses.replace(_LISTED, **changes))
    assert isinstance(caught.value, BadInput) and caught.value.code is ExitCode.BAD_FLAG


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        (torch.zeros(100), "all 0"),
        (torch.arange(9.0), "9 values for 5 buckets"),
        (torch.tensor([1.0, math.nan, math.inf] * 10), "20 values that are not finite"),
    ],
)
def test_prior_targets_that_give_no_borders_are_refused(targets: Tensor, match: str) -> None:
    """Bad input, from the prior's side."""
    with pytest.raises(BadInput, match=match):
        from_prior(BucketConfig(num_buckets=5), targets)


def test_a_distribution_refuses_borders_that_do_not_ascend() -> None:
    """Bad input, where somebody makes a distribution by hand."""
    borders = torch.tensor([0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"borders\[1\] is 1.0"):
        check_ascending("borders", borders)
    with pytest.raises(ValueError, match=r"borders\[1\] is 1.0"):
        BarDistribution(
            log_mass=torch.zeros(1, 1, 2), borders=borders, location=torch.zeros(1, 1), scale=torch.ones(1, 1)
        )
