"""The bar distribution: density, cdf, quantiles and mean describe one and the same distribution."""

import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bar_distribution import BarDistribution, BucketConfig, OutOfRange, bucket_borders
from model.specimens import distance
from tools import config as configs
from tools.failure import ExitCode, Failure

_few = settings(
    derandomize=True, database=None, deadline=None, max_examples=20, phases=[Phase.explicit, Phase.generate]
)
_configs = st.builds(
    BucketConfig,
    num_buckets=st.integers(2, 300),
    border=st.floats(1.0, 50.0),
    inner_width=st.floats(0.001, 0.5),
)
_coarse = st.builds(BucketConfig, num_buckets=st.integers(2, 24), inner_width=st.floats(0.05, 0.5))
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


def _grid(bars: BarDistribution, *, tails: float) -> tuple[Tensor, Tensor]:
    """Midpoints and widths [S] on the scaled axis that refine every bucket and reach `tails` sigmas beyond the ends."""
    widths = bars.borders.diff()
    cuts = torch.linspace(0, 1, 101, dtype=torch.float64)[:-1]
    reach = torch.linspace(0, tails, 2000, dtype=torch.float64) / 0.6745
    inner = (bars.borders[:-1, None] + cuts * widths[:, None]).flatten()
    low, high = bars.borders[0] - widths[0] * reach[1:].flip(0), bars.borders[-1] + widths[-1] * reach
    points = torch.cat([low, inner, high])
    return 0.5 * (points[1:] + points[:-1]), points.diff()


def _densities(bars: BarDistribution, t: Tensor) -> Tensor:
    """Scaled densities [3, 2, S] at points t [S]."""
    each = [
        BarDistribution(
            log_mass=log_mass.expand(1, len(t), -1), borders=bars.borders, location=bars.location, scale=bars.scale
        ).log_density_scaled(t[None])[0]
        for log_mass in bars.log_mass.flatten(0, 1)
    ]
    return torch.stack(each).exp().view(3, 2, -1)


