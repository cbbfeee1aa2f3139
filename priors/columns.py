"""Columns: how raw quantities are written down in a table: numbers, ordinals and unordered categories, some of them
copies of others.

Layout `[B, C, R]`. `values` is what the table shows; `signal` is what a target may depend on (for a category a random
score per level, so that its codes carry signal but no order).
"""

import dataclasses

import torch

from priors.draws import Draws, standardised
from priors.levels import LevelConfig, as_codes, draw_levels
from priors.marginals import MarginalWeights, bend, draw_marginals, in_units, shorten
from priors.task import ColumnKind

_WIDE_LEVELS = 32  # columns with more levels than this are cut apart from the others, which need smaller tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnConfig:
    """What columns look like."""

    numbers_share: float = 0.6
    """Share of tasks with number columns only."""
    discrete_share: float = 0.1
    """Share of tasks with ordinals and categories only (the other tasks are mixed)."""
    levels: LevelConfig = LevelConfig()
    """How many levels ordinals and categories have, and how often each occurs."""
    marginals: MarginalWeights = MarginalWeights()
    """What the histograms of numbers look like."""
    plain_share: float = 0.25
    """Share of tasks whose numbers keep their raw marginal."""
    literal_share: float = 0.3
    """Share of tasks whose target depends on the numbers as they are shown, not on what they were made from."""
    rounded_share: float = 0.75
    """Share of tasks whose numbers are written with few digits."""
    copied_share: float = 0.12
    """Share of tasks in which some columns are exact, nearly exact or transformed copies of others."""
    max_copied: float = 0.3
    """Largest share of a task's columns that are such copies."""
    constant_share: float = 0.02
    """Share of tasks in which one column is constant."""
    outlier_share: float = 0.1
    """Share of tasks with outliers."""
    missing_share: float = 0.25
    """Share of tasks with missing cells."""
    block_share: float = 0.25
    """Share of those in which cells go missing in blocks: several columns together on the same rows."""
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
    kinds, levels = _draw_kinds(draws, config, count=count, features=features, rows=rows)
    columns = Columns(values=torch.empty_like(raw), signal=raw.clone(), kinds=kinds, levels=levels)
    flat = raw.reshape(-1, rows)
    _write_numbers(draws, columns, raw=flat, config=config)
    of_all = levels.view(-1)
    for chosen in ((of_all > 0) & (of_all <= _WIDE_LEVELS), of_all > _WIDE_LEVELS):
        index = chosen.nonzero().squeeze(-1)
        if len(index):
            ordered = kinds.view(-1)[index] == ColumnKind.ORDINAL
            part = flat.index_select(0, index)
            codes, scores = as_codes(draws, part, levels=of_all[index], ordered=ordered, config=config.levels)
            columns.values.view(-1, rows).index_copy_(0, index, codes)
            columns.signal.view(-1, rows).index_copy_(0, index, scores)
    if features > 1:
        _copy_some(draws, columns, config=config)
        _flatten_some(draws, columns, config=config)
    return columns


