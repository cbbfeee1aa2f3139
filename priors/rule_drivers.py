"""Drivers of rules: a few columns of a table, and how their cells fall into the bins that a rule reads.

Bins are as equally full as ties and levels allow. Parity needs more: drivers are written anew so that exactly half of
the rows are on either side, independently of all other columns; otherwise a single column would tell something.
"""

import dataclasses

import torch

from priors.columns import Columns
from priors.draws import Draws, standardised
from priors.marginals import bend, in_units
from priors.task import ColumnKind

NUM_DRIVERS = 9
"""D: columns that a rule may read."""
_MOST_FAIR_LEVELS = 12
_STRICT_MARGINALS = 5  # the first of `MarginalWeights` keep all rows apart


def draw_drivers(draws: Draws, *, count: int, features: int) -> torch.Tensor:
    """[B, 9] int64 distinct columns, repeated in the same order where a table has fewer than nine."""
    index = draws.uniform((count, features)).argsort(-1)
    return index.repeat(1, -(-NUM_DRIVERS // features))[:, :NUM_DRIVERS]


def bins_of(table: Columns, *, drivers: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Cuts driver columns at ranks: numbers between distinct values, codes between levels in the order of the codes.

    Args:
        table: B tasks.
        drivers: [B, D] columns.
        number: [B] bins of each task, 2 … 4.

    Returns:
        [B, D, R] int64 bins 0 … number − 1.
    """
    count, features, rows = table.values.shape
    first = torch.arange(count, device=drivers.device).unsqueeze(-1) * features
    index = (first + drivers).view(-1)
    wanted = number.repeat_interleave(drivers.shape[1]).unsqueeze(-1)
    levels = table.levels.view(-1)[index]
    bins = torch.empty((len(index), rows), dtype=torch.int64, device=drivers.device)
    for chosen, cut in ((levels == 0, _cut_numbers), (levels > 0, _cut_codes)):
        part = chosen.nonzero().squeeze(-1)
        if len(part):
            cells = table.values.view(-1, rows).index_select(0, index[part])
            bins.index_copy_(0, part, cut(cells, number=wanted[part]))
    return bins.view(*drivers.shape, rows)


def _cut_numbers(cells: torch.Tensor, *, number: torch.Tensor) -> torch.Tensor:
    """[n, R] bins of numbers; each border is the one between distinct values that is nearest to its rank."""
    rows = cells.shape[-1]
    ordered = cells.sort(-1).values
    share = torch.arange(1, 4, device=cells.device) / number
    spots = (share * rows).round().long()
    value = ordered.gather(1, spots.clamp(max=rows - 1))
    start, stop = torch.searchsorted(ordered, value), torch.searchsorted(ordered, value, right=True)
    above = ((stop - spots < spots - start) | (start == 0)) & (stop < rows)
    borders = torch.where(above, ordered.gather(1, stop.clamp(max=rows - 1)), value)
    borders = borders.masked_fill(share > 0.99, torch.inf)
    return (cells.unsqueeze(1) >= borders.unsqueeze(-1)).sum(1)


def _cut_codes(codes: torch.Tensor, *, number: torch.Tensor) -> torch.Tensor:
    """[n, R] bins of codes; a level belongs to the bin that the middle of its rows falls into."""
    codes = codes.long()
    sizes = torch.zeros((len(codes), int(codes.max()) + 1), dtype=torch.int64, device=codes.device)
    sizes.scatter_add_(1, codes, torch.ones_like(codes))
    middle = sizes.cumsum(-1) * 2 - sizes
    of_level = (middle * number).div(2 * codes.shape[-1], rounding_mode="floor").minimum(number - 1)
    return of_level.gather(1, codes)


def make_fair(draws: Draws, table: Columns, *, tasks: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Writes columns anew, in place, so that half of their rows are on either side of a split of their values.

    Numbers are split at a value, ordinals at a level or into odd and even levels, categories into two sets of levels.

    Args:
        draws: the random source.
        table: B tasks.
        tasks: [n] int64.
        columns: [n, k] int64 distinct columns of each of these tasks.

    Returns:
        [n, k, R] int64 the side of every cell: exactly half of the rows (of an odd number: one more) are 1.
    """
    _, features, rows = table.values.shape
    index = (tasks.unsqueeze(-1) * features + columns).view(-1)
    sides = (draws.uniform((len(index), rows)).argsort(-1) >= rows // 2).long()
    levels = table.levels.view(-1)[index].clamp(max=_MOST_FAIR_LEVELS)
    table.levels.view(-1)[index] = levels
    numbers, codes = (levels == 0).nonzero().squeeze(-1), (levels > 0).nonzero().squeeze(-1)
    values = torch.empty((len(index), rows), device=draws.device)
    if len(numbers):
        values[numbers] = _fair_numbers(draws, sides[numbers])
    if len(codes):
        ordered = table.kinds.view(-1)[index[codes]] == ColumnKind.ORDINAL
        values[codes] = _fair_codes(draws, sides[codes], levels=levels[codes], ordered=ordered)
    table.values.view(-1, rows)[index] = values
    table.signal.view(-1, rows)[index] = standardised(sides.float())
    return sides.view(*columns.shape, rows)


def _fair_numbers(draws: Draws, sides: torch.Tensor) -> torch.Tensor:
    """[n, R] numbers below or above some border; rounded ones are rounded away from it."""
    number = len(sides)
    sign = sides * 2.0 - 1
    raw = torch.cat([draws.normal(sides.shape).abs_().add_(1e-3) * sign, draws.full((number, 1), 0.0)], dim=1)
    marginals = draws.integers((number,), low=0, high=_STRICT_MARGINALS - 1)
    bent = bend(draws, raw, marginals=marginals)
    values, border = bent[:, :-1], bent[:, -1:]
    step = draws.log_uniform((number, 1), low=0.02, high=0.5)
    rounded = border + (((values - border).abs() / step).ceil() * step).mul(sign)
    return in_units(draws, torch.where(draws.happens((number, 1), share=0.6), rounded, values))


def _fair_codes(draws: Draws, sides: torch.Tensor, *, levels: torch.Tensor, ordered: torch.Tensor) -> torch.Tensor:
    """[n, R] codes: each side has half of the levels (of an odd number: side 0 has one more), some of them rarer."""
    number, most = len(sides), int(levels.max())
    levels = levels.unsqueeze(-1)
    size = torch.where(sides == 0, (levels + 1) // 2, levels // 2)
    lean = draws.log_uniform((number, 1), low=1.0, high=2.5)
    place = (draws.uniform(sides.shape).pow_(lean) * size).long().minimum(size - 1)
    keys = draws.uniform((number, most)).masked_fill_(draws.arange(most) >= levels, 2.0)
    low_high, odd_even = place + sides * ((levels + 1) // 2), place * 2 + sides
    in_order = torch.where(draws.happens((number, 1), share=0.5), low_high, odd_even)
    return torch.where(ordered.unsqueeze(-1), in_order, keys.argsort(-1).gather(1, low_high)).float()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probes:
    """Rows in which one driver at a time has the bin of another row.

    Args:
        bins: [B, D, k·P] int64, k distinct drivers; probe p of each driver is row p with one thing changed.
        rows: P.
    """

    bins: torch.Tensor
    rows: int


def probes_of(bins: torch.Tensor, *, distinct: int, most: int) -> Probes:
    """Makes up to `most` probes for each of the first `distinct` drivers of bins [B, D, R]; repeats change together.

    A changed bin is that of one of three other rows, one of another bin if there is any.
    """
    count, drivers, rows = bins.shape
    size = min(most, rows)
    before = after = bins[:, :, :size]
    for turn in (3, 2, 1):
        there = torch.arange(turn * size, (turn + 1) * size, device=bins.device) % rows
        other = bins[:, :, there]
        after = torch.where(other != before, other, after)
    slot = torch.arange(drivers, device=bins.device).view(-1, 1, 1) % distinct
    changed = slot == torch.arange(distinct, device=bins.device).view(1, -1, 1)
    probes = torch.where(changed, after.unsqueeze(2), before.unsqueeze(2)).view(count, drivers, -1)
    return Probes(bins=probes, rows=size)
