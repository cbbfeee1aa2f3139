"""Where the buckets of a target distribution lie: borders follow from the configuration alone (seed 6.9).

The configuration is saved with the checkpoint, so training and evaluation cannot have different borders. All borders
are on the scaled axis, t = (y − location) / scale, in standard deviations of the context's targets.
"""

import dataclasses
import enum
import math

import torch
from torch import Tensor

from tools.failure import BadInput, ExitCode

_KNOTS = ((0, -128.0), (5, -16.9), (20, -13.0), (100, -9.9), (200, -8.47), (500, -6.48), (1000, -4.40), (2500, 0.0))
_KNOT_BUCKETS = 5000  # the number of buckets that the knots' border numbers count
_EVEN_SHARE = 1e-3  # of prior-quantile borders: keeps them apart where the prior repeats a value


class BorderRule(enum.StrEnum):
    """How borders are placed."""

    SINH = "sinh"  # narrow in the centre, growing outwards: t = c·sinh(a·u), u uniform on [-1, 1]
    UNIFORM = "uniform"  # equal widths between ± border
    PRIOR_QUANTILES = "prior_quantiles"  # equal mass under the prior: listed in `borders` (see `from_prior`)
    TABPFN3 = "tabpfn3"  # piecewise linear through TabPFN-3's published knots, from -128 to 128


class OutOfRange(enum.StrEnum):
    """What happens to targets beyond the finite borders."""

    HALF_NORMAL = "half_normal"  # the outer buckets are half-normal tails: every target has a density


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketConfig:
    """Where the buckets lie, in standard deviations of the context targets."""

    num_buckets: int = 128
    """Q; the full size has 5,000."""
    rule: BorderRule = BorderRule.SINH
    """How borders are placed."""
    border: float = 12.0
    """Outermost finite borders are at ± this (sinh and uniform); beyond them the half-normal tails go on."""
    inner_width: float = 0.02
    """Width of the central buckets, two of an even number or one of an odd (sinh); widths grow outwards."""
    borders: tuple[float, ...] = ()
    """The Q + 1 borders themselves, strictly ascending (prior_quantiles; empty under every other rule)."""
    out_of_range: OutOfRange = OutOfRange.HALF_NORMAL
    """Policy for targets beyond the outermost borders: the only one there is, recorded with the checkpoint (6.9)."""


def bucket_borders(config: BucketConfig) -> Tensor:
    """[Q + 1] fp64 strictly ascending borders on the scaled axis, the same for the same configuration.

    Raises:
        BadInput (a ValueError): BAD_FLAG for fewer than two buckets (each tail needs its own), sizes that are not
            positive, a list of borders that does not fit, or borders that do not ascend strictly.
    """
    _check(config)
    count = config.num_buckets
    if config.rule is BorderRule.SINH:
        borders = _sinh_borders(config)
    elif config.rule is BorderRule.UNIFORM:
        borders = config.border * torch.linspace(-1.0, 1.0, count + 1, dtype=torch.float64)
    elif config.rule is BorderRule.TABPFN3:
        borders = _knot_borders(count)
    else:
        borders = torch.tensor(config.borders, dtype=torch.float64)
    if borders.device.type != "meta":
        check_ascending("buckets.borders", borders)
    return borders


