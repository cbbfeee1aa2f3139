"""Tests of priors.rules: outcomes follow exactly from a few columns."""

import itertools

import pytest
import torch

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft
from priors.draws import Draws
from priors.rules import RuleConfig, sample_rules

RULES = ("parity", "lookup", "count", "nested", "alternatives")
NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0)
ALONE = CauseConfig(independent_share=1.0, duplicate_share=0.0)


def make(rule: str, *, features: int = 9, discrete: float = 0.6, rows: int = 400, seed: int = 0) -> Draft:
    """40 tasks of one rule with independent columns."""
    weights = tuple(float(name == rule) for name in RULES)
    config = RuleConfig(weights=weights, discrete_share=discrete)
    looks = NUMBERS if discrete == 0 else ColumnConfig()
    shape = {"count": 40, "rows": rows, "features": features}
    return sample_rules(Draws(seed), config, causes=ALONE, columns=looks, **shape)


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
    assert mixed >= 32


def test_parity_hides_from_single_columns_and_shows_in_pairs_or_triples() -> None:
    draft = make("parity", features=5, discrete=0.0)
    for signal, outcome in zip(draft.columns.signal, draft.classes, strict=True):
        bits = (signal >= signal.sort(-1).values[:, 200:201]).long()
        alone = max(abs(float((column == outcome).float().mean()) - 0.5) for column in bits)
        groups = [g for size in (2, 3) for g in itertools.combinations(range(5), size)]
        agreement = [float((bits[list(group)].sum(0) % 2 == outcome).float().mean()) for group in groups]
        assert alone < 0.15
        assert max(max(agreement), 1 - min(agreement)) == 1.0


def test_counts_rise_with_every_driver() -> None:
    draft = make("count", features=9, discrete=0.0)
    signal = draft.columns.signal - draft.columns.signal.mean(-1, keepdim=True)
    outcome = draft.classes.float() - draft.classes.float().mean(-1, keepdim=True)
    slopes = (signal * outcome.unsqueeze(1)).mean(-1)
    assert slopes.min() > -0.1 and (slopes > 0.03).sum(-1).float().median() >= 3
    assert set(draft.classes.unique().tolist()) == {0, 1, 2}


def test_lookup_tables_have_as_many_classes_as_configured() -> None:
    classes = torch.tensor([len(outcome.unique()) for outcome in make("lookup").classes])
    assert classes.max() == 6 and (classes == 2).any()


def test_the_rule_is_noted() -> None:
    for code, rule in enumerate(RULES):
        assert (make(rule, rows=64).facts["rule"] == code).all()


def test_columns_of_many_equal_values_still_split() -> None:
    """A column that is mostly zero is a driver with two bins: parity of such columns is not constant."""
    looks = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=1.0, plain_share=0.0)
    config = RuleConfig(weights=(1.0, 0.0, 0.0, 0.0, 0.0), discrete_share=0.0)
    shape = {"count": 200, "rows": 200, "features": 2}
    draft = sample_rules(Draws(0), config, causes=ALONE, columns=looks, **shape)
    shares = draft.classes.float().mean(-1)
    assert ((shares > 0) & (shares < 1)).all()
