"""Regression read-out: a query's hidden state → probabilities of target buckets (seed 6.9).

Mini: 128 sinh-spaced buckets at the small sizes, where TabPFN-3 has 5,000; the form (MLP, softmax over buckets,
half-normal tails) is the same.
"""

import dataclasses
import enum

import torch
from torch import Tensor, nn

from model.attention import at_least_fp32, mlp
from model.bar_distribution import BarDistribution, BucketConfig, bucket_borders

RegressionPrediction = BarDistribution
"""What a regression head predicts."""


class RegressionHeadKind(enum.StrEnum):
    """What a regression head predicts."""

    BAR = "bar"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionHeadConfig:
    """Form and sizes of the regression head."""

    kind: RegressionHeadKind = RegressionHeadKind.BAR
    """Which head."""
    buckets: BucketConfig = BucketConfig()
    """Buckets of the bar head."""


class BarHead(nn.Module):
    """MLP D → 2D → Q, then a softmax over buckets."""

    def __init__(self, width: int, config: BucketConfig) -> None:
        super().__init__()
        self.layers = mlp(width, 2 * width, config.num_buckets)
        self.register_buffer("borders", bucket_borders(config))

    def forward(self, query_hidden: Tensor, *, location: Tensor, scale: Tensor) -> BarDistribution:
        """Reads query_hidden [B, M, D]; location and scale [B, 1] come from the context targets."""
        log_mass = torch.log_softmax(at_least_fp32(self.layers(query_hidden)), dim=-1)
        return BarDistribution(log_mass=log_mass, borders=self.borders, location=location, scale=scale)


def target_statistics(y_context: Tensor, context_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [B, 1] (fp64) of y_context [B, N] over its real rows.

    A constant target has scale 1, and a table without real rows has location 0 and scale 1.
    """
    count = context_mask.sum(1, keepdim=True).clamp_min(1)
    value = torch.where(context_mask, y_context, 0.0).double()
    location = value.sum(1, keepdim=True) / count
    spread = (torch.where(context_mask, value - location, 0.0) ** 2).sum(1, keepdim=True).div(count).sqrt()
    scale = torch.where(spread > 1e-9 * location.abs().clamp_min(1e-30), spread, 1.0)
    return location, scale


def make_regression_head(config: RegressionHeadConfig, *, width: int) -> nn.Module:
    """The head that a configuration names, for hidden states of `width`."""
    return BarHead(width, config.buckets)
