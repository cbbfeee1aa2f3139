"""Tests of priors.marginals: every marginal is recognised by what makes it one."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from priors.columns import ColumnConfig, draw_columns
from priors.draws import Draws
from priors.marginals import MarginalWeights, bend, draw_marginals, in_units, shorten

NAMES = tuple(field.name for field in dataclasses.fields(MarginalWeights))


def columns_of(name: str, *, count: int = 60, rows: int = 500) -> torch.Tensor:
    """[n, R] columns with one marginal, made from normal quantities."""
    raw = Draws(1).normal((count, rows))
    return bend(Draws(2), raw, marginals=torch.full((count,), NAMES.index(name)))


def fits(values: torch.Tensor, distribution: str, *parameters: float) -> bool:
    """Kolmogorov–Smirnov does not reject the distribution."""
    return bool(scipy.stats.kstest(values.numpy(), distribution, args=parameters).pvalue > 1e-3)


def test_a_quantity_may_stay_as_it_came_about() -> None:
    assert torch.equal(columns_of("raw"), Draws(1).normal((60, 500)))


def test_uniform_columns_are_flat() -> None:
    assert sum(fits(column, "uniform", -1.0, 2.0) for column in columns_of("uniform")) >= 58
    assert not any(fits(column, "uniform", -1.0, 2.0) for column in columns_of("tails"))


def test_log_normal_columns_have_normal_logarithms() -> None:
    columns = columns_of("log_normal")
    scales = columns.log().std(-1)
    assert (columns > 0).all() and 0.25 < scales.min() < 0.5 and 1.0 < scales.max() < 1.4
    assert sum(
        fits(column.log(), "norm", 0.0, float(scale)) for column, scale in zip(columns, scales, strict=True)
    ) >= 58  # fmt: skip


def test_kumaraswamy_columns_follow_that_distribution_with_many_shapes() -> None:
    """1 − (1 − x^a)^b is the distribution function (Kumaraswamy, 1980); a and b are recovered by maximum likelihood."""
    shapes = []
    for column in columns_of("kumaraswamy", count=20, rows=4000):
        x = column.double().clamp(1e-9, 1 - 1e-9).numpy()

        def loss(logs: np.ndarray, x: np.ndarray = x) -> float:
            a, b = np.exp(logs)
            return -float(np.mean(logs.sum() + (a - 1) * np.log(x) + (b - 1) * np.log1p(-(x**a))))

        a, b = np.exp(scipy.optimize.minimize(loss, np.zeros(2), method="Nelder-Mead").x)
        middle = (x > np.quantile(x, 0.01)) & (x < np.quantile(x, 0.99))
        ranks = (1 - (1 - x**a) ** b)[middle]
        assert scipy.stats.kstest(ranks, "uniform", args=(ranks.min(), np.ptp(ranks))).pvalue > 1e-3
        assert 0.4 < a < 5.5 and 0.4 < b < 5.5
        shapes.append((a, b))
    assert np.ptp(np.log(shapes), axis=0).min() > 1.2 and np.corrcoef(np.log(shapes).T)[0, 1] < 0.8


def test_powers_have_long_tails_or_two_humps() -> None:
    columns = columns_of("tails", rows=2000)
    kurtosis = (columns**4).mean(-1) / columns.square().mean(-1).square()
    assert (kurtosis < 2.2).float().mean() > 0.04 and (kurtosis > 6).float().mean() > 0.15


@pytest.mark.parametrize("name", ["zero_inflated", "hurdle"])
def test_zero_inflated_columns_are_zero_on_a_share_of_rows_and_vary_on_the_others(name: str) -> None:
    columns = columns_of(name)
    zero = (columns == 0).float().mean(-1)
    assert (columns >= 0).all() and 0.1 < zero.min() < 0.25 and 0.75 < zero.max() < 0.9
    for column in columns:
        above = column[column > 0]
        assert len(above.unique()) == len(above)
        assert (above.min() > 1.0) == (name == "hurdle")


def test_rounded_columns_have_few_equally_spaced_values() -> None:
    columns = columns_of("rounded")
    assert torch.equal(columns, columns.round())
    levels = torch.tensor([len(column.unique()) for column in columns])
    assert 3 <= levels.min() <= 6 and 20 < levels.max() < 60


def test_counts_are_whole_numbers_from_zero_mostly_small() -> None:
    columns = columns_of("counts")
    assert torch.equal(columns, columns.floor()) and columns.min() == 0
    assert (columns.median(-1).values <= 8).all() and columns.max() > 30


@pytest.mark.parametrize("name", NAMES)
def test_no_marginal_changes_the_order_of_rows(name: str) -> None:
    order = Draws(1).normal((60, 500)).argsort(-1)
    assert (columns_of(name).gather(-1, order).diff(dim=-1) >= 0).all()


def test_weights_decide_how_often_a_marginal_is_drawn_and_tasks_share_one() -> None:
    tasks = torch.arange(400).repeat_interleave(10)
    drawn = draw_marginals(Draws(0), tasks=tasks, count=400, weights=MarginalWeights(), plain_share=0.25)
    drawn = drawn.view(400, 10)
    assert set(drawn.unique().tolist()) == set(range(len(NAMES)))
    assert (drawn == 0).all(-1).float().mean() == pytest.approx(0.25, abs=0.06)
    commonest = torch.nn.functional.one_hot(drawn, len(NAMES)).sum(1).amax(-1)
    assert commonest.float().mean() > 6
    none = dataclasses.replace(MarginalWeights(), counts=0.0)
    assert (draw_marginals(Draws(0), tasks=tasks, count=400, weights=none, plain_share=0.25) != 8).all()


def test_marginals_of_a_table_are_those_that_have_weight() -> None:
    """The weights reach the columns of a table: with one marginal only, all columns have it."""
    only = MarginalWeights(**{name: float(name == "counts") for name in NAMES})
    config = ColumnConfig(numbers_share=1.0, discrete_share=0.0, plain_share=0.0, marginals=only, copied_share=0.0)
    values = draw_columns(Draws(0), Draws(1).normal((20, 4, 200)), config=config).values.flatten(0, 1)
    steps = values.sort(-1).values.diff(dim=-1)
    unit = steps.masked_fill(steps < 1e-6, torch.inf).amin(-1, keepdim=True)
    assert ((steps / unit - (steps / unit).round()).abs() < 0.05).float().mean() > 0.97


def test_few_digits_are_steps_of_one_size() -> None:
    values = columns_of("log_normal", count=40)
    marginals = torch.full((40,), NAMES.index("log_normal"))
    share = torch.tensor([True] * 20 + [False] * 20)
    written = shorten(Draws(3), values.clone(), marginals=marginals, tasks=torch.arange(40), share=share)
    assert torch.equal(written[20:], values[20:])
    distinct = torch.tensor([len(column.unique()) for column in written[:20]])
    assert (distinct < 400).sum() >= 12
    assert ((written - values).abs().amax(-1) <= 0.21 * values.std(-1)).all()


def test_units_are_of_many_sizes_and_keep_the_shape() -> None:
    values = columns_of("raw", count=400)
    written = in_units(Draws(3), values.clone())
    correlation = torch.nn.functional.cosine_similarity(
        written - written.mean(-1, keepdim=True), values - values.mean(-1, keepdim=True), dim=-1
    )
    assert correlation.min() > 0.999
    same = (written == values).all(-1)
    assert same.float().mean() == pytest.approx(0.3, abs=0.07)
    scale = (written.std(-1) / values.std(-1))[~same]
    assert scale.min() < 0.05 and scale.max() > 200
    moved = (written.mean(-1) / written.std(-1)).abs() > 0.3
    assert 0.2 < moved.float().mean() < 0.5
