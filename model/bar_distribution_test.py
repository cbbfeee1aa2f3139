"""The bar distribution: density, cdf, quantiles, moments and CRPS describe one and the same distribution."""

import dataclasses
import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bar_distribution import BarDistribution
from model.bucket_borders import BorderRule, BucketConfig, bucket_borders
from model.specimens import distance
from model.target_scaling import TARGET_LIMIT
from tools.failure import BadInput, ExitCode

_few = settings(
    derandomize=True, database=None, deadline=None, max_examples=20, phases=[Phase.explicit, Phase.generate]
)
_rules = st.sampled_from([BorderRule.SINH, BorderRule.UNIFORM, BorderRule.TABPFN3])
_configs = st.builds(
    BucketConfig,
    num_buckets=st.integers(2, 300),
    rule=_rules,
    border=st.floats(1.0, 50.0),
    inner_width=st.floats(0.001, 0.5),
)
_coarse = st.builds(BucketConfig, num_buckets=st.integers(2, 24), rule=_rules, inner_width=st.floats(0.05, 0.5))
_seeds = st.integers(0, 1000)
_SCALES = torch.tensor([[1.0], [0.01], [250.0]], dtype=torch.float64)
_LOCATIONS = torch.tensor([[0.0], [-3.0], [1e4]], dtype=torch.float64)


