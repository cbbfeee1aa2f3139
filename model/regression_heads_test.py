"""The regression heads: what each predicts, what it records, and that bars and quantiles find the same distribution."""

import dataclasses
import statistics

import pytest
import torch
from torch import Tensor

from model.bar_distribution import BarDistribution
from model.bucket_borders import BorderRule, BucketConfig, bucket_borders
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from model.quantile_prediction import CrossingRepair, QuantilePrediction
from model.regression_heads import (
    BarHead,
    PointPrediction,
    QuantileConfig,
    QuantileHead,
    RegressionHead,
    RegressionHeadConfig,
    RegressionHeadKind,
    RegressionPrediction,
    ScalarHead,
    make_regression_head,
)
from model.specimens import distance, redraw, specimen_config, specimen_inputs
from model.target_scaling import TARGET_LIMIT
from tools import config as configs
from tools.failure import BadInput, ExitCode

_LOCATION, _SCALE = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])
_TYPES = {
    RegressionHeadKind.BAR: BarDistribution,
    RegressionHeadKind.SCALAR: PointPrediction,
    RegressionHeadKind.QUANTILE: QuantilePrediction,
}


def _config(kind: RegressionHeadKind) -> RegressionHeadConfig:
    return RegressionHeadConfig(
        kind=kind, buckets=BucketConfig(num_buckets=16), quantiles=QuantileConfig(num_quantiles=9)
    )


def _predict(head: RegressionHead) -> RegressionPrediction:
    redraw(head)
    hidden = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    return head(hidden, location=_LOCATION, scale=_SCALE)


@pytest.mark.parametrize("kind", list(RegressionHeadKind))
def test_every_head_gives_its_own_type_of_prediction(kind: RegressionHeadKind) -> None:
    """6.0: all have location, scale, a mean and losses; points have no density or quantiles, quantiles no density."""
    prediction = _predict(make_regression_head(_config(kind), width=8))
    assert type(prediction) is _TYPES[kind]
    assert prediction.location is _LOCATION and prediction.scale is _SCALE
    losses = prediction.losses(torch.zeros(2, 5))
    assert prediction.mean().shape == losses.shape == (2, 5)
    assert losses.isfinite().all()
    assert hasattr(prediction, "nll") == (kind is RegressionHeadKind.BAR)
    assert hasattr(prediction, "icdf") == (kind is not RegressionHeadKind.SCALAR)


@pytest.mark.parametrize("kind", list(RegressionHeadKind))
def test_a_whole_network_predicts_and_learns_with_every_head(kind: RegressionHeadKind) -> None:
    """6.8 to 6.10: the mean follows the unit of the target, and every parameter of the head gets a gradient."""
    config = dataclasses.replace(specimen_config(LabelKind.REGRESSION), regression=_config(kind))
    assert configs.from_json(NetworkConfig, configs.to_json(config)) == config
    network = Network(config)
    redraw(network)
    inputs = specimen_inputs(LabelKind.REGRESSION)
    prediction = network(inputs)
    moved = network(dataclasses.replace(inputs, y_context=1000 * inputs.y_context - 5))
    assert torch.allclose(moved.mean(), 1000 * prediction.mean() - 5, rtol=1e-3, atol=1)
    prediction.losses(torch.zeros(2, 4)).mean().backward()
    assert all(parameter.grad.any() for parameter in network.head.parameters())


def test_the_bar_head_is_a_softmax_over_its_buckets() -> None:
    """6.9: probabilities of buckets sum to 1, in fp32 under autocast too."""
    bars = _predict(BarHead(8, BucketConfig(num_buckets=16)))
    assert bars.log_mass.shape == (2, 5, 16)
    assert distance(bars.log_mass.exp().sum(-1), torch.ones(2, 5)) < 1e-6
    with torch.autocast("cpu", torch.bfloat16):
        bars = BarHead(8, BucketConfig(num_buckets=16))(torch.zeros(1, 2, 8), location=_LOCATION, scale=_SCALE)
    assert bars.log_mass.dtype is torch.float32


def test_the_full_size_of_the_bar_head() -> None:
    """6.9: 512 → 1024 → 5000."""
    with torch.device("meta"):
        head = BarHead(512, BucketConfig(num_buckets=5000, rule=BorderRule.TABPFN3))
    assert [tuple(layer.weight.shape) for layer in (head.layers[0], head.layers[2])] == [(1024, 512), (5000, 1024)]
    assert len(head.borders) == 5001


