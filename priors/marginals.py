"""Marginals of number columns: what the histogram of a quantity looks like, how many digits it has, and its unit.

Stands for the ways in which quantities are recorded: proportions, prices, durations, amounts that are mostly zero,
readings of a coarse instrument, counts. Layout `[n, R]`: n columns of any tasks.
"""

import dataclasses
import math
from collections.abc import Callable

import torch

from priors.draws import Draws

_HALF = math.sqrt(0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalWeights:
    """How often each marginal is drawn."""

    raw: float = 3.0
    """The quantity as it came about."""
    uniform: float = 1.5
    """Flat between two bounds."""
    log_normal: float = 3.0
    """Exponential of the quantity: prices, sizes, concentrations."""
    kumaraswamy: float = 2.0
    """Bounded on both sides, leaning to either or to both: proportions and scores."""
    tails: float = 1.5
    """A power of the quantity: long tails on both sides, or two humps."""
    zero_inflated: float = 1.0
    """Zero below a threshold, then a slope."""
    hurdle: float = 1.0
    """Zero below a threshold, then a jump and a long tail: claims, purchases."""
    rounded: float = 1.0
    """A few equally spaced values."""
    counts: float = 2.0
    """Whole numbers from 0, mostly small."""


def _kumaraswamy(z: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    """Inverse of Kumaraswamy's distribution function (1980) at ranks u: (1 − (1 − u)^(1/b))^(1/a), a and b ½ … 5."""
    ranks = torch.erf(z * _HALF).add_(1).div_(2).clamp_(1e-4, 1 - 1e-4)
    a, b = torch.exp(shape * 2.3 - 0.7)
    return ranks.neg_().add_(1).pow_(b.reciprocal()).neg_().add_(1).pow_(a.reciprocal())


def _unchanged(z: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    """The quantity as it came about."""
    del shape
    return z


_FUNCTIONS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (  # in the order of MarginalWeights
    _unchanged,
    lambda z, k: torch.erf(z * _HALF),
    lambda z, k: torch.exp(z * (0.3 + k[0])),
    _kumaraswamy,
    lambda z, k: torch.sign(z) * z.abs() ** (0.5 + 1.5 * k[0]),
    lambda z, k: torch.relu(z - 2 * k[0] + 1),
    lambda z, k: torch.exp((z - 2 * k[0] + 1) * (0.5 + k[1])) * (z > 2 * k[0] - 1),
    lambda z, k: torch.round(z * (0.7 + 5 * k[0])),
    lambda z, k: torch.floor(torch.exp(z * (0.3 + 0.7 * k[0]) + 2 * k[1])),
)
_WHOLE = len(_FUNCTIONS) - 2  # from here on values are whole numbers
_OWN_SHARE = 0.6  # of columns whose marginal is not that of most columns of their task
_FARTHEST = 8.0  # no quantity is farther out than this before it is bent


def draw_marginals(
    draws: Draws, *, tasks: torch.Tensor, count: int, weights: MarginalWeights, plain_share: float
) -> torch.Tensor:
    """[n] int64 positions in `MarginalWeights`; columns of a task often share one.

    Args:
        draws: the random source.
        tasks: [n] the task of each column, 0 … count − 1.
        count: B.
        weights: how often each is drawn.
        plain_share: share of tasks whose numbers all stay raw.
    """
    frequency = tuple(vars(weights).values())
    bent = (0.0, *frequency[1:]) if sum(frequency[1:]) else frequency
    of_task = draws.choice((count,), weights=bent).mul_(~draws.happens((count,), share=plain_share))[tasks]
    differs = draws.happens(tasks.shape, share=_OWN_SHARE)
    own = torch.where(differs, draws.choice(tasks.shape, weights=frequency), of_task)
    return own.mul_(of_task > 0)


def bend(draws: Draws, raw: torch.Tensor, *, marginals: torch.Tensor) -> torch.Tensor:
    """Gives raw columns [n, R] (mean 0, variance 1) their marginals [n]; the order of the rows is kept."""
    order = marginals.argsort(stable=True)
    sizes = marginals.bincount(minlength=len(_FUNCTIONS)).tolist()
    values = raw.index_select(0, order).clamp_(-_FARTHEST, _FARTHEST)
    shape = draws.uniform((2, len(raw), 1))
    start = 0
    for function, size in zip(_FUNCTIONS, sizes, strict=True):
        part = slice(start, start + size)
        if size and function is not _unchanged:
            values[part] = function(values[part], shape[:, part])
        start += size
    return torch.empty_like(values).index_copy_(0, order, values)


def shorten(
    draws: Draws, values: torch.Tensor, *, marginals: torch.Tensor, tasks: torch.Tensor, share: torch.Tensor
) -> torch.Tensor:
    """Writes columns [n, R] with few digits, in place, in the tasks where `share` [B] bool says so."""
    some = share[tasks] & (marginals < _WHOLE) & draws.happens(tasks.shape, share=0.9)
    chosen = some.nonzero().squeeze(-1)
    part = values.index_select(0, chosen)
    deviation = (part - part.mean(-1, keepdim=True)).square_().mean(-1, keepdim=True).sqrt_().add_(1e-6)
    step = deviation.mul_(draws.log_uniform((len(chosen), 1), low=0.004, high=0.4))
    return values.index_copy_(0, chosen, part.div_(step).round_().mul_(step))


def in_units(draws: Draws, values: torch.Tensor) -> torch.Tensor:
    """Gives columns [n, R] a unit and, half of them, an offset; 3 in 10 stay as they are."""
    number = len(values)
    changed, moved = draws.uniform((2, number, 1)) < draws.tensor([0.7, 0.5]).view(2, 1, 1)
    unit = torch.where(changed, draws.log_uniform((number, 1), low=1e-2, high=1e3), 1.0)
    offset = draws.normal((number, 1)) * 3 * (changed & moved)
    return (values + offset).mul_(unit)
