"""Tests of priors.columns: what a table may look like."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.columns import ColumnConfig, Columns, blemish, draw_columns
from priors.draws import Draws
from priors.task import ColumnKind

CLEAN = ColumnConfig(outlier_share=0.0, missing_share=0.0)
NUMBERS = dataclasses.replace(CLEAN, numbers_share=1.0, discrete_share=0.0)
CODES = dataclasses.replace(CLEAN, numbers_share=0.0, discrete_share=1.0)


def make(config: ColumnConfig, *, seed: int = 0, count: int = 32, features: int = 5, rows: int = 200) -> Columns:
    """Columns over independent normal causes."""
    raw = Draws(seed + 1000).normal((count, features, rows))
    return draw_columns(Draws(seed), raw, config=config)


def rank_correlation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Spearman's rank correlation over the last axis."""
    a, b = (values.argsort(-1).argsort(-1).float() for values in (a, b))
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return (a * b).mean(-1) / (a.std(-1) * b.std(-1))


@given(seed=st.integers(0, 10**6), features=st.integers(1, 7), rows=st.sampled_from([16, 33, 128]))
@settings(max_examples=30, deadline=None)
def test_codes_are_whole_numbers_below_their_level_count(seed: int, features: int, rows: int) -> None:
    columns = make(CLEAN, seed=seed, count=4, features=features, rows=rows)
    coded = columns.kinds != ColumnKind.NUMBER
    assert columns.values.isfinite().all() and columns.signal.isfinite().all()
    assert (columns.levels[~coded] == 0).all() and (columns.levels[coded] >= 2).all() and columns.levels.max() <= 20
    codes = columns.values[coded]
    assert (codes == codes.round()).all() and (codes >= 0).all()
    assert (codes.amax(-1) < columns.levels[coded]).all()


def test_styles_of_tasks_are_as_configured() -> None:
    assert (make(NUMBERS).kinds == ColumnKind.NUMBER).all()
    assert (make(CODES).kinds != ColumnKind.NUMBER).all()
    kinds = make(dataclasses.replace(CLEAN, numbers_share=0.0, discrete_share=0.0), count=200).kinds
    found = {int(kind) for kind in kinds.unique()}
    assert found == {ColumnKind.NUMBER, ColumnKind.ORDINAL, ColumnKind.CATEGORY}


def test_numbers_keep_the_order_of_their_cause_in_many_marginals() -> None:
    raw = Draws(5).normal((64, 4, 200))
    columns = draw_columns(Draws(6), raw, config=dataclasses.replace(NUMBERS, rounded_share=0.0))
    order = raw.argsort(-1)
    steps = columns.values.gather(-1, order).diff(dim=-1)
    assert (steps >= -1e-3 * columns.values.std(-1, keepdim=True)).all()
    centred = columns.values - columns.values.mean(-1, keepdim=True)
    skew = (centred**3).mean(-1) / (centred**2).mean(-1) ** 1.5
    assert (skew.abs() < 0.3).float().mean() > 0.1 and (skew.abs() > 1.5).float().mean() > 0.1
    assert columns.values.std(-1).log10().std() > 0.5


def test_rounded_numbers_repeat() -> None:
    shares = []
    for rounded in (0.0, 1.0):
        config = dataclasses.replace(NUMBERS, rounded_share=rounded, plain_share=1.0)
        values = make(config).values.flatten(0, 1)
        shares.append(sum(len(column.unique()) for column in values) / values.numel())
    assert shares[0] > 0.95 and shares[1] < 0.6


def test_a_target_may_depend_on_numbers_as_shown_or_on_their_cause() -> None:
    raw = Draws(5).normal((16, 3, 100))
    base = dataclasses.replace(NUMBERS, plain_share=0.0, rounded_share=0.0)
    hidden = draw_columns(Draws(6), raw, config=dataclasses.replace(base, literal_share=0.0))
    shown = draw_columns(Draws(6), raw, config=dataclasses.replace(base, literal_share=1.0))
    assert torch.equal(hidden.signal, raw)
    cosine = torch.nn.functional.cosine_similarity(
        shown.signal, shown.values - shown.values.mean(-1, keepdim=True), dim=-1
    )
    assert cosine.median() > 0.99


def test_ordinals_keep_the_order_and_categories_do_not() -> None:
    raw = Draws(5).normal((64, 6, 300))
    columns = draw_columns(Draws(6), raw, config=CODES)
    relation = rank_correlation(columns.values + 1e-3 * torch.rand(raw.shape), raw)
    ordinal, many = columns.kinds == ColumnKind.ORDINAL, columns.levels >= 4
    assert relation[ordinal & many].min() > 0.4
    assert relation[~ordinal & many].mean().abs() < 0.2 and relation[~ordinal & many].min() < -0.4


def test_the_signal_of_a_code_depends_on_the_code_alone() -> None:
    columns = make(CODES)
    codes, signal = columns.values.flatten(0, 1), columns.signal.flatten(0, 1)
    for column, score in zip(codes, signal, strict=True):
        for code in column.unique():
            assert score[column == code].std(correction=0) < 1e-5
    assert (signal.std(-1) > 0.9).float().mean() > 0.9


def test_missing_cells_appear_only_where_asked_for_and_in_three_ways() -> None:
    columns = make(NUMBERS, count=200, features=4)
    assert not blemish(Draws(1), columns, config=CLEAN).isnan().any()
    values = blemish(Draws(1), columns, config=dataclasses.replace(CLEAN, missing_share=1.0))
    missing = values.isnan()
    rate = missing.float().mean(-1)
    assert 0.02 < rate.mean() < 0.3 and rate.max() < 0.85 and (rate == 0).float().mean() > 0.1
    assert torch.equal(values[~missing], columns.values[~missing])
    own = torch.nn.functional.cosine_similarity(
        missing.float() - rate.unsqueeze(-1), columns.signal - columns.signal.mean(-1, keepdim=True), dim=-1
    )
    holed = rate > 0.05
    assert (own[holed].abs() > 0.3).float().mean() > 0.05 and (own[holed].abs() < 0.15).float().mean() > 0.4


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_outliers_lie_far_out_in_few_cells_of_number_columns(share: float) -> None:
    columns = make(dataclasses.replace(CLEAN, numbers_share=0.0, discrete_share=0.0), count=100)
    values = blemish(Draws(1), columns, config=dataclasses.replace(CLEAN, outlier_share=share))
    moved = values != columns.values
    assert (moved.float().mean() > 0.001) == (share == 1.0) and moved.float().mean() < 0.02
    assert not moved[columns.kinds != ColumnKind.NUMBER].any()
