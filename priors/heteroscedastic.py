"""Targets whose spread, tails and skewness are part of the answer.

Stands for insurance claims (mostly none, then a long-tailed amount), prices and incomes (errors in proportion), waiting
times and lifetimes (skewed, exponential or gamma), yields and sensor readings (noise that grows with a setting or jumps
between machines), and returns (heavy tails). A mean, linear or smooth and bent, meets noise in one of four ways:

- added: y = m + σ·ε, with σ constant, linear in a direction, exponential in one, or by the groups of a column (levels
  of a category, steps of a number);
- multiplied: y = exp(m)·G with G > 0 of mean 1, so that the spread grows with the mean (a gamma or log-normal model
  with a log link; McCullagh & Nelder 1989, chapter 8);
- often zero: y is 0 with a probability that depends on the row, else as above (a hurdle; Cragg 1971);
- two regimes: each row follows one of two means, by a hidden coin whose odds depend on the row.

ε is normal, Student's t with 2 to 6 degrees, Laplace, a contaminated normal (Tukey 1960), or a skewed gamma or
log-normal around its mean.
"""

import dataclasses
import enum

import torch

from priors.causes import draw_causes
from priors.columns import Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, below, standardised
from priors.task import ColumnKind

_UNITS = 12  # of a bent mean
_GROUPS = 8
_MOST_DEGREES = 6


class Process(enum.IntEnum):
    """How the noise meets the mean."""

    ADDED = 0
    MULTIPLIED = 1
    ZEROS = 2
    REGIMES = 3


class Spread(enum.IntEnum):
    """What the scale of added noise depends on."""

    CONSTANT = 0
    LINEAR = 1
    EXPONENTIAL = 2
    GROUPS = 3


