"""A prediction by quantiles at fixed levels: repaired where they cross, interpolated between, continued beyond (6.10).

Shapes: B tables, M queries, S levels.
"""

import dataclasses
import enum
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from model.levels import check_levels, pinball_losses, tail_level
from model.target_scaling import winsorised


class CrossingRepair(enum.StrEnum):
    """What is done where a higher level has the lower value."""

    NONE = "none"  # crossed quantiles are given as they are
    SORT = (
        "sort"  # the same values in ascending order, which never has the larger pinball loss (Chernozhukov et al. 2010)
    )
    ISOTONIC = "isotonic"  # the nearest ascending values by least squares


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantilePrediction:
    """Quantiles of each query's target. Everything but the losses and the crossing rate is read after the repair.

    Between two levels the quantile function is linear. Beyond the outermost level it goes on as the normal
    distribution through the two outermost quantiles does, so it has no end.

    Args:
        values: [B, M, S] on the scaled axis, as the network gave them.
        levels: [S] fp64, ascending, in (0, 1).
        location: [B, 1] of the context's targets.
        scale: [B, 1].
        repair: recorded in the configuration.
    """

    values: Tensor
    levels: Tensor
    location: Tensor
    scale: Tensor
    repair: CrossingRepair = CrossingRepair.SORT

    def losses(self, y: Tensor) -> Tensor:
        """Pinball loss [B, M] on the scaled axis, mean over levels, winsorised: what training minimises."""
        scaled = winsorised(y, location=self.location, scale=self.scale)
        return pinball_losses(self.values, scaled, levels=self.levels).mean(-1)

    def crossing_rate(self) -> Tensor:
        """[B, M] the share of neighbouring levels of which the higher has the lower value, before the repair.

        NaN where a value is NaN: whether it crosses is not known.
        """
        rate = (self.values.diff(dim=-1) < 0).double().mean(-1)
        return rate.masked_fill(self.values.isnan().any(-1), math.nan)

    def repaired(self) -> "QuantilePrediction":
        """The same with ascending values (with `CrossingRepair.NONE`, unchanged)."""
        return dataclasses.replace(self, values=self._repaired_values(), repair=CrossingRepair.NONE)

    def icdf(self, levels: Tensor) -> Tensor:
        """The quantiles y [B, M, P] at any levels p [P] in (0, 1).

        Raises:
            BadInput (a ValueError): BAD_LEVEL.
        """
        check_levels("levels", levels)
        values, levels = self._repaired_values(), levels.to(self.levels)
        low = (torch.searchsorted(self.levels, levels, right=True) - 1).clamp(0, len(self.levels) - 2)
        share = (levels - self.levels[low]) / self.levels.diff()[low]
        inner = torch.lerp(values[..., low], values[..., low + 1], share.clamp(0, 1))
        z, (first, last) = torch.special.ndtri(levels), self._tail_slopes(values)
        ends = torch.special.ndtri(self.levels[[0, -1]])
        lower = values[..., :1] + first[..., None] * (z - ends[0])
        upper = values[..., -1:] + last[..., None] * (z - ends[1])
        t = torch.where(levels < self.levels[0], lower, torch.where(levels > self.levels[-1], upper, inner))
        return self._on_axis_of_y(t)

    def median(self) -> Tensor:
        """[B, M]."""
        return self.icdf(torch.tensor([0.5], dtype=torch.float64))[..., 0]

    def mean(self) -> Tensor:
        """E[Y] [B, M]: the integral of the quantile function over (0, 1), in closed form.

        Trapezia between levels; beyond them ∫ Φ⁻¹(p) dp = −φ(Φ⁻¹(τ)) from 0 to τ, and by symmetry at the other end.
        """
        values, levels = self._repaired_values(), self.levels
        inner = (0.5 * (values[..., 1:] + values[..., :-1]) * levels.diff()).sum(-1)
        z = torch.special.ndtri(levels[[0, -1]])
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        first, last = self._tail_slopes(values)
        lower = levels[0] * values[..., 0] - first * (density[0] + levels[0] * z[0])
        rest = 1 - levels[-1]
        upper = rest * values[..., -1] + last * (density[1] - rest * z[1])
        return (lower + inner + upper) * self.scale + self.location

    def central_interval(self, level: float) -> Tensor:
        """[B, M, 2] the quantiles at (1 − level)/2 and (1 + level)/2.

        Raises:
            BadInput (a ValueError): BAD_LEVEL for a level outside (0, 1).
        """
        tail = tail_level(level)
        return self.icdf(torch.tensor([tail, 1 - tail], dtype=torch.float64))

    def width(self, level: float) -> Tensor:
        """[B, M] width of the central interval, in units of y."""
        return self.central_interval(level).diff(dim=-1)[..., 0]

    def covers(self, y: Tensor, *, level: float) -> Tensor:
        """[B, M] bool: whether y [B, M] lies in the central interval, ends included; its mean is the coverage."""
        low, high = self.central_interval(level).unbind(-1)
        return (low <= y) & (y <= high)

    def _repaired_values(self) -> Tensor:
        values = self.values.double()
        if self.repair is CrossingRepair.SORT:
            return values.sort(dim=-1).values
        return isotonic(values) if self.repair is CrossingRepair.ISOTONIC else values

    def _tail_slopes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """[B, M] standard deviations of the normals through the two lowest and the two highest quantiles."""
        z = torch.special.ndtri(self.levels[[0, 1, -2, -1]])
        low = (values[..., 1] - values[..., 0]) / (z[1] - z[0])
        high = (values[..., -1] - values[..., -2]) / (z[3] - z[2])
        return low.clamp_min(0), high.clamp_min(0)

    def _on_axis_of_y(self, t: Tensor) -> Tensor:
        return t * self.scale[..., None] + self.location[..., None]


def isotonic(values: Tensor) -> Tensor:
    """The ascending sequence [..., S] nearest to values [..., S] by least squares.

    Entry i is the maximum over j ≤ i of the minimum over k ≥ i of the mean of entries j to k (Robertson, Wright &
    Dykstra 1988, theorem 1.4.4): S passes over the values.
    """
    totals = F.pad(values.cumsum(-1), (1, 0))
    out, size = torch.full_like(values, -torch.inf), values.shape[-1]
    for first in range(size):
        counts = torch.arange(1, size - first + 1, device=values.device)
        means = (totals[..., first + 1 :] - totals[..., first, None]) / counts
        lowest = means.flip(-1).cummin(-1).values.flip(-1)
        out[..., first:] = torch.maximum(out[..., first:], lowest)
    return out
