"""Rules: targets that follow exactly from a few discretised columns, as in games, forms and decision models.

Parity (no single column tells anything), lookup tables, thresholded counts, nested tables (two intermediate grades
decide the result), and alternatives of conjunctions. These teach interactions that sums of smooth effects do not.
"""

import dataclasses

import torch

from priors.causes import draw_causes
from priors.columns import Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, standardised

_NUM_SCORES = 3
_DRIVERS = 9
_NAMES = ("parity", "lookup", "count", "nested", "alternatives")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleConfig:
    """Exact rules over a few columns."""

    weights: tuple[float, float, float, float, float] = (2.0, 3.0, 2.0, 2.0, 2.0)
    """How often parity, lookup, count, nested and alternatives are drawn."""
    discrete_share: float = 0.6
    """Share of tasks with ordinals and categories only."""
    max_classes: int = 6
    """Most classes of a lookup table."""


def sample_rules(draws: Draws, config: RuleConfig, *, request: TableRequest) -> Draft:
    """Draws `count` tasks; facts hold the index of the rule in (parity, lookup, count, nested, alternatives)."""
    count, rows, features = request.count, request.rows, request.features
    causes, columns = request.causes, request.columns
    mixed = min(1.0, columns.numbers_share) * (1 - config.discrete_share)
    looks = dataclasses.replace(columns, numbers_share=mixed, discrete_share=config.discrete_share)
    calm = dataclasses.replace(causes, independent_share=max(causes.independent_share, 0.5))
    table = draw_columns(draws, draw_causes(draws, calm, count=count, causes=features, rows=rows), config=looks)
    rule = draws.choice((count,), weights=config.weights)
    outcome = torch.zeros((count, rows), dtype=torch.int64)
    bins = _bins(draws, table, rule=rule)
    for code, apply in enumerate((_parity, _lookup, _count, _nested, _alternatives)):
        chosen = (rule == code).nonzero().squeeze(-1)
        if len(chosen):
            outcome[chosen] = apply(draws, bins[chosen], config=config)
    worth = draws.normal((count, int(outcome.max()) + 1))
    score = worth.gather(1, outcome)
    scores = torch.stack([score, score, draws.normal(score.shape)], dim=1)
    relevant = torch.tensor((3.0, 2.0, 5.0, 5.0, 5.0))[rule]
    return Draft(
        columns=table,
        scores=standardised(scores),
        classes=outcome,
        loudness=draws.happens((count,), share=0.5).float(),
        facts={"rule": rule, "relevant": relevant},
    )


def _bins(draws: Draws, table: Columns, *, rule: torch.Tensor) -> torch.Tensor:
    """[B, 9, R] int64 bins 0 … 3 of nine driver columns (repeated where a table has fewer); parity has 0 and 1."""
    count, features, rows = table.values.shape
    index = draws.uniform((count, features)).argsort(-1)
    index = index.repeat(1, -(-_DRIVERS // features))[:, :_DRIVERS]
    signal = table.signal.gather(1, index.unsqueeze(-1).expand(-1, -1, rows))
    codes = table.values.gather(1, index.unsqueeze(-1).expand(-1, -1, rows))
    levels = table.levels.gather(1, index).unsqueeze(-1)
    number = draws.integers((count, 1), low=2, high=4).masked_fill((rule == 0).unsqueeze(-1), 2)
    spots = torch.arange(1, 4) / number.unsqueeze(-1) * rows
    borders = signal.sort(-1).values.gather(2, spots.long().clamp(max=rows - 1).expand(-1, _DRIVERS, -1))
    borders = borders.maximum(signal.amin(-1, keepdim=True) + 1e-4)  # columns of many equal values still split
    borders = borders.masked_fill(spots >= rows, torch.inf)
    by_value = torch.searchsorted(borders.contiguous(), signal.contiguous(), right=True)
    shift = draws.integers((count, _DRIVERS, 1), low=0, high=3)
    by_code = ((codes + shift) % levels.clamp(min=1)).long() % number.unsqueeze(-1)
    return torch.where(levels > 0, by_code, by_value)


def _parity(draws: Draws, bins: torch.Tensor, *, config: RuleConfig) -> torch.Tensor:
    """XOR of two or three columns."""
    del config
    three = draws.happens((len(bins), 1), share=0.4)
    return (bins[:, 0] + bins[:, 1] + bins[:, 2] * three) % 2


def _lookup(draws: Draws, bins: torch.Tensor, *, config: RuleConfig) -> torch.Tensor:
    """A table over two or three columns with random entries."""
    three = draws.happens((len(bins), 1), share=0.5)
    cell = bins[:, 0] + 4 * bins[:, 1] + 16 * bins[:, 2] * three
    classes = draws.counts((len(bins), 1), low=2, high=config.max_classes)
    entries = (draws.uniform((len(bins), 64)) * classes).long()
    return entries.gather(1, cell)


def _count(draws: Draws, bins: torch.Tensor, *, config: RuleConfig) -> torch.Tensor:
    """How many of three to nine columns are in their upper bins, cut at one or two places."""
    del config
    number = draws.integers((len(bins), 1), low=3, high=_DRIVERS)
    used = (torch.arange(_DRIVERS) < number).unsqueeze(-1)
    total = ((bins > 0) & used).sum(1)
    first = (number.float() * draws.uniform((len(bins), 1), low=0.3, high=0.7)).long()
    second = first + draws.integers((len(bins), 1), low=1, high=2)
    two = draws.happens((len(bins), 1), share=0.4)
    return (total > first).long() + ((total > second) & two)


def _nested(draws: Draws, bins: torch.Tensor, *, config: RuleConfig) -> torch.Tensor:
    """Two intermediate grades, each a cut sum of two or three columns, decide the result together."""
    del config
    signs = draws.integers((len(bins), 6, 1), low=0, high=1)
    part = torch.where(signs == 1, bins[:, :6], 3 - bins[:, :6])
    grades = []
    for start in (0, 3):
        total = part[:, start] + part[:, start + 1] + part[:, start + 2] * draws.happens((len(bins), 1), share=0.5)
        spread = torch.tensor([-1.0, 0.5]) * draws.uniform((len(bins), 2), low=0.3, high=1)
        borders = total.float().mean(-1, keepdim=True) + spread
        grades.append((total.unsqueeze(1) > borders.unsqueeze(-1)).sum(1))
    joint = torch.where(draws.happens((len(bins), 1), share=0.5), torch.minimum(*grades), (grades[0] + grades[1]) // 2)
    free = (draws.uniform((len(bins), 9)) * 3).long().gather(1, grades[0] * 3 + grades[1])
    return torch.where(draws.happens((len(bins), 1), share=0.3), free, joint)


def _alternatives(draws: Draws, bins: torch.Tensor, *, config: RuleConfig) -> torch.Tensor:
    """True where any of two to eight conjunctions of two or three tests holds."""
    del config
    count, _, rows = bins.shape
    number = draws.integers((count, 1), low=2, high=8)
    hit = torch.zeros((count, rows), dtype=torch.bool)
    for term in range(8):
        columns = draws.uniform((count, _DRIVERS)).argsort(-1)[:, :3]
        sample = draws.integers((count, 1, 1), low=0, high=rows - 1).expand(-1, 3, -1)
        tested = bins.gather(1, columns.unsqueeze(-1).expand(-1, -1, rows))
        holds = tested == tested.gather(2, sample)
        three = draws.happens((count, 1), share=0.6)
        both = holds[:, 0] & holds[:, 1] & (holds[:, 2] | ~three)
        hit |= both & (number > term)
    return hit.long()
