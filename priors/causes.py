"""Correlated causes: the raw columns that tables start from, before anything depends on them.

Stands for what real tables share: a few hidden drivers (size, age, wealth) load on many columns, rows fall into
clumps, and some columns are noisy copies of others.
"""

import dataclasses

import torch

from priors.draws import Draws, apply_by_code, below, standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class CauseConfig:
    """How the raw columns of a task depend on each other."""

    independent_share: float = 0.06
    """Share of tasks whose columns are independent."""
    size_share: float = 0.65
    """Share of tasks whose drivers mostly push all columns the same way (size, severity, wealth)."""
    max_factors: int = 5
    """Most hidden drivers of the correlated columns."""
    clump_share: float = 0.3
    """Share of tasks whose rows fall into a few clumps in the space of drivers."""
    duplicate_share: float = 0.2
    """Share of tasks in which some columns are noisy copies of others."""
    max_duplicates: float = 0.4
    """Largest share of a task's columns that are copies."""


_SHAPES = (
    lambda z: z,
    lambda z: torch.erf(z * 0.7071).mul_(1.7),  # flat
    lambda z: torch.exp(z * 0.6),  # skewed
    lambda z: z * z.abs(),  # long tails
    lambda z: torch.sign(z) * z.abs().sqrt(),  # two humps
)


def draw_causes(draws: Draws, config: CauseConfig, *, count: int, causes: int, rows: int) -> torch.Tensor:
    """[B, C, R] columns of mean 0 and variance 1, with each task's own correlation structure."""
    factors = _drivers(draws, config, count=count, rows=rows)
    number = factors.shape[1]
    sparsity = draws.uniform((count, 1, 1), low=0.3, high=1.0)
    lean = draws.uniform((count, 1, 1), high=3.0) * draws.happens((count, 1, 1), share=config.size_share)
    loadings = (draws.normal((count, causes, number)) + lean) * (draws.uniform((count, causes, number)) < sparsity)
    loadings = loadings * (factors.square().sum(-1) > 0).unsqueeze(1)  # some tasks have few drivers
    loadings = loadings / loadings.square().sum(-1, keepdim=True).add(1e-6).sqrt()
    strength = 0.99 - 0.7 * draws.uniform((count, 1, 1)).square()
    strength = strength * ~draws.happens((count, 1, 1), share=config.independent_share)
    share = strength * draws.uniform((count, causes, 1)) ** 0.3
    raw = share.sqrt() * (loadings @ factors) + (1 - share).sqrt() * draws.normal((count, causes, rows))
    own = draws.choice((count, 1), weights=(5, 2, 1, 1, 1)).expand(count, causes)
    raw = apply_by_code(raw.view(count * causes, rows), own.reshape(-1), functions=_SHAPES).view(count, causes, rows)
    return standardised(_with_copies(draws, raw, config=config))


def _drivers(draws: Draws, config: CauseConfig, *, count: int, rows: int) -> torch.Tensor:
    """[B, F, R] hidden drivers; some tasks have fewer than F, and some have clumped rows."""
    number = config.max_factors
    factors = draws.normal((count, number, rows))
    clumps = 6
    centres = draws.normal((count, number, clumps)) * draws.log_uniform((count, 1, 1), low=1.0, high=6.0)
    weights = draws.normal((count, clumps)).mul(0.7).exp()
    weights = weights * (draws.arange(clumps) < draws.integers((count, 1), low=2, high=clumps))
    member = draws.multinomial(weights, rows)
    offset = centres.gather(2, member.unsqueeze(1).expand(-1, number, -1))
    factors = factors + offset * draws.happens((count, 1, 1), share=config.clump_share)
    used = below(draws.counts((count,), low=1, high=number), size=number)
    return standardised(factors) * used.unsqueeze(-1)


def _with_copies(draws: Draws, raw: torch.Tensor, *, config: CauseConfig) -> torch.Tensor:
    """Replaces some columns by noisy copies of others."""
    count, causes, _ = raw.shape
    share = draws.uniform((count, 1), high=config.max_duplicates)
    share = share * draws.happens((count, 1), share=config.duplicate_share)
    copied = draws.uniform((count, causes)) < share
    source = torch.where(copied, draws.integers((count, causes), low=0, high=causes - 1), draws.arange(causes))
    noise = draws.log_uniform((count, causes), low=0.01, high=0.7) * copied
    if not copied.any():
        return raw
    raw = raw.gather(1, source.unsqueeze(-1).expand_as(raw))
    picked = copied.view(-1).nonzero().squeeze(-1)
    flat = raw.view(count * causes, -1)
    flat[picked] += noise.view(-1)[picked].unsqueeze(-1) * draws.normal((len(picked), raw.shape[-1]))
    return raw
