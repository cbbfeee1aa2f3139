"""A distribution over the real line made of bars: uniform inside each inner bucket, half-normal in the two outer ones.

A target y is scaled by its context, t = (y - location) / scale, and bucket probabilities live on the axis of t. The
borders and the policy for values beyond them are part of the configuration, so training and evaluation cannot differ
(seed 6.9). Density, cdf, quantiles, mean and NLL all describe this one distribution. The half-normal tails put half of
their mass inside the outer bucket's width, as TabPFN-3's do.
"""

import dataclasses
import enum
import math

import torch
from torch import Tensor

from tools.failure import ExitCode, Failure

_HALF_NORMAL_MEDIAN = 0.6744897501960817  # of |Z|, Z standard normal


class OutOfRange(enum.StrEnum):
    """What happens to targets beyond the finite borders."""

    HALF_NORMAL = "half_normal"  # the outer buckets are half-normal tails: no target is clipped or refused


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketConfig:
    """Where the buckets lie, in standard deviations of the context targets."""

    num_buckets: int = 128
    """Q; the full size has 5,000."""
    border: float = 12.0
    """Outermost finite borders are at ± this; beyond them the half-normal tails go on."""
    inner_width: float = 0.02
    """Width of the two central buckets; widths grow outwards by a sinh spacing."""
    out_of_range: OutOfRange = OutOfRange.HALF_NORMAL
    """Policy for targets beyond ± border."""


def bucket_borders(config: BucketConfig) -> Tensor:
    """[Q + 1] fp64 strictly ascending borders t_i = c·sinh(a·u_i), u uniform on [-1, 1].

    Raises:
        Failure: BAD_FLAG for fewer than two buckets: each tail needs its own.
    """
    if config.num_buckets < 2:
        raise Failure(ExitCode.BAD_FLAG, f"buckets.num_buckets is {config.num_buckets}: give 2 or more")
    u = torch.linspace(-1.0, 1.0, config.num_buckets + 1, dtype=torch.float64)
    step = 2.0 / config.num_buckets
    low, high = 1e-6, 40.0
    for _ in range(200):  # bisection on a: the central width falls as a grows
        a = 0.5 * (low + high)
        width = config.border * math.sinh(a * step) / math.sinh(a)
        low, high = (a, high) if width > config.inner_width else (low, a)
    return config.border * torch.sinh(a * u) / math.sinh(a)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BarDistribution:
    """The predictive distribution of each query's target.

    Args:
        log_mass: [B, M, Q] log-probabilities of the buckets.
        borders: [Q + 1] ascending, on the scaled axis.
        location: [B, 1] mean of the context targets.
        scale: [B, 1] their standard deviation, or 1 where it is 0.
    """

    log_mass: Tensor
    borders: Tensor
    location: Tensor
    scale: Tensor

    def _tail_sigmas(self) -> tuple[Tensor, Tensor]:
        widths = self.borders.diff()
        return widths[0] / _HALF_NORMAL_MEDIAN, widths[-1] / _HALF_NORMAL_MEDIAN

    def log_density(self, y: Tensor) -> Tensor:
        """log p(y) [B, M] per unit of y: the scaled density's logarithm minus log(scale)."""
        return self.log_density_scaled((y - self.location) / self.scale) - self.scale.log()

    def log_density_scaled(self, t: Tensor) -> Tensor:
        """log p(t) [B, M] on the scaled axis."""
        t = t.to(self.borders.dtype)
        last = len(self.borders) - 2
        bucket = (torch.searchsorted(self.borders, t.contiguous(), right=True) - 1).clamp(0, last)
        sigma_low, sigma_high = self._tail_sigmas()
        bars = -self.borders.diff().log()[bucket]
        low = _log_half_normal((self.borders[1] - t) / sigma_low) - sigma_low.log()
        high = _log_half_normal((t - self.borders[-2]) / sigma_high) - sigma_high.log()
        shape = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return self.log_mass.gather(-1, bucket[..., None])[..., 0] + shape

    def nll(self, y: Tensor) -> Tensor:
        """-log p(y) [B, M] in nats; depends on the unit of y."""
        return -self.log_density(y)

    def mean(self) -> Tensor:
        """E[y] [B, M]."""
        centres = self._centres()
        return (self.log_mass.exp().to(centres.dtype) @ centres) * self.scale + self.location

    def _centres(self) -> Tensor:
        """[Q] the mean of each bucket on the scaled axis."""
        sigma_low, sigma_high = self._tail_sigmas()
        centres = 0.5 * (self.borders[1:] + self.borders[:-1])
        centres[0] = self.borders[1] - sigma_low * math.sqrt(2 / math.pi)
        centres[-1] = self.borders[-2] + sigma_high * math.sqrt(2 / math.pi)
        return centres

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y) [B, M, S] at points y [B, M, S] or broadcastable."""
        t = (y - self.location[..., None]) / self.scale[..., None]
        t = t.to(self.borders.dtype).expand(*self.log_mass.shape[:2], -1).contiguous()
        last = len(self.borders) - 2
        below, mass = self._cumulative()
        bucket = (torch.searchsorted(self.borders, t, right=True) - 1).clamp(0, last)
        sigma_low, sigma_high = self._tail_sigmas()
        bars = (t - self.borders[bucket]) / self.borders.diff()[bucket]
        low = torch.erfc(((self.borders[1] - t) / sigma_low).clamp_min(0) / math.sqrt(2))
        high = torch.erf(((t - self.borders[-2]) / sigma_high).clamp_min(0) / math.sqrt(2))
        share = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return below.gather(-1, bucket) + mass.gather(-1, bucket) * share

    def quantiles(self, taus: Tensor) -> Tensor:
        """y with P(Y ≤ y) = tau: [B, M, S] for taus [S] in (0, 1), by inverting the cdf (seed 6.9)."""
        below, mass = self._cumulative()
        last = len(self.borders) - 2
        taus = taus.to(mass.dtype).expand(*mass.shape[:2], -1).contiguous()
        bucket = (torch.searchsorted(below, taus, right=True) - 1).clamp(0, last)
        share = (taus - below.gather(-1, bucket)) / mass.gather(-1, bucket).clamp_min(torch.finfo(mass.dtype).tiny)
        limits = torch.finfo(mass.dtype)
        share = share.clamp(limits.tiny, 1 - limits.eps)
        sigma_low, sigma_high = self._tail_sigmas()
        bars = self.borders[bucket] + share * self.borders.diff()[bucket]
        low = self.borders[1] + sigma_low * torch.special.ndtri(0.5 * share)
        high = self.borders[-2] - sigma_high * torch.special.ndtri(0.5 * (1 - share))
        t = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return t * self.scale[..., None] + self.location[..., None]

    def _cumulative(self) -> tuple[Tensor, Tensor]:
        """Mass below each bucket and in it, both [B, M, Q] in the borders' precision."""
        mass = self.log_mass.to(self.borders.dtype).exp()
        mass = mass / mass.sum(-1, keepdim=True)
        below = torch.cat([torch.zeros_like(mass[..., :1]), mass.cumsum(-1)[..., :-1]], dim=-1)
        return below, mass


def _log_half_normal(z: Tensor) -> Tensor:
    """log density at z ≥ 0 of |Z|, Z standard normal."""
    return 0.5 * math.log(2 / math.pi) - 0.5 * z * z