def _bars(config: BucketConfig, seed: int, *, dtype: torch.dtype = torch.float64) -> BarDistribution:
    """Three tables of two queries, with random masses."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(3, 2, config.num_buckets, generator=generator, dtype=torch.float64)
    return BarDistribution(
        log_mass=torch.log_softmax(logits.to(dtype), -1),
        borders=bucket_borders(config),
        location=_LOCATIONS,
        scale=_SCALES,
    )


def _unshifted(bars: BarDistribution) -> BarDistribution:
    """On the scaled axis, where adding a location does not round tails away."""
    return dataclasses.replace(bars, location=_LOCATIONS * 0, scale=_SCALES / _SCALES)


def _cuts(bars: BarDistribution, *, tails: float) -> Tensor:
    """Points [S + 1] on the scaled axis that refine every bucket and reach `tails` sigmas beyond the ends."""
    widths = bars.borders.diff()
    steps = torch.linspace(0, 1, 101, dtype=torch.float64)[:-1]
    reach = torch.linspace(0, tails, 2000, dtype=torch.float64) / 0.6745
    inner = (bars.borders[:-1, None] + steps * widths[:, None]).flatten()
    low, high = bars.borders[0] - widths[0] * reach[1:].flip(0), bars.borders[-1] + widths[-1] * reach
    return torch.cat([low, inner, high])


def _on_axis_of_y(bars: BarDistribution, t: Tensor) -> Tensor:
    return t * bars.scale[..., None] + bars.location[..., None]


@settings(parent=_few, max_examples=10)
@given(config=_coarse, seed=_seeds)
def test_density_integrates_to_1_and_its_moments_are_mean_and_variance(config: BucketConfig, seed: int) -> None:
    """6.9: ∫p = 1, ∫y·p = mean and ∫(y − mean)²·p = variance, tails included, in units of y."""
    bars = _bars(config, seed)
    cuts = _on_axis_of_y(bars, _cuts(bars, tails=9.0))
    y, width = 0.5 * (cuts[..., 1:] + cuts[..., :-1]), cuts.diff(dim=-1)
    weight = bars.density(y) * width
    reach = bars.borders[-1] * bars.scale
    assert distance(weight.sum(-1), torch.ones(3, 2)) < 1e-5
    assert distance((weight * y).sum(-1) / reach, bars.mean() / reach) < 1e-4 + 1e-5 * float((_LOCATIONS / reach).max())
    spread = (weight * (y - bars.mean()[..., None]) ** 2).sum(-1)
    assert torch.allclose(spread, bars.variance(), rtol=1e-3)


@settings(parent=_few, max_examples=8)
@given(config=_coarse, seed=_seeds)
def test_density_is_the_derivative_of_the_cdf(config: BucketConfig, seed: int) -> None:
    """6.9: differences of the cdf over small intervals equal density times width; those of the sf, their negative."""
    bars = _bars(config, seed)
    cuts = _on_axis_of_y(bars, _cuts(bars, tails=4.0))
    steps, falls = bars.cdf(cuts).diff(dim=-1), bars.sf(cuts).diff(dim=-1)
    mass = bars.density(0.5 * (cuts[..., 1:] + cuts[..., :-1])) * cuts.diff(dim=-1)
    assert (steps >= 0).all() and (falls <= 0).all()
    assert distance(steps, mass) < 1e-6 and distance(falls, -mass) < 1e-6


@_few
@given(config=_configs, seed=_seeds)
def test_cdf_and_sf_add_up_to_1(config: BucketConfig, seed: int) -> None:
    """6.9: two sides of one distribution, each computed from its own end."""
    bars = _bars(config, seed)
    y = _on_axis_of_y(bars, _cuts(bars, tails=6.0)[::37])
    assert distance(bars.cdf(y) + bars.sf(y), torch.ones_like(bars.cdf(y))) < 1e-12


@_few
@given(config=_configs, seed=_seeds)
def test_quantiles_invert_the_cdf_out_to_the_far_tails(config: BucketConfig, seed: int) -> None:
    """6.9: any quantile by inverting the cdf: cdf∘icdf = id and sf∘isf = id down to 1e-200."""
    bars = _unshifted(_bars(config, seed))
    tails = [1e-200, 1e-100, 1e-30, 1e-12, 1e-6]
    levels = torch.tensor([*tails, *torch.linspace(0.001, 0.999, 97).tolist(), 1 - 1e-9], dtype=torch.float64)
    quantiles, upper = bars.icdf(levels), bars.isf(levels)
    assert quantiles.shape == upper.shape == (3, 2, len(levels))
    assert (quantiles.diff(dim=-1) >= 0).all() and (upper.diff(dim=-1) <= 0).all()
    wanted = levels.expand(3, 2, -1)
    assert torch.allclose(bars.cdf(quantiles), wanted, rtol=1e-9, atol=0)
    assert torch.allclose(bars.sf(upper), wanted, rtol=1e-9, atol=0)
    assert torch.allclose(bars.sf(quantiles), 1 - wanted, rtol=1e-6, atol=1e-12)


@_few
@given(config=_configs, seed=_seeds)
def test_a_level_close_to_1_leaves_exactly_what_is_above_it(config: BucketConfig, seed: int) -> None:
    """6.9: sf(icdf(p)) = 1 − p to nine digits even where that is 2⁻⁵⁰: upper levels are looked up from above."""
    bars = _unshifted(_bars(config, seed))
    above = torch.tensor([2.0**-power for power in (2, 10, 30, 40, 50)], dtype=torch.float64)
    wanted = above.expand(3, 2, -1)
    assert torch.allclose(bars.sf(bars.icdf(1 - above)), wanted, rtol=1e-9, atol=0)
    assert torch.allclose(bars.cdf(bars.isf(1 - above)), wanted, rtol=1e-9, atol=0)


@_few
@given(config=_configs, seed=_seeds)
def test_the_cdf_and_the_sf_are_inverted_by_quantiles_out_to_the_far_tails(config: BucketConfig, seed: int) -> None:
    """6.9: icdf∘cdf = id below the middle, isf∘sf = id above it: borders, insides, and 30 deviations into each tail."""
    bars = _unshifted(_bars(config, seed))
    widths = bars.borders.diff()
    reach = torch.tensor([0.1, 1.0, 5.0, 20.0], dtype=torch.float64)  # in widths of the outer bucket: 0.67 deviations
    inside = bars.borders[:-1] + 0.3 * widths
    t = torch.cat([bars.borders[0] - widths[0] * reach, bars.borders, inside, bars.borders[-1] + widths[-1] * reach])
    y = t.sort().values.expand(3, 2, -1)
    lower, upper = bars.cdf(y), bars.sf(y)
    assert (lower > 0).all() and (upper > 0).all()
    last = torch.finfo(torch.float64).eps / 2  # a level of exactly 1 is none
    left, right = bars.icdf(lower.clamp_max(1 - last)), bars.isf(upper.clamp_max(1 - last))
    reach_of = float(bars.borders[-1])
    assert float(torch.where(lower <= 0.5, left - y, 0.0).abs().max()) < 1e-7 * reach_of
    assert float(torch.where(upper <= 0.5, right - y, 0.0).abs().max()) < 1e-7 * reach_of


@pytest.mark.parametrize("z", [0.5, 5.0, 20.0, 37.0])
def test_tails_are_exact_where_1_minus_cdf_would_be_0(z: float) -> None:
    """6.9: in fp64: P(T > border + zσ) = m·erfc(z/√2), to 12 digits at 37 deviations (1e-300), on both sides."""
    bars = _unshifted(_bars(BucketConfig(num_buckets=8), 4))
    mass, widths = bars.log_mass.exp(), bars.borders.diff()
    sigma = widths[-1] / 0.6744897501960817
    tail = math.erfc(z / math.sqrt(2))
    high, low = bars.borders[-2] + z * sigma, bars.borders[1] - z * sigma
    for found, edge in ((bars.sf(high.view(1, 1, 1)), -1), (bars.cdf(low.view(1, 1, 1)), 0)):
        assert torch.allclose(found[..., 0], mass[..., edge] * tail, rtol=1e-10, atol=0)
    again = bars.isf(bars.sf(high.expand(3, 2, 1)))
    assert torch.allclose(again, high.expand(3, 2, 1), rtol=1e-9)


@settings(parent=_few, max_examples=6)
@given(config=_coarse, seed=_seeds)
def test_samples_pass_a_kolmogorov_smirnov_test(config: BucketConfig, seed: int) -> None:
    """6.9: √n·sup|F_n − F| of 4,000 draws stays below 2.2 (P < 1e-4), and draws are the generator's alone."""
    bars = _bars(config, seed)
    drawn = bars.sample(4000, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(drawn, bars.sample(4000, generator=torch.Generator().manual_seed(seed)))
    cdf = bars.cdf(drawn.sort(dim=-1).values)
    below = torch.arange(4000, dtype=torch.float64) / 4000
    statistic = torch.maximum(cdf - below, below + 1 / 4000 - cdf).amax(-1) * math.sqrt(4000)
    assert float(statistic.max()) < 2.2
    shifted = bars.cdf(drawn.sort(dim=-1).values + 0.1 * bars.variance().sqrt()[..., None])
    assert float((shifted - below).amax(-1).max()) * math.sqrt(4000) > 2.2  # the test can fail


@settings(parent=_few, max_examples=8)
@given(config=_coarse, seed=_seeds, at=st.floats(-1.5, 1.5))
def test_crps_is_the_integral_over_the_squared_difference_of_cdfs(config: BucketConfig, seed: int, at: float) -> None:
    """6.9: ∫(F(z) − 1[y ≤ z])² dz by the trapezium rule, for answers inside buckets, at borders and in both tails."""
    bars = _unshifted(_bars(config, seed))
    y = float(at * bars.borders[-1])
    cuts = torch.cat([_cuts(bars, tails=8.0), torch.tensor([y, y], dtype=torch.float64)]).sort().values
    cdf = bars.cdf(cuts.expand(3, 2, -1))
    step = torch.arange(len(cuts)) > int((cuts == y).nonzero()[0, 0])
    value = (cdf - step.double()) ** 2
    wanted = (0.5 * (value[..., 1:] + value[..., :-1]) * cuts.diff()).sum(-1)
    found = bars.crps(torch.full((3, 2), y, dtype=torch.float64))
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_crps_is_its_sampling_estimate() -> None:
    """6.9: E|Y − y| − ½E|Y − Y′| from 200,000 draws, in units of y, for one answer or several a query."""
    bars = _bars(BucketConfig(num_buckets=12, border=3.0), 9)
    y = _on_axis_of_y(bars, torch.tensor([-30.0, -0.2, 0.0, 4.0, 20.0], dtype=torch.float64))
    first, second = (bars.sample(200_000, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    half = 0.5 * (first - second).abs().mean(-1)
    wanted = torch.stack([(first - y[..., i, None]).abs().mean(-1) - half for i in range(y.shape[-1])], dim=-1)
    error = (bars.crps(y) - wanted).abs() / bars.variance().sqrt()[..., None]
    assert float(error.max()) * math.sqrt(200_000) < 5  # standard errors
    assert distance(bars.crps(y.expand(3, 2, -1)[..., 3]), bars.crps(y)[..., 3]) == 0


@_few
@given(seed=_seeds, factor=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_everything_follows_the_unit_of_y(seed: int, factor: float, shift: float) -> None:
    """6.9: under y → a·y + b: places follow, lengths times a, variance times a², NLL plus log a, probabilities stay."""
    bars = _bars(BucketConfig(num_buckets=16), seed)
    moved = dataclasses.replace(bars, location=bars.location * factor + shift, scale=bars.scale * factor)
    levels = torch.tensor([0.01, 0.5, 0.99])
    tolerance = 1e-9 * (factor * 1e5 + abs(shift))
    y = _on_axis_of_y(bars, torch.tensor([-13.0, -0.31, 0.27, 15.0], dtype=torch.float64))
    moved_y = y * factor + shift
    assert distance(moved.mean(), bars.mean() * factor + shift) < tolerance
    for name, argument in (("icdf", levels), ("isf", levels), ("central_interval", 0.8)):
        found, wanted = (getattr(each, name)(argument) for each in (moved, bars))
        assert distance(found, wanted * factor + shift) < tolerance, name
    for name in ("cdf", "sf"):
        assert distance(getattr(moved, name)(moved_y), getattr(bars, name)(y)) < 1e-4, name
    assert distance(moved.nll(moved_y), bars.nll(y) + math.log(factor)) < 1e-3
    assert distance(moved.log_density(moved_y), -moved.nll(moved_y)) == 0
    assert torch.allclose(moved.variance(), bars.variance() * factor**2, rtol=1e-9)
    assert torch.allclose(moved.crps(moved_y), bars.crps(y) * factor, rtol=1e-4)
    assert torch.allclose(moved.losses(moved_y[..., 1].expand(3, 2)), bars.losses(y[..., 1].expand(3, 2)), atol=1e-3)


def test_a_mirrored_distribution_mirrors_everything() -> None:
    """6.9: under y → −y, cdf and sf change places, and so do lower and upper quantiles."""
    bars = _unshifted(_bars(BucketConfig(num_buckets=9), 3))
    mirror = dataclasses.replace(bars, log_mass=bars.log_mass.flip(-1), borders=-bars.borders.flip(0))
    y = torch.linspace(-20, 20, 401, dtype=torch.float64).expand(3, 2, -1)
    levels = torch.tensor([1e-9, 0.2, 0.7])
    assert distance(mirror.cdf(-y), bars.sf(y)) < 1e-15
    assert distance(mirror.icdf(levels), -bars.isf(levels)) < 1e-12
    assert distance(mirror.mean(), -bars.mean()) < 1e-12
    assert distance(mirror.variance(), bars.variance()) < 1e-12
    assert distance(mirror.crps(-y), bars.crps(y)) < 1e-10


def test_a_central_interval_leaves_out_as_much_on_either_side() -> None:
    """6.9: [B, M, 2], lower end first."""
    bars = _bars(BucketConfig(num_buckets=16), 2)
    interval = bars.central_interval(0.9)
    assert interval.shape == (3, 2, 2)
    assert distance(bars.cdf(interval[..., 0]), torch.full((3, 2), 0.05)) < 1e-6
    assert distance(bars.sf(interval[..., 1]), torch.full((3, 2), 0.05)) < 1e-6


def test_a_point_on_a_border_belongs_to_the_bucket_above_it() -> None:
    """Half-open buckets: no target is lost or counted twice."""
    bars = _bars(BucketConfig(num_buckets=8), 0)
    widths = bars.borders.diff()
    for border in range(2, 6):
        log_density = bars.log_density_scaled(bars.borders[border].expand(3, 2))
        assert distance(log_density, bars.log_mass[..., border] - widths[border].log()) < 1e-12


def test_half_of_an_outer_bucket_s_mass_lies_within_its_width() -> None:
    """6.9: half-normal tails, as TabPFN-3's."""
    bars = _bars(BucketConfig(num_buckets=8), 0)
    mass = bars.log_mass.exp()
    low, high = (_on_axis_of_y(bars, bars.borders[i])[..., 0].expand(3, 2) for i in (0, -1))
    assert distance(bars.cdf(low), 0.5 * mass[..., 0]) < 1e-12
    assert distance(bars.sf(high), 0.5 * mass[..., -1]) < 1e-12


def test_targets_far_out_have_a_finite_loss() -> None:
    """6.9: out-of-range policy: none is refused; the NLL grows with the squared distance, training's loss stops."""
    bars = _bars(BucketConfig(num_buckets=8), 0)
    far = (bars.location + bars.scale * 1e6).expand(3, 2)
    assert bars.nll(far).isfinite().all() and (bars.nll(far) > 1e9).all()
    assert distance(bars.cdf(torch.tensor([[[1e300, -1e300]]]).double())[..., 0], torch.ones(3, 2)) < 1e-12
    limit = bars.location + bars.scale * TARGET_LIMIT
    assert distance(bars.losses(far), bars.losses(limit.expand(3, 2))) < 1e-6
    inside = (bars.location + 2.0 * bars.scale).expand(3, 2)
    assert distance(bars.losses(inside), bars.nll(inside) - bars.scale.log()) < 1e-9


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (BucketConfig(), 24.0),
        (BucketConfig(num_buckets=5000, inner_width=0.001), 24.0),
        (BucketConfig(border=3.0), 24.0),
        (BucketConfig(border=50.0), 100.0),
        (BucketConfig(num_buckets=500, rule=BorderRule.TABPFN3), 256.0),
    ],
)
def test_every_bucket_and_tail_can_be_learnt(config: BucketConfig, limit: float) -> None:
    """6.9: the training loss takes targets as they are up to its limit, which lies beyond the outermost border."""
    bars = _bars(config, 0)
    t = torch.tensor([0.999, 1.0, 1.001, 1e6], dtype=torch.float64) * limit
    for sign in (1, -1):
        y = bars.location[:, None] + bars.scale[:, None] * sign * t
        found = torch.stack([bars.losses(part) for part in y.expand(3, 2, 4).unbind(-1)], -1)
        exact = -bars.log_density_scaled((sign * t).expand(3, 2, 4))
        assert distance(found[..., :2] / exact[..., :2], torch.ones(3, 2, 2)) < 1e-6
        assert distance(found[..., 2:] / exact[..., 1:2], torch.ones(3, 2, 2)) < 1e-6
    assert limit > float(bars.borders[-1])


@pytest.mark.parametrize("y", [math.inf, -math.inf])
def test_the_crps_of_a_target_that_is_infinitely_far_is_infinite(y: float) -> None:
    """Not NaN, and the other targets' CRPS is not touched; of NaN it is NaN."""
    bars = _bars(BucketConfig(num_buckets=8), 0)
    points = torch.tensor([0.5, y, math.nan], dtype=torch.float64).expand(3, 2, 3)
    found = bars.crps(points)
    assert (found[..., 1] == math.inf).all() and found[..., 2].isnan().all()
    assert torch.equal(found[..., 0], bars.crps(torch.full((3, 2), 0.5).double()))


def test_empty_buckets_are_jumped_over() -> None:
    """Quantiles at the edges of buckets without mass are finite and ordered."""
    mass = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0]).double()
    bars = BarDistribution(
        log_mass=mass.log().expand(1, 1, -1),
        borders=torch.linspace(-4, 4, 9).double(),
        location=torch.zeros(1, 1).double(),
        scale=torch.ones(1, 1).double(),
    )
    levels = torch.tensor([1e-300, 0.25, 0.5 - 1e-12, 0.5, 0.75, 1 - 1e-16], dtype=torch.float64)
    found = bars.icdf(levels)[0, 0]
    assert found.isfinite().all() and (found.diff() >= 0).all()
    assert found[[1, 4]].tolist() == pytest.approx([-2.5, 1.5])
    assert bars.mean().item() == pytest.approx(-0.5)
    assert bars.variance().item() == pytest.approx(4.0 + 1 / 12)


