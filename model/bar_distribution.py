"""A distribution over the real line made of bars: uniform inside each inner bucket, half-normal in the two outer ones.

Bucket probabilities live on the scaled axis, t = (y − location) / scale (`target_scaling.py`). Density, cdf, quantiles,
moments and scores all describe this one distribution (seed 6.9). The half-normal tails put half of their mass inside
the outer bucket's width, as TabPFN-3's do. What tails need is taken in fp64: the cdf from below and the survival
function from above, neither as 1 minus the other.

Shapes: B tables, M queries, S points or levels, Q buckets. A method that takes points takes y [B, M], or [B, M, S] (or
what broadcasts to it) for S points a query, and answers in the same shape.
"""

import dataclasses
import math

import torch
from torch import Tensor

from model.bucket_borders import check_ascending
from model.levels import check_levels, tail_level
from model.target_scaling import TARGET_LIMIT, winsorised

_HALF_NORMAL_MEDIAN = 0.6744897501960817  # of |Z|, Z standard normal
_HALF_NORMAL_MEAN = math.sqrt(2 / math.pi)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BarDistribution:
    """The predictive distribution of each query's target.

    Args:
        log_mass: [B, M, Q] log-probabilities of the buckets.
        borders: [Q + 1] fp64, strictly ascending, on the scaled axis.
        location: [B, 1] of the context's targets.
        scale: [B, 1].
    """

    log_mass: Tensor
    borders: Tensor
    location: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        """Refuses borders that do not ascend strictly (looked at on the CPU alone, and never while compiling).

        Raises:
            BadInput (a ValueError): BAD_FLAG.
        """
        if self.borders.device.type == "cpu" and not torch.compiler.is_compiling():
            check_ascending("borders", self.borders)

    def density(self, y: Tensor) -> Tensor:
        """p(y), per unit of y."""
        return self.log_density(y).exp()

    def log_density(self, y: Tensor) -> Tensor:
        """log p(y), per unit of y: the logarithm of the scaled density minus log(scale)."""
        return self._answer(self._log_density(self._points(y)) - self.scale.log()[..., None], y)

    def log_density_scaled(self, t: Tensor) -> Tensor:
        """log p(t) at points t of the scaled axis, per unit of t."""
        return self._answer(self._log_density(self._expanded(t)), t)

    def nll(self, y: Tensor) -> Tensor:
        """−log p(y) in nats, of a density per unit of y: in a unit ten times smaller it is larger by log 10."""
        return -self.log_density(y)

    def losses(self, y: Tensor) -> Tensor:
        """−log p(t) [B, M] in nats on the scaled axis, winsorised: what training minimises.

        Tasks of any unit weigh the same. The limit is `TARGET_LIMIT`, or twice the outermost border where that is more:
        every bucket has targets of its own to learn from, and each tail has some beyond its bucket.
        """
        limit = (2 * self.borders.abs().max()).clamp_min(TARGET_LIMIT)
        return -self.log_density_scaled(winsorised(y, location=self.location, scale=self.scale, limit=limit))

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y), accurate to rounding relative to itself, however small."""
        return self._answer(self._cdf(self._points(y)), y)

    def sf(self, y: Tensor) -> Tensor:
        """P(Y > y), accurate to rounding relative to itself, however small: no 1 − cdf."""
        return self._answer(self._mirrored()._cdf(-self._points(y)), y)

    def icdf(self, levels: Tensor) -> Tensor:
        """The quantiles y [B, M, S] with P(Y ≤ y) = p, for levels p [S] or [B, M, S] in (0, 1), by inverting the cdf.

        Raises:
            BadInput (a ValueError): BAD_LEVEL.
        """
        check_levels("levels", levels)
        return self._on_axis_of_y(self._icdf(levels))

    def isf(self, levels: Tensor) -> Tensor:
        """The points y [B, M, S] with P(Y > y) = p; accurate for tiny p, where 1 − p would be 1.

        Raises:
            BadInput (a ValueError): BAD_LEVEL.
        """
        check_levels("levels", levels)
        return self._on_axis_of_y(-self._mirrored()._icdf(levels))

    def central_interval(self, level: float) -> Tensor:
        """[B, M, 2] the ends of the interval that holds `level` of the mass and leaves out as much on either side.

        Raises:
            BadInput (a ValueError): BAD_LEVEL for a level outside (0, 1).
        """
        tail = torch.tensor([tail_level(level)], dtype=torch.float64)
        return torch.cat([self.icdf(tail), self.isf(tail)], dim=-1)

    def sample(self, num_samples: int, *, generator: torch.Generator) -> Tensor:
        """[B, M, num_samples] independent draws."""
        shape = (*self.log_mass.shape[:2], num_samples)
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
        return self._on_axis_of_y(self._icdf(drawn.clamp_min(torch.finfo(torch.float64).tiny)))

    def mean(self) -> Tensor:
        """E[Y] [B, M]."""
        return (self._masses() * self._centres()).sum(-1) * self.scale + self.location

    def variance(self) -> Tensor:
        """E[(Y − E[Y])²] [B, M], in squared units of y."""
        masses, centres = self._masses(), self._centres()
        within = self.borders.diff() ** 2 / 12
        for tail, sigma in zip((0, -1), self._tail_sigmas(), strict=True):
            within[tail] = (1 - 2 / math.pi) * sigma**2
        mean = (masses * centres).sum(-1, keepdim=True)
        return (masses * (within + (centres - mean) ** 2)).sum(-1) * self.scale**2

    def crps(self, y: Tensor) -> Tensor:
        """∫ (F(z) − 1[y ≤ z])² dz in units of y, tails included.

        In closed form, as E|Y − y| − ½ E|Y − Y′| (Gneiting & Raftery 2007, equation 21). At y = ±∞ it is ∞.
        """
        t = self._points(y)
        distance = self._mean_distance(torch.where(t.isinf(), 0.0, t)) - self._half_mean_difference()[..., None]
        return self._answer(distance.masked_fill(t.isinf(), math.inf) * self.scale[..., None], y)

    def _points(self, y: Tensor) -> Tensor:
        """Points on the scaled axis [B, M, S] of y [B, M] or [B, M, S]."""
        if y.ndim == 2:
            return self._expanded((y - self.location) / self.scale)
        return self._expanded((y - self.location[..., None]) / self.scale[..., None])

    def _expanded(self, t: Tensor) -> Tensor:
        """[B, M, S] of t [B, M] or what broadcasts to [B, M, S], in the precision of the borders."""
        t = t[..., None] if t.ndim == 2 else t
        return t.to(self.borders.dtype).expand(*self.log_mass.shape[:2], -1).contiguous()

    def _answer(self, value: Tensor, y: Tensor) -> Tensor:
        return value[..., 0] if y.ndim == 2 else value

    def _on_axis_of_y(self, t: Tensor) -> Tensor:
        return t * self.scale[..., None] + self.location[..., None]

    def _mirrored(self) -> "BarDistribution":
        """The distribution of −t: what is asked of the upper tail is asked of its lower one."""
        return dataclasses.replace(self, log_mass=self.log_mass.flip(-1), borders=-self.borders.flip(0))

    def _tail_sigmas(self) -> tuple[Tensor, Tensor]:
        widths = self.borders.diff()
        return widths[0] / _HALF_NORMAL_MEDIAN, widths[-1] / _HALF_NORMAL_MEDIAN

    def _bucket(self, t: Tensor) -> Tensor:
        """The bucket of each point; a point on a border belongs to the bucket above it."""
        return (torch.searchsorted(self.borders, t, right=True) - 1).clamp(0, len(self.borders) - 2)

    def _log_density(self, t: Tensor) -> Tensor:
        last, bucket = len(self.borders) - 2, self._bucket(t)
        sigma_low, sigma_high = self._tail_sigmas()
        bars = -self.borders.diff().log()[bucket]
        low = _log_half_normal((self.borders[1] - t) / sigma_low) - sigma_low.log()
        high = _log_half_normal((t - self.borders[-2]) / sigma_high) - sigma_high.log()
        shape = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return self.log_mass.gather(-1, bucket) + shape

    def _cdf(self, t: Tensor) -> Tensor:
        last, bucket = len(self.borders) - 2, self._bucket(t)
        below, mass = self._cumulative()
        sigma_low, sigma_high = self._tail_sigmas()
        bars = (t - self.borders[bucket]) / self.borders.diff()[bucket]
        low = torch.erfc(((self.borders[1] - t) / sigma_low).clamp_min(0) / math.sqrt(2))
        high = torch.erf(((t - self.borders[-2]) / sigma_high).clamp_min(0) / math.sqrt(2))
        share = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return below.gather(-1, bucket) + mass.gather(-1, bucket) * share

    def _icdf(self, levels: Tensor) -> Tensor:
        """Quantiles on the scaled axis: lower levels are looked up from below and upper ones from above."""
        levels = levels.to(self.borders).expand(*self.log_mass.shape[:2], -1).contiguous()
        upper = -self._mirrored()._icdf_from_below(1 - levels)
        return torch.where(levels <= 0.5, self._icdf_from_below(levels), upper)

    def _icdf_from_below(self, levels: Tensor) -> Tensor:
        below, mass = self._cumulative()
        last, limits = len(self.borders) - 2, torch.finfo(mass.dtype)
        bucket = (torch.searchsorted(below, levels, right=True) - 1).clamp(0, last)
        share = (levels - below.gather(-1, bucket)) / mass.gather(-1, bucket).clamp_min(limits.tiny)
        share = share.clamp(limits.tiny, 1 - limits.eps)
        sigma_low, sigma_high = self._tail_sigmas()
        bars = self.borders[bucket] + share * self.borders.diff()[bucket]
        low = self.borders[1] + sigma_low * torch.special.ndtri(0.5 * share)
        high = self.borders[-2] - sigma_high * torch.special.ndtri(0.5 * (1 - share))
        return torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))

    def _masses(self) -> Tensor:
        """[B, M, Q] fp64 bucket probabilities that sum to 1 in that precision."""
        mass = self.log_mass.double().exp()
        return mass / mass.sum(-1, keepdim=True)

    def _cumulative(self) -> tuple[Tensor, Tensor]:
        """Mass below each bucket and in it, both [B, M, Q] fp64."""
        mass = self._masses()
        below = torch.cat([torch.zeros_like(mass[..., :1]), mass.cumsum(-1)[..., :-1]], dim=-1)
        return below, mass

    def _centres(self) -> Tensor:
        """[Q] fp64 the mean of each bucket on the scaled axis."""
        borders, (sigma_low, sigma_high) = self.borders, self._tail_sigmas()
        centres = 0.5 * (borders[1:] + borders[:-1])
        centres[0] = borders[1] - sigma_low * _HALF_NORMAL_MEAN
        centres[-1] = borders[-2] + sigma_high * _HALF_NORMAL_MEAN
        return centres

    def _mean_distance(self, t: Tensor) -> Tensor:
        """E|T − t| [B, M, S]: the buckets on either side by their centres, t's own by its shape."""
        bucket, last = self._bucket(t), len(self.borders) - 2
        below, mass = self._cumulative()
        above = mass.flip(-1).cumsum(-1).flip(-1) - mass
        moments = mass * self._centres()
        moment_below = moments.cumsum(-1) - moments
        moment_above = moments.flip(-1).cumsum(-1).flip(-1) - moments
        below, above, mass, moment_below, moment_above = (
            part.gather(-1, bucket) for part in (below, above, mass, moment_below, moment_above)
        )
        sigma_low, sigma_high = self._tail_sigmas()
        low_end, high_end = self.borders[bucket], self.borders[bucket + 1]
        bars = ((t - low_end) ** 2 + (high_end - t) ** 2) / (2 * (high_end - low_end))
        low = sigma_low * _half_normal_distance((self.borders[1] - t) / sigma_low)
        high = sigma_high * _half_normal_distance((t - self.borders[-2]) / sigma_high)
        own = torch.where(bucket == 0, low, torch.where(bucket == last, high, bars))
        return (t * below - moment_below) + (moment_above - t * above) + mass * own

    def _half_mean_difference(self) -> Tensor:
        """½ E|T − T'| = ∫ F(1 − F) dt [B, M], bucket by bucket.

        A tail of mass m has F = m·erfc(z/√2), and ∫ erfc(z/√2) = √(2/π), ∫ erfc²(z/√2) = 2(√2 − 1)/√π over z ≥ 0.
        """
        below, mass = self._cumulative()
        end, widths = below + mass, self.borders.diff()
        parts = widths * (0.5 * (below + end) - (below**2 + below * end + end**2) / 3)
        tail = mass * _HALF_NORMAL_MEAN - mass**2 * (2 * (math.sqrt(2) - 1) / math.sqrt(math.pi))
        sigma_low, sigma_high = self._tail_sigmas()
        return parts[..., 1:-1].sum(-1) + sigma_low * tail[..., 0] + sigma_high * tail[..., -1]


def _log_half_normal(z: Tensor) -> Tensor:
    """log density at z ≥ 0 of |Z|, Z standard normal."""
    return 0.5 * math.log(2 / math.pi) - 0.5 * z * z


def _half_normal_distance(z: Tensor) -> Tensor:
    """E||Z| − z| for z ≥ 0, Z standard normal: z(4Φ(z) − 3) + 4φ(z) − 2φ(0)."""
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return z * (4 * torch.special.ndtr(z) - 3) + 4 * density - _HALF_NORMAL_MEAN
