"""Columns: how a raw quantity is written down in a table. Numbers of many marginals, ordinals, unordered categories,
outliers and missing cells.

Layout `[B, C, R]`. `values` is what the table shows; `signal` is what a target may depend on (for a category a random
score per level, so that its codes carry signal but no order).
"""

import dataclasses
import math

import torch

from priors.draws import Draws, below, standardised
from priors.task import ColumnKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnConfig:
    """What columns look like."""

    numbers_share: float = 0.5
    """Share of tasks with number columns only."""
    discrete_share: float = 0.15
    """Share of tasks with ordinals and categories only (the other tasks are mixed)."""
    max_levels: int = 20
    """Most levels of an ordinal or a category."""
    plain_share: float = 0.25
    """Share of tasks whose numbers keep their raw marginal."""
    literal_share: float = 0.3
    """Share of tasks whose target depends on the numbers as they are shown, not on what they were made from."""
    rounded_share: float = 0.75
    """Share of tasks whose numbers are written with few digits."""
    outlier_share: float = 0.1
    """Share of tasks with outliers."""
    missing_share: float = 0.25
    """Share of tasks with missing cells."""
    max_missing: float = 0.4
    """Largest mean share of missing cells in a column."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Args: values, signal [B, C, R] float32; kinds [B, C] int8 of `ColumnKind`; levels [B, C] int64, 0 for numbers."""

    values: torch.Tensor
    signal: torch.Tensor
    kinds: torch.Tensor
    levels: torch.Tensor


def draw_columns(draws: Draws, raw: torch.Tensor, *, config: ColumnConfig) -> Columns:
    """Writes raw quantities [B, C, R] (mean 0, variance 1) down as columns without missing cells."""
    count, features, rows = raw.shape
    kinds = _draw_kinds(draws, config, count=count, features=features)
    levels = _draw_levels(draws, kinds, most=config.max_levels)
    values, signal = raw.clone(), raw.clone()
    flat_values, flat_signal = values.view(-1, rows), signal.view(-1, rows)
    numbers = (kinds == ColumnKind.NUMBER).view(-1).nonzero().squeeze(-1)
    if len(numbers):
        tasks = numbers // features
        shown = _as_numbers(draws, raw.view(-1, rows)[numbers], tasks=tasks, count=count, config=config)
        literal = draws.happens((count,), share=config.literal_share)[tasks].unsqueeze(-1)
        flat_signal[numbers] = torch.where(literal, standardised(shown).clamp(-6, 6), flat_signal[numbers])
        flat_values[numbers] = _in_units(draws, shown)
    discrete = (kinds != ColumnKind.NUMBER).view(-1).nonzero().squeeze(-1)
    if len(discrete):
        ordered = kinds.view(-1)[discrete] == ColumnKind.ORDINAL
        codes, scores = _as_codes(draws, flat_values[discrete], levels=levels.view(-1)[discrete], ordered=ordered)
        flat_values[discrete], flat_signal[discrete] = codes, scores
    return Columns(values=values, signal=signal, kinds=kinds, levels=levels)


def _draw_kinds(draws: Draws, config: ColumnConfig, *, count: int, features: int) -> torch.Tensor:
    mixed = 1 - config.numbers_share - config.discrete_share
    style = draws.choice((count, 1), weights=(config.numbers_share, mixed, config.discrete_share))
    share = torch.where(style == 1, draws.uniform((count, 1)), (style == 2).float())
    discrete = draws.uniform((count, features)) < share
    ordinal = draws.uniform((count, features)) < draws.uniform((count, 1)).sub(0.15).mul(1.3)
    coded = torch.where(ordinal, int(ColumnKind.ORDINAL), int(ColumnKind.CATEGORY))
    return torch.where(discrete, coded, int(ColumnKind.NUMBER)).to(torch.int8)


def _draw_levels(draws: Draws, kinds: torch.Tensor, *, most: int) -> torch.Tensor:
    """[B, C] levels, mostly few; in some tasks all columns have the same number."""
    count, features = kinds.shape
    top = draws.counts((count, 1), low=2, high=most)
    levels = draws.counts((count, features), low=2, high=top.expand(count, features))
    levels = torch.where(draws.happens((count, 1), share=0.3), top.clamp(max=6), levels)
    return levels * (kinds != ColumnKind.NUMBER)


