"""Levels: how a raw quantity becomes the code of an ordinal or of an unordered category.

Stands for grades, answers and colours (few levels), and for merchants, postcodes and diagnoses (tens to hundreds of
levels, of which a few hold most rows and many are rare). Layout `[n, R]`: n columns of any tasks.
"""

import dataclasses
import math

import torch

from priors.draws import Draws, below, standardised

_REACH = 4.0  # raw quantities beyond this belong to the outermost levels
_CELLS = 16  # cells of the look-up grid for each level, at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevelConfig:
    """How many levels there are, and how often each occurs."""

    few: int = 20
    """Most levels of a common ordinal or category."""
    wide_share: float = 0.3
    """Share of tasks with ordinals or categories in which at least one category is wide: from `wide_from` levels on."""
    wide_from: int = 30
    """Fewest levels of a wide category."""
    most: int = 256
    """Most levels of a wide category."""
    rows_per_level: float = 2.0
    """No column has more levels than rows divided by this."""
    zipf_share: float = 0.5
    """Share of columns whose levels have Zipf frequencies, 1/rank^s (the others: log-normal frequencies)."""
    max_exponent: float = 1.6
    """Largest s of the Zipf frequencies."""


def draw_levels(
    draws: Draws, config: LevelConfig, *, coded: torch.Tensor, wide: torch.Tensor, rows: int
) -> torch.Tensor:
    """[B, C] levels: mostly few; in some tasks all common columns have the same number.

    Args:
        draws: the random source.
        config: limits.
        coded: [B, C] bool, True for ordinals and categories; the others have 0 levels.
        wide: [B, C] bool, True for wide categories.
        rows: R.
    """
    count, features = coded.shape
    cap = max(2, int(rows / config.rows_per_level))
    few, most = min(config.few, cap), min(config.most, cap)
    top = draws.counts((count, 1), low=2, high=few)
    levels = draws.counts((count, features), low=2, high=top.expand(count, features))
    levels = torch.where(draws.happens((count, 1), share=0.3), top.clamp(max=6), levels)
    many = draws.counts((count, features), low=min(config.wide_from, most), high=most)
    return torch.where(wide, many, levels) * coded


def as_codes(
    draws: Draws, raw: torch.Tensor, *, levels: torch.Tensor, ordered: torch.Tensor, config: LevelConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cuts raw columns (mean 0, variance 1) into levels.

    The cut goes through a grid over the raw quantity, which is many times faster than a search in the borders.

    Args:
        draws: the random source.
        raw: [n, R].
        levels: [n] at least 2.
        ordered: [n] bool, True for ordinals: codes keep the order of the raw quantity; codes of categories do not.
        config: how often levels occur.

    Returns:
        Codes and signals, both [n, R] float32: the signal is the standardised score of a row's level (for a category a
        random number for each level).
    """
    number, most = len(raw), int(levels.max())
    ordered = ordered.unsqueeze(-1)
    real = below(levels, size=most)
    shuffled = draws.uniform((number, most)).masked_fill_(~real, 2.0).argsort(-1)
    shares = _frequencies(draws, config, shuffled=shuffled, real=real).cumsum_(-1)[:, :-1]
    borders = torch.special.ndtri(shares).masked_fill_(~real[:, 1:], math.inf)
    size = max(256, _CELLS * most)
    cells = borders.add_(_REACH).mul_(size / (2 * _REACH)).clamp_(0, size).long()
    table = draws.full((number, size + 1), 0, dtype=torch.int64)
    table = table.scatter_add_(1, cells, torch.ones_like(cells)).cumsum_(1)[:, :-1]
    # A category's code of a level is shuffled twice and moved: neither its place nor its frequency says what it is.
    moved = (draws.uniform((number, 1)) * levels.unsqueeze(-1)).long()
    code = torch.where(ordered, draws.arange(most), (shuffled.gather(1, shuffled) + moved) % levels.unsqueeze(-1))
    score = torch.where(ordered, draws.arange(most), draws.normal((number, most)))
    row = raw.add(_REACH).mul_(size / (2 * _REACH)).clamp_(0, size - 1).long()
    codes = code.float().gather(1, table).gather(1, row)
    return codes, standardised(score.gather(1, table).gather(1, row))


def _frequencies(draws: Draws, config: LevelConfig, *, shuffled: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """[n, L] how often each level occurs: Zipf (in random order, or falling along the raw quantity) or log-normal."""
    number, most = shuffled.shape
    falls, zipf, size = draws.uniform((3, number, 1))
    rank = torch.where(falls < 0.3, draws.arange(most), shuffled).add(1)
    exponent = size * config.max_exponent * (zipf < config.zipf_share)
    spread = torch.where(zipf < config.zipf_share, 0.15, 1.3 * size)
    weights = (draws.normal((number, most)).mul_(spread) - rank.log() * exponent).exp_().mul_(real)
    return weights / weights.sum(-1, keepdim=True)