def _draw_kinds(
    draws: Draws, config: ColumnConfig, *, count: int, features: int, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Kinds [B, C] int8 and levels [B, C] int64."""
    mixed = 1 - config.numbers_share - config.discrete_share
    style = draws.choice((count, 1), weights=(config.numbers_share, mixed, config.discrete_share))
    of_task = draws.uniform((4, count, 1))
    of_column = draws.uniform((3, count, features))
    share = torch.where(style == 1, of_task[0], (style == 2).float())
    has_wide = (style > 0) & (of_task[2] < config.levels.wide_share)
    wide = has_wide & ((of_column[2] < 0.4 * of_task[3]) | (of_column[2] <= of_column[2].amin(-1, keepdim=True)))
    coded = (of_column[0] < share) | wide
    ordinal = (of_column[1] < of_task[1].sub(0.15).mul(1.3)) & ~wide
    kinds = torch.where(ordinal, int(ColumnKind.ORDINAL), int(ColumnKind.CATEGORY))
    kinds = torch.where(coded, kinds, int(ColumnKind.NUMBER)).to(torch.int8)
    return kinds, draw_levels(draws, config.levels, coded=coded, wide=wide, rows=rows)


def _write_numbers(draws: Draws, columns: Columns, *, raw: torch.Tensor, config: ColumnConfig) -> None:
    """Fills in the values of number columns, and their signals in tasks that take numbers as they are shown."""
    count, features = columns.kinds.shape
    index = (columns.levels.view(-1) == 0).nonzero().squeeze(-1)
    if not len(index):
        return
    tasks = index // features
    marginals = draw_marginals(
        draws, tasks=tasks, count=count, weights=config.marginals, plain_share=config.plain_share
    )
    shown = bend(draws, raw.index_select(0, index), marginals=marginals)
    rounded = draws.happens((count,), share=config.rounded_share)
    shown = shorten(draws, shown, marginals=marginals, tasks=tasks, share=rounded)
    literal = draws.happens((count,), share=config.literal_share)[tasks].nonzero().squeeze(-1)
    signal = standardised(shown.index_select(0, literal)).clamp_(-6, 6)
    columns.signal.view_as(raw).index_copy_(0, index[literal], signal)
    columns.values.view_as(raw).index_copy_(0, index, in_units(draws, shown))


def _copy_some(draws: Draws, columns: Columns, *, config: ColumnConfig) -> None:
    """Turns some columns of some tasks into copies of others: exact, nearly exact, or transformed.

    A number is transformed by another marginal and unit; codes are written in the opposite order.
    """
    count, features, rows = columns.values.shape
    share = draws.uniform((count, 1), high=config.max_copied) * draws.happens((count, 1), share=config.copied_share)
    keys = draws.uniform((count, features))
    copied = (keys < share) & (keys < keys.amax(-1, keepdim=True))
    index = copied.view(-1).nonzero().squeeze(-1)
    if not len(index):
        return
    first = index // features * features
    source = first + draws.integers(index.shape, low=0, high=features - 1)
    source = torch.where(copied.view(-1)[source], first + keys.argmax(-1)[index // features], source)
    kinds, levels = columns.kinds.view(-1)[source], columns.levels.view(-1)[source]
    values = columns.values.view(-1, rows).index_select(0, source)
    way = draws.choice(index.shape, weights=(2, 1, 2)).unsqueeze(-1)
    number = (kinds == ColumnKind.NUMBER).unsqueeze(-1)
    shape = standardised(values)
    slight = draws.log_uniform((len(index), 1), low=1e-4, high=0.03) * draws.normal(values.shape)
    near = values + slight * (values.amax(-1, keepdim=True) - values.amin(-1, keepdim=True)) / 4
    marginals = draw_marginals(
        draws, tasks=index // features, count=count, weights=config.marginals, plain_share=config.plain_share
    )
    other = torch.where(
        number, in_units(draws, bend(draws, shape, marginals=marginals)), levels.unsqueeze(-1) - 1 - values
    )
    copies = torch.where(way == 2, other, torch.where((way == 1) & number, near, values))
    columns.values.view(-1, rows).index_copy_(0, index, copies)
    signal = columns.signal.view(-1, rows)
    signal.index_copy_(0, index, signal.index_select(0, source))
    columns.kinds.view(-1)[index] = kinds
    columns.levels.view(-1)[index] = levels


def _flatten_some(draws: Draws, columns: Columns, *, config: ColumnConfig) -> None:
    """Makes one column of a few tasks constant."""
    count, features, rows = columns.values.shape
    tasks = draws.happens((count,), share=config.constant_share).nonzero().squeeze(-1)
    if not len(tasks):
        return
    index = tasks * features + draws.integers(tasks.shape, low=0, high=features - 1)
    columns.values.view(-1, rows)[index] = columns.values.view(-1, rows)[index, :1]
    columns.signal.view(-1, rows)[index] = 0.0
