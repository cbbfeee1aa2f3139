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
from priors.rule_drivers import NUM_DRIVERS, bins_of, draw_drivers, make_fair, probes_of
from priors.rule_outcomes import OUTCOMES

_PARITY_DRIVERS = 3
_MOST_PROBES = 32


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
    """Draws tasks whose outcome follows from a few columns.

    Facts: "rule", the index in (parity, lookup, count, nested, alternatives), and "relevant", the number of columns of
    which a change alone would change the outcome of some row (of those that are tried).
    """
    count, rows, features = request.count, request.rows, request.features
    table = _table(draws, config, request=request)
    rule = draws.choice((count,), weights=config.weights)
    drivers = draw_drivers(draws, count=count, features=features)
    distinct = min(NUM_DRIVERS, features)
    outcome = torch.empty((count, rows), dtype=torch.int64, device=draws.device)
    relevant = torch.empty((count,), dtype=torch.int64, device=draws.device)
    number = draws.integers((count,), low=2, high=4).masked_fill_(rule == 0, 2)
    bins = _bins(draws, table, number=number, drivers=drivers, fair=rule == 0)
    probes = probes_of(bins, distinct=distinct, most=_MOST_PROBES)
    asked = torch.cat([bins, probes.bins], dim=-1)
    for code, draw_outcome in enumerate(OUTCOMES):
        chosen = (rule == code).nonzero().squeeze(-1)
        if len(chosen):
            apply = draw_outcome(draws, bins[chosen], max_classes=min(config.max_classes, request.max_classes))
            answers = apply(asked[chosen])
            own, changed = answers[:, :rows], answers[:, rows:].view(len(chosen), distinct, probes.rows)
            outcome[chosen] = own
            relevant[chosen] = (changed != own[:, None, : probes.rows]).any(-1).sum(-1)
    worth = draws.normal((count, int(outcome.max()) + 1))
    score = worth.gather(1, outcome)
    return Draft(
        columns=table,
        scores=standardised(torch.stack([score, score, draws.normal(score.shape)], dim=1)),
        classes=outcome,
        loudness=draws.happens((count,), share=0.5).float(),
        facts={"rule": rule, "relevant": relevant},
    )


def _table(draws: Draws, config: RuleConfig, *, request: TableRequest) -> Columns:
    """Columns that are more often discrete and independent than in other families."""
    mixed = min(1.0, request.columns.numbers_share) * (1 - config.discrete_share)
    looks = dataclasses.replace(request.columns, numbers_share=mixed, discrete_share=config.discrete_share)
    calm = dataclasses.replace(request.causes, independent_share=max(request.causes.independent_share, 0.5))
    raw = draw_causes(draws, calm, count=request.count, causes=request.features, rows=request.rows)
    return draw_columns(draws, raw, config=looks)


def _bins(
    draws: Draws, table: Columns, *, number: torch.Tensor, drivers: torch.Tensor, fair: torch.Tensor
) -> torch.Tensor:
    """[B, 9, R] int64 bins 0 … number − 1 of drivers; parity has up to three fair ones, and 0 for those it lacks."""
    count, features, rows = table.values.shape
    distinct = min(NUM_DRIVERS, features)
    fair, other = fair.nonzero().squeeze(-1), (~fair).nonzero().squeeze(-1)
    bins = torch.zeros((count, NUM_DRIVERS, rows), dtype=torch.int64, device=draws.device)
    if len(fair):
        size = min(_PARITY_DRIVERS, features)
        bins[fair, :size] = make_fair(draws, table, tasks=fair, columns=drivers[fair, :size])
    if len(other):
        part = Columns(**{name: values[other] for name, values in vars(table).items()})
        cut = bins_of(part, drivers=drivers[other, :distinct], number=number[other])
        bins[other] = cut.repeat(1, -(-NUM_DRIVERS // distinct), 1)[:, :NUM_DRIVERS]
    return bins