class Shape(enum.IntEnum):
    """The distribution of the noise."""

    NORMAL = 0
    STUDENT = 1
    LAPLACE = 2
    CONTAMINATED = 3
    GAMMA = 4
    LOG_NORMAL = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeteroscedasticConfig:
    """Regression with noise of its own."""

    process_weights: tuple[float, float, float, float] = (5.0, 2.0, 1.5, 1.5)
    """How often noise is added, multiplied, mixed with zeros and mixed from two regimes."""
    spread_weights: tuple[float, float, float, float] = (1.0, 2.0, 2.0, 2.0)
    """How often the scale of added noise is constant, linear, exponential and by groups."""
    shape_weights: tuple[float, float, float, float, float, float] = (3.0, 2.0, 1.0, 1.0, 1.5, 1.5)
    """How often noise is normal, Student's t, Laplace, contaminated, gamma and log-normal (where it is multiplied, all
    but gamma count as log-normal)."""
    linear_share: float = 0.4
    """Share of tasks with a linear mean (the others are bent, half of them on top of a linear part)."""
    least_noise: float = 0.05
    """Smallest share of a target's variance that added noise is to have."""
    most_noise: float = 0.85
    """Largest such share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    """The conditional distribution of each row's target: y = (other if a coin of the odds says so, else mean)·G + σ·ε.

    Args:
        process: [B] int64 of `Process`.
        shape: [B] int64 of `Shape`.
        degrees: [B] int64, 2 to 6, of Student's t; a gamma has half as many as its shape parameter.
        tail: [B] standard deviation of the logarithm of a log-normal; eight times the share of the contamination.
        mean: [B, R] m, or exp(m) where noise is multiplied.
        other: [B, R] 0, or the mean of the second regime.
        odds: [B, R] probability of a zero or of the second regime; 0 in other tasks.
        deviation: [B, R] scale σ of added noise; 0 where it is multiplied.
        relevant: [B] int64, columns that the target depends on.
    """

    process: torch.Tensor
    shape: torch.Tensor
    degrees: torch.Tensor
    tail: torch.Tensor
    mean: torch.Tensor
    other: torch.Tensor
    odds: torch.Tensor
    deviation: torch.Tensor
    relevant: torch.Tensor

    @property
    def expected(self) -> torch.Tensor:
        """[B, R] conditional mean of the target."""
        return (1 - self.odds) * self.mean + self.odds * self.other

    @property
    def multiplied(self) -> torch.Tensor:
        """[B, 1] bool, whether noise multiplies the mean."""
        return ((self.process == Process.MULTIPLIED) | (self.process == Process.ZEROS)).unsqueeze(-1)


def sample_heteroscedastic(draws: Draws, config: HeteroscedasticConfig, *, request: TableRequest) -> Draft:
    """Draws `request.count` tasks; the scores are the noisy target, its conditional mean, and the log of its scale."""
    count, rows = request.count, request.rows
    raw = draw_causes(draws, request.causes, count=count, causes=request.features, rows=rows)
    table = draw_columns(draws, raw, config=request.columns)
    law = draw_law(draws, config, table=table)
    target, expected = draw_target(draws, law), law.expected
    noise = (target - expected).square().mean(-1)
    signal = (expected - expected.mean(-1, keepdim=True)).square().mean(-1)
    scale = torch.where(law.multiplied, law.mean, law.deviation).log()
    return Draft(
        columns=table,
        scores=standardised(torch.stack([target, expected, scale], dim=1)),
        classes=draws.full((count, rows), -1, dtype=torch.int64),
        loudness=draws.full((count,), 0.0),
        facts={
            "relevant": law.relevant,
            "own_noise": noise / (noise + signal).clamp(min=1e-12),
            "process": law.process,
            "shape": law.shape,
        },
    )


def draw_law(draws: Draws, config: HeteroscedasticConfig, *, table: Columns) -> Law:
    """Draws how the target of each row of B tables is distributed."""
    count, features, _ = table.signal.shape
    process = draws.choice((count,), weights=config.process_weights)
    spread = draws.choice((count,), weights=config.spread_weights)
    chosen = _some(draws, count=count, features=features, most=features)
    turned = _some(draws, count=count, features=features, most=min(3, features))
    means = _means(draws, config, signal=table.signal, chosen=chosen)
    direction = standardised((draws.normal((count, 1, features)) * turned.unsqueeze(1)) @ table.signal).squeeze(1)
    groups, column = _groups(draws, table)
    deviation = _deviation(draws, spread=spread, direction=direction, groups=groups)
    noisy = draws.uniform((count, 1), low=config.least_noise, high=config.most_noise)
    deviation = deviation * (noisy / (1 - noisy)).sqrt()
    regimes, zeros = (process == Process.REGIMES).unsqueeze(-1), (process == Process.ZEROS).unsqueeze(-1)
    slope = draws.uniform((count, 1), high=2.0) * (zeros | draws.happens((count, 1), share=0.6))
    odds = torch.sigmoid(draws.uniform((count, 1), low=-1.5, high=1.5) + slope * direction) * (regimes | zeros)
    multiplied = zeros | (process == Process.MULTIPLIED).unsqueeze(-1)
    grown = torch.exp(draws.uniform((count, 1), low=0.3, high=1.0) * means[:, 0].clamp(-5, 5))
    turns = (spread == Spread.LINEAR) | (spread == Spread.EXPONENTIAL)
    turns = torch.where(multiplied, zeros & (slope > 0), turns.unsqueeze(-1) | (regimes & (slope > 0)))
    split = (spread == Spread.GROUPS).unsqueeze(-1) & ~multiplied & (draws.arange(features) == column)
    relevant = (chosen | (turned & turns) | split) & (table.signal.amax(-1) > 0)
    return Law(
        process=process,
        shape=draws.choice((count,), weights=config.shape_weights),
        degrees=draws.integers((count,), low=2, high=_MOST_DEGREES),
        tail=draws.log_uniform((count,), low=0.2, high=1.2),
        mean=torch.where(multiplied, grown, means[:, 0]),
        other=means[:, 1] * regimes,
        odds=odds,
        deviation=deviation * ~multiplied,
        relevant=relevant.sum(-1),
    )


def _some(draws: Draws, *, count: int, features: int, most: int) -> torch.Tensor:
    """[B, C] bool: 1 to `most` columns of each task, small numbers more often."""
    number = draws.counts((count, 1), low=1, high=most)
    return draws.uniform((count, features)).argsort(-1).argsort(-1) < number


def _means(draws: Draws, config: HeteroscedasticConfig, *, signal: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """[B, 2, R] two unrelated means of variance 1 that depend on the chosen columns [B, C]."""
    count, features, _ = signal.shape
    importance = (draws.normal((count, 1, features)) * draws.uniform((count, 1, 1), high=1.2)).exp()
    importance = importance * chosen.unsqueeze(1)
    importance = importance / importance.norm(dim=-1, keepdim=True)
    linear = standardised((draws.normal((count, 2, features)) * importance) @ signal)
    steepness = draws.log_uniform((count, 1, 1), low=0.5, high=2.5)
    units = (draws.normal((count, _UNITS, features)) * importance * steepness) @ signal
    units = torch.tanh(units + draws.normal((count, _UNITS, 1)))
    bent = standardised(draws.normal((count, 2, _UNITS)) @ units)
    straight = draws.happens((count, 1, 1), share=config.linear_share)
    blend = draws.uniform((count, 1, 1), high=0.8) * draws.happens((count, 1, 1), share=0.5)
    return torch.where(straight, linear, standardised(blend * linear + (1 - blend) * bent))


def _groups(draws: Draws, table: Columns) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, R] int64 groups 0 … 7 of the rows by one column, a category where there is one, and the column [B, 1]."""
    count, features, rows = table.signal.shape
    wish = draws.uniform((count, features)) + (table.kinds == ColumnKind.CATEGORY)
    column = wish.argmax(-1, keepdim=True)
    cell = column.unsqueeze(-1).expand(-1, -1, rows)
    codes = table.values.gather(1, cell).squeeze(1) % _GROUPS
    ranks = torch.erf(table.signal.gather(1, cell).squeeze(1) * 0.7071).add(1).mul(0.4999)
    steps = (ranks * draws.integers((count, 1), low=2, high=5)).floor()
    return torch.where(table.levels.gather(1, column) > 0, codes, steps).long(), column