def test_borders_are_saved_with_the_weights_in_double_precision_whatever_the_weights_are() -> None:
    """6.9 and 6.G: borders identical in training and evaluation: a network moved to fp32 or bf16 keeps them."""
    config = BucketConfig(num_buckets=16, border=7.0)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        head = BarHead(8, config).to(dtype)
        assert head.layers[0].weight.dtype is dtype
        assert head.state_dict()["borders"].dtype is torch.float64
        assert torch.equal(head.state_dict()["borders"], bucket_borders(config))


@pytest.mark.parametrize(
    "other",
    [
        BucketConfig(num_buckets=16, border=7.1),
        BucketConfig(num_buckets=16, border=7.0, inner_width=0.021),
        BucketConfig(num_buckets=16, border=7.0, rule=BorderRule.UNIFORM),
    ],
)
def test_weights_of_other_borders_are_refused(other: BucketConfig) -> None:
    """6.G: bucket borders that differ between training and evaluation."""
    trained = BarHead(8, other).state_dict()
    with pytest.raises(BadInput, match="saved bucket borders are .* off the config's") as caught:
        BarHead(8, BucketConfig(num_buckets=16, border=7.0)).load_state_dict(trained)
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    BarHead(8, other).load_state_dict(trained)


def test_the_scalar_head_is_trained_by_squared_error() -> None:
    """6.8: on the scaled axis, winsorised; the prediction is in units of y."""
    point = _predict(ScalarHead(8))
    assert distance(point.mean(), point.value * _SCALE + _LOCATION) == 0
    y = torch.linspace(-3, 9, 5).expand(2, 5)
    assert distance(point.losses(y), ((y - point.mean()) / _SCALE) ** 2) < 1e-5
    far = point.losses(torch.full((2, 5), 1e12))
    assert distance(far, (TARGET_LIMIT - point.value) ** 2) < 1e-3


def test_the_scalar_head_learns_the_mean_of_a_skewed_target() -> None:
    """6.8: squared error is least at the mean, not at the median."""
    y = (0.7 * torch.randn(1, 4000, generator=torch.Generator().manual_seed(0))).exp()
    assert float(y.max()) < TARGET_LIMIT and float(y.mean() - y.median()) > 0.2
    assert _fitted(ScalarHead(4), y).mean().item() == pytest.approx(float(y.mean()), abs=0.02)


def test_the_quantile_head_records_its_levels_and_its_repair() -> None:
    """6.10: the levels are i/(S + 1); the repair is the configuration's."""
    for repair in CrossingRepair:
        quantiles = _predict(QuantileHead(8, QuantileConfig(num_quantiles=3, repair=repair)))
        assert quantiles.levels.tolist() == [0.25, 0.5, 0.75]
        assert quantiles.values.shape == (2, 5, 3) and quantiles.repair is repair
    with pytest.raises(ValueError, match="num_quantiles is 1: give 2 or more"):
        QuantileHead(8, QuantileConfig(num_quantiles=1))


def _fitted(head: RegressionHead, y: Tensor) -> RegressionPrediction:
    """A head after 400 steps on draws y [1, R] of one distribution, from one constant hidden state."""
    redraw(head)
    hidden, place = torch.ones(1, 1, head.layers[0].in_features), torch.zeros(1, 1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.03)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 0.03 * (1 - step / 400)
        optimizer.zero_grad()
        prediction = head(hidden.expand(1, y.shape[1], -1), location=place, scale=place + 1)
        prediction.losses(y).mean().backward()
        optimizer.step()
    with torch.no_grad():
        return head(hidden, location=place, scale=place + 1)


def test_quantiles_of_the_bar_head_and_of_the_pinball_head_agree() -> None:
    """6.9: any quantile by inverting the cdf, compared with the pinball head's, on a known skewed distribution."""
    normal = torch.randn(1, 4000, generator=torch.Generator().manual_seed(1))
    y = (0.5 * normal).exp() - 1
    uniform = BucketConfig(num_buckets=60, border=3.0, rule=BorderRule.UNIFORM)
    bars = _fitted(BarHead(4, uniform), y)
    quantiles = _fitted(QuantileHead(4, QuantileConfig(num_quantiles=19)), y)
    levels = torch.tensor([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95], dtype=torch.float64)
    exact = torch.tensor([statistics.NormalDist().inv_cdf(float(level)) for level in levels])
    exact = (0.5 * exact).exp() - 1
    by_cdf, by_pinball = bars.icdf(levels)[0, 0], quantiles.icdf(levels)[0, 0]
    assert distance(by_cdf, by_pinball) < 0.06
    assert distance(by_cdf, exact) < 0.08 and distance(by_pinball, exact) < 0.08
    assert distance(bars.mean(), quantiles.mean()) < 0.03
    assert distance(bars.central_interval(0.9), quantiles.central_interval(0.9)) < 0.06
