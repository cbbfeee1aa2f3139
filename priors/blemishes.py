"""Blemishes: outliers and missing cells, which come over a table after its target is made.

Cells go missing completely at random (a lost form), by their own value (a reading beyond the scale, an income not
told), by another column (a test that is only made of the ill), or in blocks: several columns at once on the same rows
(a questionnaire or an instrument that was not used).
"""

import math

import torch

from priors.columns import ColumnConfig, Columns
from priors.draws import Draws, standardised
from priors.task import ColumnKind

_AT_RANDOM, _BY_VALUE, _BY_ANOTHER = 0, 1, 2
_LOUD_CELLS = 0.01  # mean share of outliers in a column that has some


def blemish(draws: Draws, columns: Columns, *, config: ColumnConfig) -> torch.Tensor:
    """[B, C, R] the values with outliers and missing cells (NaN)."""
    values = columns.values.clone()
    _add_outliers(draws, values, kinds=columns.kinds, config=config)
    _remove_cells(draws, values, columns=columns, config=config)
    return values


def _remove_cells(draws: Draws, values: torch.Tensor, *, columns: Columns, config: ColumnConfig) -> None:
    """Sets cells to NaN, in place."""
    count, features, rows = values.shape
    of_task = draws.uniform((3, count, 1))
    spread, block = 0.1 + 1.1 * of_task[1], of_task[2] < config.block_share
    holed = (of_task[0] < config.missing_share) & (draws.uniform((count, features)) < spread)
    picked = holed.view(-1).nonzero().squeeze(-1)
    if not len(picked):
        return
    tasks, number = picked // features, len(picked)
    mechanism = draws.choice((number,), weights=(2, 1, 1))
    other = draws.integers((number,), low=0, high=features - 1)
    slope = draws.log_uniform((number,), low=1.0, high=8.0) * torch.where(draws.happens((number,), share=0.5), -1, 1)
    luck = draws.uniform((number, rows))
    # Columns of a block share their luck and what the gaps depend on: those of the block's first column.
    blocked = block.view(-1)[tasks]
    first = torch.searchsorted(tasks, tasks)
    leader = torch.where(blocked, first, draws.arange(number))
    mechanism = torch.where(blocked & (mechanism[leader] == _BY_VALUE), _BY_ANOTHER, mechanism[leader])
    slope, luck, other = slope[leader], luck.index_select(0, leader), other[leader]
    cause = torch.where(mechanism == _BY_ANOTHER, tasks * features + other, picked)
    driver = standardised(columns.signal.view(-1, rows).index_select(0, cause))
    slope = (slope * (mechanism != _AT_RANDOM)).unsqueeze(-1)
    rate = draws.log_uniform((count, 1), low=0.01, high=config.max_missing)[tasks]
    # The mean of a logistic function over a normal is nearly logistic itself (MacKay, 1992).
    level = torch.logit(rate) * (1 + slope.square() * (math.pi / 8)).sqrt()
    gone = luck < driver.mul_(slope).add_(level).sigmoid_()
    flat = values.view(-1, rows)
    flat.index_copy_(0, picked, flat.index_select(0, picked).masked_fill_(gone, math.nan))


def _add_outliers(draws: Draws, values: torch.Tensor, *, kinds: torch.Tensor, config: ColumnConfig) -> None:
    """Moves about one cell in a hundred of some number columns far out, in place."""
    count, features, rows = values.shape
    loud = draws.happens((count, 1), share=config.outlier_share) & draws.happens((count, features), share=0.5)
    picked = (loud & (kinds == ColumnKind.NUMBER)).view(-1).nonzero().squeeze(-1)
    if not len(picked):
        return
    flat = values.view(-1, rows)
    cells = flat.index_select(0, picked)
    deviation = (cells - cells.mean(-1, keepdim=True)).square_().mean(-1, keepdim=True).sqrt_()
    far = draws.normal(cells.shape) * draws.log_uniform((len(picked), 1), low=3, high=30) * deviation
    flat.index_copy_(0, picked, cells.add_(far.mul_(draws.happens(cells.shape, share=_LOUD_CELLS))))