@_few
@given(config=_configs)
def test_borders_ascend_strictly_between_the_ends(config: BucketConfig) -> None:
    """6.9: range and widths follow from the configuration alone."""
    borders = bucket_borders(config)
    assert borders.dtype is torch.float64
    assert len(borders) == config.num_buckets + 1
    assert (borders.diff() > 0).all()
    assert float(borders[-1]) == pytest.approx(config.border, rel=1e-12)
    assert distance(borders, -borders.flip(0)) < 1e-9
    widths = borders.diff()
    assert (widths.diff()[config.num_buckets // 2 :] > -1e-9).all()


@pytest.mark.parametrize(("num_buckets", "inner_width"), [(128, 0.02), (256, 0.02), (512, 0.02), (5000, 0.001)])
def test_central_buckets_have_the_inner_width(num_buckets: int, inner_width: float) -> None:
    """6.9: at every preset size."""
    widths = bucket_borders(BucketConfig(num_buckets=num_buckets, inner_width=inner_width)).diff()
    assert widths[num_buckets // 2].item() == pytest.approx(inner_width, rel=1e-6)


def test_a_width_that_would_not_fit_gives_equal_buckets() -> None:
    """inner_width beyond 2·border/Q."""
    widths = bucket_borders(BucketConfig(num_buckets=10, border=1.0, inner_width=5.0)).diff()
    assert distance(widths, torch.full((10,), 0.2, dtype=torch.float64)) < 1e-9


def test_fewer_than_two_buckets_are_refused() -> None:
    """Each tail needs its own bucket."""
    with pytest.raises(Failure, match="num_buckets is 1") as caught:
        bucket_borders(BucketConfig(num_buckets=1))
    assert caught.value.code is ExitCode.BAD_FLAG


def test_the_config_survives_json() -> None:
    """6.9: range, widths and out-of-range policy are recorded with the checkpoint."""
    config = BucketConfig(num_buckets=77, border=9.5, inner_width=0.03)
    text = configs.to_json(config)
    assert text["out_of_range"] == "half_normal"
    again = configs.from_json(BucketConfig, text)
    assert again == config
    assert again.out_of_range is OutOfRange.HALF_NORMAL
    assert torch.equal(bucket_borders(again), bucket_borders(config))


@settings(parent=_few, max_examples=8)
@given(config=_coarse, seed=_seeds)
def test_density_is_normalised_and_its_first_moment_is_the_mean(config: BucketConfig, seed: int) -> None:
    """6.9: ∫p = 1 and ∫t·p = E[t], tails included."""
    bars = _bars(config, seed)
    t, width = _grid(bars, tails=9.0)
    density = _densities(bars, t)
    assert distance((density * width).sum(-1), torch.ones(3, 2)) < 1e-5
    mean = (bars.mean() - bars.location) / bars.scale
    assert distance((density * width * t).sum(-1), mean) < 1e-4 * config.border


@settings(parent=_few, max_examples=8)
@given(config=_coarse, seed=_seeds)
def test_density_is_the_derivative_of_the_cdf(config: BucketConfig, seed: int) -> None:
    """6.9: differences of the cdf over small intervals equal density times width."""
    bars = _bars(config, seed)
    t, width = _grid(bars, tails=4.0)
    low, high = ((t + side * width) * bars.scale[..., None] + bars.location[..., None] for side in (-0.5, 0.5))
    steps = bars.cdf(high) - bars.cdf(low)
    assert (steps >= 0).all()
    assert distance(steps, _densities(bars, t) * width) < 1e-6


def test_log_density_is_per_unit_of_y() -> None:
    """The scaled density divided by the scale."""
    bars = _bars(BucketConfig(num_buckets=16), 5)
    t = torch.full((3, 2), 0.7, dtype=torch.float64)
    log_density = bars.log_density(t * bars.scale + bars.location)
    assert distance(log_density, bars.log_density_scaled(t) - bars.scale.log()) < 1e-6


@_few
@given(config=_configs, seed=_seeds)
def test_quantiles_invert_the_cdf(config: BucketConfig, seed: int) -> None:
    """6.9: any quantile by inverting the cdf: cdf∘quantiles = id, far tails included."""
    bars = _bars(config, seed)
    middle = torch.linspace(0.001, 0.999, 97).tolist()
    taus = torch.tensor([1e-200, 1e-30, 1e-12, *middle, 1 - 1e-6, 1 - 1e-9], dtype=torch.float64)
    quantiles = bars.quantiles(taus)
    assert quantiles.shape == (3, 2, len(taus))
    assert (quantiles.diff(dim=-1) >= 0).all()
    unshifted = BarDistribution(log_mass=bars.log_mass, borders=bars.borders, location=_LOCATIONS * 0, scale=_SCALES)
    quantiles = unshifted.quantiles(taus)
    assert torch.allclose(unshifted.cdf(quantiles), taus.expand(3, 2, -1), rtol=1e-9, atol=1e-200)


@_few
@given(config=_configs, seed=_seeds)
def test_the_cdf_inverts_quantiles(config: BucketConfig, seed: int) -> None:
    """6.9: quantiles∘cdf = id at borders, inside buckets and in both tails."""
    bars = _bars(config, seed)
    widths = bars.borders.diff()
    inside = bars.borders[:-1] + 0.3 * widths
    tails = torch.stack([bars.borders[0] - 5 * widths[0], bars.borders[-1] + 2 * widths[-1]])
    t = torch.cat([bars.borders, inside, tails]).sort().values
    y = t * bars.scale[..., None] + bars.location[..., None]
    for table in range(3):
        for query in range(2):
            found = bars.quantiles(bars.cdf(y)[table, query])[table, query]
            error = (found - y[table, 0]) / bars.scale[table]
            assert float(error.abs().max()) < 1e-6 * config.border


@_few
@given(seed=_seeds, factor=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3), negate=st.booleans())
def test_scaling_targets_scales_the_distribution(seed: int, factor: float, shift: float, negate: bool) -> None:
    """6.9: under y → a·y + b, mean and quantiles follow and the density is divided by |a|."""
    bars = _bars(BucketConfig(num_buckets=16), seed)
    moved = BarDistribution(
        log_mass=bars.log_mass, borders=bars.borders, location=bars.location * factor + shift, scale=bars.scale * factor
    )
    taus = torch.tensor([0.01, 0.5, 0.99])
    tolerance = 1e-9 * (factor * 1e5 + abs(shift))
    assert distance(moved.mean(), bars.mean() * factor + shift) < tolerance
    assert distance(moved.quantiles(taus), bars.quantiles(taus) * factor + shift) < tolerance
    y = bars.location + bars.scale * (-0.3 if negate else 0.3)
    density = bars.log_density(y.expand(3, 2)) - math.log(factor)
    assert distance(moved.log_density((y * factor + shift).expand(3, 2)), density) < 1e-5


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
    low, high = (bars.borders[i] * bars.scale[..., None] + bars.location[..., None] for i in (0, -1))
    assert distance(bars.cdf(low)[..., 0], 0.5 * mass[..., 0]) < 1e-12
    assert distance(1 - bars.cdf(high)[..., 0], 0.5 * mass[..., -1]) < 1e-12


def test_targets_far_out_have_a_finite_loss() -> None:
    """6.9: out-of-range policy: no target is refused; the loss grows with the square of the distance."""
    bars = _bars(BucketConfig(num_buckets=8), 0)
    nll = bars.nll((bars.location + bars.scale * 1e6).expand(3, 2))
    assert nll.isfinite().all()
    assert (nll > 1e9).all()
    assert distance(bars.cdf(torch.tensor([1e300, -1e300]).double())[..., 0], torch.ones(3, 2)) < 1e-12


def test_empty_buckets_are_jumped_over() -> None:
    """Quantiles at the edges of buckets without mass, and at taus of 0 and 1, are finite and ordered."""
    mass = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0]).double()
    bars = BarDistribution(
        log_mass=mass.log().expand(1, 1, -1),
        borders=torch.linspace(-4, 4, 9).double(),
        location=torch.zeros(1, 1).double(),
        scale=torch.ones(1, 1).double(),
    )
    found = bars.quantiles(torch.tensor([0.0, 0.25, 0.5 - 1e-12, 0.5, 0.75, 1.0]).double())[0, 0]
    assert found.isfinite().all()
    assert (found.diff() >= 0).all()
    assert found[1].item() == pytest.approx(-2.5)
    assert found[4].item() == pytest.approx(1.5)


