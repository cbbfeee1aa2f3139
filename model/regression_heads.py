"""Regression read-outs: a query's hidden state → a point, quantiles or a distribution of its target (6.8 to 6.10).

Mini: the bar head has 128 sinh-spaced buckets at the small sizes, where TabPFN-3 has 5,000; the form (MLP, softmax over
buckets, half-normal tails) is the same.

All predictions have `location`, `scale`, `mean()` and `losses(y)`, and nothing else in common: a point has no density
and no quantiles, quantiles have no density (seed 6.0).
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from model.attention import at_least_fp32, mlp
from model.bar_distribution import BarDistribution
from model.bucket_borders import BucketConfig, bucket_borders
from model.quantile_prediction import CrossingRepair, QuantilePrediction
from model.target_scaling import winsorised
from tools.failure import BadInput, ExitCode


class RegressionHeadKind(enum.StrEnum):
    """What a regression head predicts."""

    BAR = "bar"  # a distribution: softmax over buckets, trained by its NLL
    SCALAR = "scalar"  # a point, trained by its squared error
    QUANTILE = "quantile"  # quantiles at fixed levels, trained by the pinball loss


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileConfig:
    """Levels of the quantile head, and what is done where its quantiles cross."""

    num_quantiles: int = 99
    """S; the levels are i/(S + 1)."""
    repair: CrossingRepair = CrossingRepair.SORT
    """How crossed quantiles are put in order when they are read; the crossing rate is taken before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionHeadConfig:
    """Form and sizes of the regression head."""

    kind: RegressionHeadKind = RegressionHeadKind.BAR
    """Which head."""
    buckets: BucketConfig = BucketConfig()
    """Buckets of the bar head."""
    quantiles: QuantileConfig = QuantileConfig()
    """Levels of the quantile head."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointPrediction:
    """One number for each query: no distribution, so it has no NLL, no quantiles and no interval.

    Args:
        value: [B, M] on the scaled axis.
        location: [B, 1] of the context's targets.
        scale: [B, 1].
    """

    value: Tensor
    location: Tensor
    scale: Tensor

    def mean(self) -> Tensor:
        """[B, M] in units of y: trained by squared error, the point estimates the mean."""
        return self.value * self.scale + self.location

    def losses(self, y: Tensor) -> Tensor:
        """Squared error [B, M] on the scaled axis, winsorised: what training minimises."""
        return (self.value - winsorised(y, location=self.location, scale=self.scale)) ** 2


RegressionPrediction = BarDistribution | PointPrediction | QuantilePrediction
"""What a regression head predicts."""


class RegressionHead(nn.Module):
    """MLP D → 2D → outputs; what the outputs mean is the subclass's."""

    def __init__(self, width: int, num_outputs: int) -> None:
        super().__init__()
        self.layers = mlp(width, 2 * width, num_outputs)

    def outputs(self, query_hidden: Tensor) -> Tensor:
        """[B, M, outputs], fp32 or wider, of query_hidden [B, M, D]."""
        return at_least_fp32(self.layers(query_hidden))

    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> RegressionPrediction:
        """Reads query_hidden [B, M, D]; location and scale [B, 1] come from the context targets."""
        raise NotImplementedError


class BarHead(RegressionHead):
    """Softmax over buckets (seed 6.9); its borders are saved with the weights and stay fp64 whatever those are."""

    def __init__(self, width: int, config: BucketConfig) -> None:
        super().__init__(width, config.num_buckets)
        self.register_buffer("borders", bucket_borders(config))

    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> BarDistribution:
        """Reads query_hidden [B, M, D]; location and scale [B, 1] come from the context targets."""
        log_mass = torch.log_softmax(self.outputs(query_hidden), dim=-1)
        return BarDistribution(log_mass=log_mass, borders=self.borders, location=location, scale=scale)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the borders with the weights, and leaves them their precision: rounded borders are other borders."""
        borders = self.borders
        super()._apply(fn, recurse)
        if self.borders.dtype is not borders.dtype:
            self.borders = borders.to(self.borders.device)
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Refuses borders that are not the configuration's (seed 6.9).

        Raises:
            BadInput: CONFIG_MISMATCH.
        """
        own, saved = self.borders, state_dict.get(f"{prefix}borders")
        comparable = (
            saved is not None and saved.shape == own.shape and "meta" not in (own.device.type, saved.device.type)
        )
        if comparable and not torch.allclose(saved.to(own), own, rtol=1e-9, atol=1e-12):
            gap = float((saved.to(own) - own).abs().max())
            mend = "load it with the configuration that it was trained with"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"the saved bucket borders are {gap:.3g} off the config's: {mend}")
        super()._load_from_state_dict(state_dict, prefix, *args)


class ScalarHead(RegressionHead):
    """A point, trained by squared error (seed 6.8)."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 1)

    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> PointPrediction:
        """Reads query_hidden [B, M, D]; location and scale [B, 1] come from the context targets."""
        return PointPrediction(value=self.outputs(query_hidden)[..., 0], location=location, scale=scale)


class QuantileHead(RegressionHead):
    """Quantiles at even levels, trained by the pinball loss (seed 6.10).

    Raises:
        BadInput: BAD_FLAG for fewer than two levels: the tails go on from two.
    """

    def __init__(self, width: int, config: QuantileConfig) -> None:
        if config.num_quantiles < 2:
            raise BadInput(ExitCode.BAD_FLAG, f"quantiles.num_quantiles is {config.num_quantiles}: give 2 or more")
        super().__init__(width, config.num_quantiles)
        self.config = config

    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> QuantilePrediction:
        """Reads query_hidden [B, M, D]; location and scale [B, 1] come from the context targets."""
        values, count = self.outputs(query_hidden), self.config.num_quantiles
        levels = torch.arange(1, count + 1, dtype=torch.float64, device=values.device) / (count + 1)
        return QuantilePrediction(
            values=values, levels=levels, location=location, scale=scale, repair=self.config.repair
        )


def make_regression_head(config: RegressionHeadConfig, *, width: int) -> RegressionHead:
    """The head that a configuration names, for hidden states of `width`."""
    if config.kind is RegressionHeadKind.SCALAR:
        return ScalarHead(width)
    if config.kind is RegressionHeadKind.QUANTILE:
        return QuantileHead(width, config.quantiles)
    return BarHead(width, config.buckets)