def test_single_precision_masses_on_double_borders_agree_with_double() -> None:
    """The network's softmax is fp32, the borders are fp64."""
    config = BucketConfig(num_buckets=64)
    low, high = _bars(config, 3, dtype=torch.float32), _bars(config, 3)
    levels = torch.tensor([0.01, 0.3, 0.99])
    y = (high.location + 0.4 * high.scale).expand(3, 2)
    assert low.log_density(y.float()).dtype is torch.float64
    assert distance(low.log_density(y), high.log_density(y)) < 1e-5
    assert distance(low.icdf(levels) / low.scale[..., None], high.icdf(levels) / high.scale[..., None]) < 1e-4
    assert distance(low.mean() / low.scale, high.mean() / high.scale) < 1e-4
    assert distance(low.crps(y) / low.scale, high.crps(y) / high.scale) < 1e-5


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    """Bad input: a ValueError that names argument, value and what is allowed."""
    bars, levels = _bars(BucketConfig(num_buckets=4), 0), torch.tensor([0.5, level])
    calls = (("levels", bars.icdf, levels), ("levels", bars.isf, levels), ("level", bars.central_interval, level))
    for name, call, argument in calls:
        with pytest.raises(ValueError, match=rf"{name} holds {level:g}: give levels inside \(0, 1\)") as caught:
            call(argument)
        assert isinstance(caught.value, BadInput) and caught.value.code is ExitCode.BAD_LEVEL