def _as_codes(
    draws: Draws, raw: torch.Tensor, *, levels: torch.Tensor, ordered: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cuts n raw columns [n, R] into levels [n]; returns codes and the standardised score of each row's level."""
    number, most = len(raw), int(levels.max())
    real = below(levels, size=most)
    spread = draws.uniform((number, 1), high=1.3)
    weights = (draws.normal((number, most)) * spread).exp() * real
    borders = (weights.cumsum(-1) / weights.sum(-1, keepdim=True))[:, :-1].masked_fill(~real[:, 1:], 2.0)
    ranks = torch.erf(standardised(raw) / math.sqrt(2)).add_(1).div_(2).contiguous()
    codes = torch.searchsorted(borders.contiguous(), ranks)
    score = torch.where(ordered.unsqueeze(-1), torch.arange(most).float(), draws.normal((number, most)))
    signal = standardised(score.gather(1, codes))
    shuffled = draws.uniform((number, most)).masked_fill(~real, 2.0).argsort(-1)
    shown = torch.where(ordered.unsqueeze(-1), codes, shuffled.gather(1, codes))
    return shown.float(), signal


def _as_numbers(
    draws: Draws, raw: torch.Tensor, *, tasks: torch.Tensor, count: int, config: ColumnConfig
) -> torch.Tensor:
    """Gives n raw columns [n, R] a marginal and a number of digits; columns of a task often share the marginal."""
    number = len(raw)
    weights = (1.5, 3, 2, 1.5, 1, 1, 1, 2)
    of_task = draws.choice((count,), weights=weights) + 1
    of_task = of_task * ~draws.happens((count,), share=config.plain_share)
    own = draws.choice((number,), weights=(3, *weights))
    codes = torch.where(draws.happens((number,), share=0.6), of_task[tasks], own)
    codes = torch.where(of_task[tasks] == 0, 0, codes)
    shape = draws.uniform((2, number, 1))
    values = torch.empty_like(raw)
    for code in range(len(weights) + 1):
        chosen = (codes == code).nonzero().squeeze(-1)
        if len(chosen):
            values[chosen] = _MARGINALS[code](raw[chosen], shape[:, chosen])
    deviation = values.std(-1, keepdim=True) + 1e-6
    step = draws.log_uniform((number, 1), low=0.004, high=0.4) * deviation
    rounded = (draws.happens((count,), share=config.rounded_share)[tasks] & (codes < 7)).unsqueeze(-1)
    rounded &= draws.happens((number, 1), share=0.9)
    return torch.where(rounded, torch.round(values / step) * step, values)


def _in_units(draws: Draws, values: torch.Tensor) -> torch.Tensor:
    """Gives columns [n, R] a unit and, half of them, an offset."""
    number = len(values)
    unit = draws.log_uniform((number, 1), low=1e-2, high=1e3) * ~draws.happens((number, 1), share=0.3)
    offset = draws.normal((number, 1)) * 3 * draws.happens((number, 1), share=0.5)
    return torch.where(unit > 0, (values + offset) * unit, values)


def _kumaraswamy(z: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    """Warps ranks by the inverse Kumaraswamy distribution function (1 − (1 − u)^(1/b))^(1/a), a and b in ½ … 5."""
    ranks = torch.erf(z / math.sqrt(2)).add(1).div(2).clamp(1e-4, 1 - 1e-4)
    a, b = torch.exp(shape * 2.3 - 0.7)
    return (1 - (1 - ranks) ** (1 / b)) ** (1 / a)


_MARGINALS = (
    lambda z, k: z,
    lambda z, k: torch.erf(z / math.sqrt(2)),  # uniform
    lambda z, k: torch.exp(z * (0.3 + k[0])),  # log-normal
    _kumaraswamy,
    lambda z, k: torch.sign(z) * z.abs() ** (0.5 + 1.5 * k[0]),  # long or short tails
    lambda z, k: torch.relu(z - 2 * k[0] + 1),  # many zeros, then a slope
    lambda z, k: torch.relu(z - 2 * k[0] + 1) ** 2,
    lambda z, k: torch.round(z * (0.7 + 5 * k[0])),  # rounded
    lambda z, k: torch.floor(torch.exp(z * (0.3 + 0.7 * k[0]) + 2 * k[1])),  # counts
)


def blemish(draws: Draws, columns: Columns, *, config: ColumnConfig) -> torch.Tensor:
    """[B, C, R] the values with outliers and missing cells (NaN)."""
    count, features, rows = columns.values.shape
    values = columns.values.clone()
    loud = draws.happens((count, 1), share=config.outlier_share) & draws.happens((count, features), share=0.5)
    _outliers(draws, values, chosen=loud & (columns.kinds == ColumnKind.NUMBER))
    holed = draws.happens((count, 1), share=config.missing_share)
    holed = holed & (draws.uniform((count, features)) < draws.uniform((count, 1), low=0.1, high=1.2))
    picked = holed.view(-1).nonzero().squeeze(-1)
    if not len(picked):
        return values
    rate = draws.log_uniform((count, 1), low=0.01, high=config.max_missing).expand(count, features).reshape(-1)[picked]
    mechanism = draws.choice((len(picked),), weights=(2, 1, 1))  # at random, by own value, by another column
    other = (picked // features) * features + draws.integers((len(picked),), low=0, high=features - 1)
    cause = columns.signal.view(-1, rows)[torch.where(mechanism == 2, other, picked)]
    slope = draws.normal((len(picked),)).mul(2) * (mechanism > 0)
    chance = rate.unsqueeze(-1) * 2 * torch.sigmoid(slope.unsqueeze(-1) * standardised(cause))
    gone = draws.uniform((len(picked), rows)) < chance
    values.view(-1, rows)[picked] = values.view(-1, rows)[picked].masked_fill(gone, math.nan)
    return values


def _outliers(draws: Draws, values: torch.Tensor, *, chosen: torch.Tensor) -> None:
    """Moves about one cell in a hundred of the chosen columns far out, in place."""
    picked = chosen.view(-1).nonzero().squeeze(-1)
    if not len(picked):
        return
    flat = values.view(-1, values.shape[-1])
    cells = flat[picked]
    deviation = cells.std(-1, keepdim=True)
    far = deviation * draws.normal(cells.shape) * draws.log_uniform((len(picked), 1), low=3, high=30)
    flat[picked] = torch.where(draws.happens(cells.shape, share=0.01), cells + far, cells)
