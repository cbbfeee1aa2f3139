"""Tests of priors.rules: outcomes follow exactly from a few columns."""

import dataclasses
import itertools

import pytest
import scipy.stats
import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.levels import LevelConfig
from priors.marginals import MarginalWeights
from priors.rules import RuleConfig, sample_rules
from priors.task import ColumnKind, TaskKind

RULES = ("parity", "lookup", "count", "nested", "alternatives")
NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0, copied_share=0.0, constant_share=0.0)
TIED = dataclasses.replace(
    NUMBERS, plain_share=0.0, rounded_share=1.0, marginals=MarginalWeights(zero_inflated=100, counts=100, rounded=100)
)
THREE_LEVELS = ColumnConfig(levels=LevelConfig(few=3, wide_share=0.0), copied_share=0.0, constant_share=0.0)
MIXED = ColumnConfig(levels=LevelConfig(few=7, wide_share=0.0))
ALONE = CauseConfig(independent_share=1.0, duplicate_share=0.0)


def make(
    rule: str,
    *,
    features: int = 9,
    discrete: float = 0.6,
    rows: int = 400,
    causes: CauseConfig = ALONE,
    columns: ColumnConfig | None = None,
    count: int = 40,
) -> Draft:
    """Tasks of one rule."""
    weights = tuple(float(name == rule) for name in RULES)
    looks = columns or (NUMBERS if discrete == 0 else ColumnConfig())
    request = TableRequest(
        kind=TaskKind.CLASSIFICATION,
        count=count,
        rows=rows,
        features=features,
        max_classes=10,
        causes=causes,
        columns=looks,
    )
    return sample_rules(Draws(0), RuleConfig(weights=weights, discrete_share=discrete), request=request)


@pytest.mark.parametrize("features", [1, 2, 3, 9, 20])
@pytest.mark.parametrize("rule", RULES)
def test_rules_work_for_any_number_of_columns(rule: str, features: int) -> None:
    draft = make(rule, features=features, rows=64)
    assert draft.columns.values.shape == (40, features, 64)
    assert (draft.classes >= 0).all() and draft.scores.isfinite().all()


@pytest.mark.parametrize("rule", RULES)
def test_outcomes_follow_from_the_table(rule: str) -> None:
    """Rows of equal cells in all-discrete tables have the same outcome, and most tasks have two outcomes."""
    draft = make(rule, discrete=1.0, features=4, rows=800)
    mixed = 0
    for values, outcome in zip(draft.columns.values, draft.classes, strict=True):
        _, inverse = values.T.unique(dim=0, return_inverse=True)
        lowest = torch.full((int(inverse.max()) + 1,), 99).scatter_reduce(0, inverse, outcome, "amin")
        highest = torch.full((int(inverse.max()) + 1,), -1).scatter_reduce(0, inverse, outcome, "amax")
        assert torch.equal(lowest, highest)
        mixed += len(outcome.unique()) > 1
    assert mixed >= 36


def cells_of(column: torch.Tensor, *, kind: int) -> torch.Tensor:
    """Cells of a column: levels, or the lower and the upper half and eight parts of a number's ranks."""
    ranks = column.argsort(stable=True).argsort(stable=True)
    return column.long() if kind != ColumnKind.NUMBER else ranks * 8 // len(column)


def chance_of_dependence(cells: torch.Tensor, outcome: torch.Tensor) -> float:
    """p-value of the χ² test that cells and outcome are independent."""
    table = torch.zeros((int(cells.max()) + 1, int(outcome.max()) + 1))
    table.index_put_((cells, outcome), torch.ones(len(cells)), accumulate=True)
    return float(scipy.stats.chi2_contingency(table[table.sum(1) > 0][:, table.sum(0) > 0].numpy()).pvalue)


