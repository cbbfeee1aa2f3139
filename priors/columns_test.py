"""Tests of priors.columns: what a table may look like."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priors.columns import ColumnConfig, Columns, draw_columns
from priors.draws import Draws
from priors.levels import LevelConfig
from priors.task import ColumnKind

CLEAN = ColumnConfig(copied_share=0.0, constant_share=0.0)
NUMBERS = dataclasses.replace(CLEAN, numbers_share=1.0, discrete_share=0.0)
CODES = dataclasses.replace(CLEAN, numbers_share=0.0, discrete_share=1.0, levels=LevelConfig(wide_share=0.0))
MIXED = dataclasses.replace(CLEAN, numbers_share=0.0, discrete_share=0.0)


def make(config: ColumnConfig, *, seed: int = 0, count: int = 32, features: int = 5, rows: int = 200) -> Columns:
    """Columns over independent normal causes."""
    raw = Draws(seed + 1000).normal((count, features, rows))
    return draw_columns(Draws(seed), raw, config=config)


def rank_correlation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Spearman's rank correlation over the last axis."""
    a, b = (values.argsort(-1).argsort(-1).float() for values in (a, b))
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return (a * b).mean(-1) / (a.std(-1, correction=0) * b.std(-1, correction=0))


@given(seed=st.integers(0, 10**6), features=st.integers(1, 7), rows=st.sampled_from([16, 33, 128]))
@settings(max_examples=30, deadline=None)
def test_codes_are_whole_numbers_below_their_level_count(seed: int, features: int, rows: int) -> None:
    columns = make(ColumnConfig(copied_share=0.5), seed=seed, count=4, features=features, rows=rows)
    coded = columns.kinds != ColumnKind.NUMBER
    assert columns.values.isfinite().all() and columns.signal.isfinite().all()
    assert (columns.levels[~coded] == 0).all() and (columns.levels[coded] >= 2).all()
    assert columns.levels.max() <= rows // 2
    codes = columns.values[coded]
    assert (codes == codes.round()).all() and (codes >= 0).all()
    assert (codes.amax(-1) < columns.levels[coded]).all()


def test_styles_of_tasks_are_as_configured() -> None:
    assert (make(NUMBERS).kinds == ColumnKind.NUMBER).all()
    assert (make(CODES).kinds != ColumnKind.NUMBER).all()
    found = {int(kind) for kind in make(MIXED, count=200).kinds.unique()}
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
    assert relation[ordinal & many].min() > 0.3
    assert relation[~ordinal & many].mean().abs() < 0.2 and relation[~ordinal & many].min() < -0.4


def test_the_signal_of_a_code_depends_on_the_code_alone() -> None:
    columns = make(CODES)
    codes, signal = columns.values.flatten(0, 1), columns.signal.flatten(0, 1)
    for column, score in zip(codes, signal, strict=True):
        for code in column.unique():
            assert score[column == code].std(correction=0) < 1e-5
    assert (signal.std(-1) > 0.9).float().mean() > 0.9


def test_a_share_of_tasks_with_codes_has_wide_categories_that_carry_signal() -> None:
    config = dataclasses.replace(MIXED, levels=LevelConfig(wide_share=0.4))
    columns = make(config, count=300, features=8, rows=512)
    wide = columns.levels >= 30
    assert wide.any(-1).float().mean() == pytest.approx(0.4, abs=0.09)
    assert 1 <= wide.sum(-1)[wide.any(-1)].float().mean() < 4
    assert (columns.kinds[wide] == ColumnKind.CATEGORY).all() and columns.levels.max() > 200
    assert (columns.signal[wide].std(-1) > 0.9).all()
    assert not (make(NUMBERS, count=300).levels > 0).any()


def test_a_default_mixture_has_wide_categories_in_more_than_one_task_of_ten() -> None:
    share = (make(ColumnConfig(), count=1000, features=10, rows=256).levels >= 30).any(-1).float().mean()
    assert 0.1 < share < 0.25


def twins(columns: Columns) -> torch.Tensor:
    """[B, C, C] bool: pairs whose values order the rows in the same or in the opposite way, up to ties."""
    relation = rank_correlation(columns.signal.unsqueeze(2), columns.signal.unsqueeze(1))
    own = torch.eye(columns.signal.shape[1], dtype=torch.bool)
    return (relation.abs() > 0.999) & ~own


@pytest.mark.parametrize("config", [NUMBERS, CODES, MIXED], ids=["numbers", "codes", "mixed"])
def test_some_columns_are_exact_nearly_exact_or_transformed_copies_of_others(config: ColumnConfig) -> None:
    assert not twins(make(NUMBERS, count=100)).any()
    columns = make(dataclasses.replace(config, copied_share=1.0, plain_share=0.0), count=200, features=8)
    pairs = twins(columns).triu().nonzero()
    assert 0.5 < len(pairs) / 200 < 6
    same, near, other = 0, 0, 0
    for task, first, second in pairs.tolist():
        a, b = columns.values[task, first], columns.values[task, second]
        assert columns.kinds[task, first] == columns.kinds[task, second]
        assert columns.levels[task, first] == columns.levels[task, second]
        if torch.equal(a, b):
            same += 1
        elif columns.kinds[task, first] == ColumnKind.NUMBER and (a - b).abs().max() < 0.2 * a.std():
            near += 1
        else:
            product = (a.double().unsqueeze(0) - a.unsqueeze(1)) * (b.double().unsqueeze(0) - b.unsqueeze(1))
            other += bool((product >= 0).all() or (product <= 0).all())
    assert same > 0.15 * len(pairs) and other > 0.15 * len(pairs) and same + near + other > 0.9 * len(pairs)
    assert (near > 0) == (config is not CODES)


def test_a_copy_is_never_left_without_the_column_it_copies() -> None:
    config = dataclasses.replace(NUMBERS, copied_share=1.0, max_copied=1.0, literal_share=0.0)
    signal = make(config, count=100, features=6).signal
    raw = Draws(1000).normal((100, 6, 200))
    copied = (signal != raw).any(-1)
    assert 0.3 < copied.float().mean() < 0.7 and copied.sum(-1).max() == 5
    twin = (signal.unsqueeze(2) == signal.unsqueeze(1)).all(-1) & ~copied.unsqueeze(1)
    assert torch.equal(twin.any(-1), torch.ones_like(copied))


def test_few_tasks_have_one_constant_column_and_no_target_depends_on_it() -> None:
    for share in (0.0, 0.2):
        columns = make(dataclasses.replace(MIXED, constant_share=share), count=400)
        constant = columns.values.amax(-1) == columns.values.amin(-1)
        assert constant.any(-1).float().mean() == pytest.approx(share, abs=0.07)
        assert (columns.signal[constant].abs().amax(-1) == 0).float().mean() > 0.5 or not share
    single = make(dataclasses.replace(NUMBERS, constant_share=1.0, copied_share=1.0), features=1)
    assert (single.values.std(-1) > 0).all()