def test_single_precision_masses_on_double_borders_agree_with_double() -> None:
    """The network's softmax is fp32, the borders are fp64."""
    config = BucketConfig(num_buckets=64)
    low, high = _bars(config, 3, dtype=torch.float32), _bars(config, 3)
    taus = torch.tensor([0.01, 0.3, 0.99])
    y = (high.location + 0.4 * high.scale).expand(3, 2)
    assert low.log_density(y.float()).dtype is torch.float64
    assert distance(low.log_density(y), high.log_density(y)) < 1e-5
    assert distance(low.quantiles(taus) / low.scale[..., None], high.quantiles(taus) / high.scale[..., None]) < 1e-4
    assert distance(low.mean() / low.scale, high.mean() / high.scale) < 1e-4


def test_the_loss_is_that_of_the_unit_of_y() -> None:
    """nll = -log p(y): a tenfold scale adds log 10."""
    bars = _bars(BucketConfig(num_buckets=16), 1)
    wide = BarDistribution(log_mass=bars.log_mass, borders=bars.borders, location=bars.location, scale=10 * bars.scale)
    t = torch.full((3, 2), 0.7, dtype=torch.float64)
    near, far = bars.nll(bars.location + t * bars.scale), wide.nll(wide.location + t * wide.scale)
    assert distance(far - near, torch.full((3, 2), math.log(10), dtype=torch.float64)) < 1e-9