@pytest.mark.parametrize(
    ("columns", "discrete"),
    [(NUMBERS, 0.0), (TIED, 0.0), (THREE_LEVELS, 1.0), (MIXED, 0.3)],
    ids=["numbers", "numbers with ties", "two or three levels", "mixed"],
)
def test_parity_is_told_by_no_single_column_but_by_some_pair_or_triple(columns: ColumnConfig, discrete: float) -> None:
    """Even where columns have odd numbers of levels or ties, and other columns are correlated."""
    draft = make("parity", features=5, discrete=discrete, rows=1000, columns=columns, causes=CauseConfig())
    alone, found = [], 0
    for task, outcome in enumerate(draft.classes):
        cells = [
            cells_of(values, kind=int(kind))
            for values, kind in zip(draft.columns.values[task], draft.columns.kinds[task], strict=True)
        ]
        alone += [chance_of_dependence(column, outcome) for column in cells]
        found += any(
            purity([cells[i] for i in group], outcome) == 1.0
            for size in (2, 3)
            for group in itertools.combinations(range(5), size)
        )
        assert outcome.float().mean() == pytest.approx(0.5, abs=0.08)
    assert found == len(draft.classes)
    assert min(alone) > 1e-5 and sum(p < 0.01 for p in alone) <= 0.035 * len(alone)


def purity(cells: list[torch.Tensor], outcome: torch.Tensor) -> float:
    """Share of rows whose outcome is the most frequent one of their joint cell; 0 where cells hold too few rows."""
    joint = torch.zeros_like(outcome)
    for column in cells:
        _, joint = (joint * (int(column.max()) + 1) + column).unique(return_inverse=True)
    table = torch.zeros((int(joint.max()) + 1, int(outcome.max()) + 1))
    table.index_put_((joint, outcome), torch.ones(len(outcome)), accumulate=True)
    return float(table.amax(1).sum() / len(outcome)) if len(outcome) > 1.5 * len(table) else 0.0


def test_counts_rise_with_every_driver() -> None:
    draft = make("count", features=9, discrete=0.0)
    values = draft.columns.values.argsort(-1).argsort(-1).float()
    signal = values / values.std(-1, keepdim=True)
    outcome = draft.classes.float() - draft.classes.float().mean(-1, keepdim=True)
    slopes = (signal * outcome.unsqueeze(1)).mean(-1)
    assert slopes.min() > -0.1 and (slopes > 0.03).sum(-1).float().median() >= 3
    assert set(draft.classes.unique().tolist()) == {0, 1, 2}


def test_lookup_tables_have_as_many_classes_as_configured() -> None:
    classes = torch.tensor([len(outcome.unique()) for outcome in make("lookup", count=200).classes])
    assert classes.max() == 6 and (classes == 2).any()


def test_the_rule_is_noted() -> None:
    for code, rule in enumerate(RULES):
        assert (make(rule, rows=64).facts["rule"] == code).all()


@pytest.mark.parametrize("rule", RULES)
def test_columns_that_are_not_counted_as_relevant_change_nothing(rule: str) -> None:
    """As many columns as are noted can be left out of a table before rows of equal cells have unequal outcomes."""
    draft = make(rule, discrete=1.0, features=4, rows=1500, columns=THREE_LEVELS)
    relevant = draft.facts["relevant"]
    assert relevant.min() >= 0 and relevant.max() <= 4 and len(relevant.unique()) > 1
    missed = 0
    for task, outcome in enumerate(draft.classes):
        cells = [torch.zeros_like(outcome), *draft.columns.values[task].long()]
        groups = (group for size in range(5) for group in itertools.combinations(range(1, 5), size))
        fewest = next(group for group in groups if purity([cells[i] for i in (0, *group)], outcome) == 1.0)
        assert relevant[task] <= len(fewest)
        missed += len(fewest) - int(relevant[task])
    assert missed <= 16  # effects on too few rows to be met by the rows that are tried


def test_columns_of_many_equal_values_still_split() -> None:
    """A column that is mostly zero is a driver with two bins: counts of such columns are not constant."""
    draft = make("count", features=3, discrete=0.0, columns=TIED)
    shares = (draft.classes > 0).float().mean(-1)
    assert ((shares > 0) & (shares < 1)).all()