def from_prior(config: BucketConfig, scaled_targets: Tensor) -> BucketConfig:
    """The configuration whose buckets have equal mass under the prior; its borders are listed, hence recorded.

    For code that makes its own `NetworkConfig`: give the result as its `regression.buckets` before the network is made.
    No preset and no flag calls this, since a configuration must be complete before any task is drawn.

    An outer bucket's tail has half its mass beyond the outermost border, so that border is the ½/Q quantile and inner
    border i the i/Q quantile. A thousandth of each border is that of equal widths: values that the prior repeats do
    not merge buckets.

    Args:
        config: its `num_buckets` is kept.
        scaled_targets: any shape: query targets of prior tasks, scaled by their context.

    Raises:
        BadInput: BAD_FLAG for fewer than two targets a bucket, targets that are not finite, or all equal.
    """
    targets = scaled_targets.detach().flatten().double().cpu()
    count = config.num_buckets
    if len(targets) < 2 * max(count, 2):
        raise _refusal(f"scaled_targets holds {len(targets)} values for {count} buckets: give two a bucket or more")
    if not targets.isfinite().all():
        raise _refusal(f"scaled_targets holds {int((~targets.isfinite()).sum())} values that are not finite: drop them")
    levels = torch.arange(count + 1, dtype=torch.float64) / count
    levels[0], levels[-1] = 0.5 / count, 1 - 0.5 / count
    ordered = targets.sort().values
    place = levels * (len(ordered) - 1)
    low = place.floor().long().clamp_max(len(ordered) - 2)
    quantiles = torch.lerp(ordered[low], ordered[low + 1], place - low)
    if not ordered[-1] > ordered[0]:
        raise _refusal(f"scaled_targets are all {float(ordered[0]):g}: give targets that vary")
    even = torch.lerp(ordered[0], ordered[-1], torch.arange(count + 1, dtype=torch.float64) / count)
    borders = torch.lerp(quantiles, even, _EVEN_SHARE)
    return dataclasses.replace(config, rule=BorderRule.PRIOR_QUANTILES, borders=tuple(borders.tolist()))


def check_ascending(name: str, borders: Tensor) -> None:
    """Refuses borders that are not finite and strictly ascending.

    Raises:
        BadInput: BAD_FLAG, with the first pair that is wrong.
    """
    wrong = ~(borders.diff() > 0) | ~borders[1:].isfinite() | ~borders[:-1].isfinite()
    if wrong.any():
        at = int(wrong.nonzero()[0, 0])
        pair = f"{name}[{at}] is {float(borders[at])!r} and {name}[{at + 1}] is {float(borders[at + 1])!r}"
        raise _refusal(f"{pair}: borders must be finite and ascend strictly")


def _check(config: BucketConfig) -> None:
    if config.num_buckets < 2:
        raise _refusal(f"buckets.num_buckets is {config.num_buckets}: give 2 or more")
    for name, size in (("border", config.border), ("inner_width", config.inner_width)):
        if not (size > 0 and math.isfinite(size)):
            raise _refusal(f"buckets.{name} is {size}: give a positive number")
    wanted = config.num_buckets + 1 if config.rule is BorderRule.PRIOR_QUANTILES else 0
    if len(config.borders) != wanted:
        mend = f"give {wanted} under the rule {config.rule} with {config.num_buckets} buckets"
        raise _refusal(f"buckets.borders has {len(config.borders)} values: {mend}")


def _sinh_borders(config: BucketConfig) -> Tensor:
    """t_i = c·sinh(a·u_i), with a such that the central buckets have the inner width."""
    u = torch.linspace(-1.0, 1.0, config.num_buckets + 1, dtype=torch.float64)
    step, odd = 2.0 / config.num_buckets, config.num_buckets % 2 == 1
    low, high = 1e-6, 40.0
    for _ in range(200):  # bisection on a: the central width falls as a grows
        a = 0.5 * (low + high)
        width = config.border * (2 * math.sinh(a * step / 2) if odd else math.sinh(a * step)) / math.sinh(a)
        low, high = (a, high) if width > config.inner_width else (low, a)
    return config.border * torch.sinh(a * u) / math.sinh(a)


def _knot_borders(count: int) -> Tensor:
    """TabPFN-3's knots (border number of 5,000 buckets, place), mirrored, read at count + 1 even steps."""
    right = [(_KNOT_BUCKETS - number, -place) for number, place in reversed(_KNOTS[:-1])]
    knots = torch.tensor([*_KNOTS, *right], dtype=torch.float64)
    numbers = torch.arange(count + 1, dtype=torch.float64) * (_KNOT_BUCKETS / count)
    low = (torch.searchsorted(knots[:, 0].contiguous(), numbers, right=True) - 1).clamp(0, len(knots) - 2)
    share = (numbers - knots[low, 0]) / (knots[low + 1, 0] - knots[low, 0])
    return torch.lerp(knots[low, 1], knots[low + 1, 1], share)


def _refusal(message: str) -> BadInput:
    return BadInput(ExitCode.BAD_FLAG, message)