def _deviation(draws: Draws, *, spread: torch.Tensor, direction: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """[B, R] scale of the noise, of mean square 1 over the rows."""
    count = len(spread)
    spread = spread.unsqueeze(-1)
    linear = (draws.uniform((count, 1), high=2.0) + direction).clamp(min=0.05)
    exponential = torch.exp(draws.uniform((count, 1), low=0.3, high=1.2) * direction.clamp(-4, 4))
    levels = torch.exp(draws.normal((count, _GROUPS)) * draws.uniform((count, 1), low=0.4, high=1.2))
    scale = torch.where(spread == Spread.GROUPS, levels.gather(1, groups), 1.0)
    scale = torch.where(spread == Spread.LINEAR, linear, scale)
    scale = torch.where(spread == Spread.EXPONENTIAL, exponential, scale)
    return scale / scale.square().mean(-1, keepdim=True).sqrt()


def draw_target(draws: Draws, law: Law) -> torch.Tensor:
    """[B, R] one draw of every row's target."""
    count, rows = law.mean.shape
    z = draws.normal((count, rows))
    squares = draws.normal((count, _MOST_DEGREES, rows)).square()
    degrees = law.degrees.unsqueeze(-1)
    gamma = (squares * below(law.degrees, size=_MOST_DEGREES).unsqueeze(-1)).sum(1) / degrees
    tail = law.tail.unsqueeze(-1)
    log_normal = torch.exp(tail * z - tail.square() / 2)
    share = tail / 8
    wild = torch.where(draws.uniform((count, rows)) < share, 6.0, 1.0)
    shapes = {
        Shape.STUDENT: z / gamma.clamp(min=1e-6).sqrt() * ((degrees - 2).clamp(min=0.5) / degrees).sqrt(),
        Shape.LAPLACE: z * squares[:, :2].mean(1).sqrt(),
        Shape.CONTAMINATED: z * wild / (1 + 35 * share).sqrt(),
        Shape.GAMMA: (gamma - 1) * (degrees / 2).sqrt(),
        Shape.LOG_NORMAL: (log_normal - 1) / torch.expm1(tail.square()).sqrt(),
    }
    shape = law.shape.unsqueeze(-1)
    noise = z
    for code, values in shapes.items():
        noise = torch.where(shape == code, values, noise)
    factor = torch.where(shape == Shape.GAMMA, gamma, log_normal)
    base = torch.where(draws.uniform((count, rows)) < law.odds, law.other, law.mean)
    return torch.where(law.multiplied, base * factor, base + law.deviation * noise)
