"""Tests of priors.heteroscedastic: means, variances and tails are those of the law, and the law is as asked for."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.ensemble import ExtraTreesRegressor

from priors.causes import CauseConfig, draw_causes
from priors.columns import ColumnConfig, Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.heteroscedastic import (
    HeteroscedasticConfig,
    Law,
    Process,
    Shape,
    Spread,
    draw_law,
    draw_target,
    sample_heteroscedastic,
)
from priors.task import ColumnKind, TaskKind

NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0, constant_share=0.0, copied_share=0.0)
REPEATS = 10_000


def only(
    *, process: Process = Process.ADDED, spread: Spread | None = None, shape: Shape | None = None
) -> HeteroscedasticConfig:
    """A config of one process, and one spread and shape where they are given."""
    config = HeteroscedasticConfig(process_weights=tuple(float(code == process) for code in Process))
    if spread is not None:
        config = dataclasses.replace(config, spread_weights=tuple(float(code == spread) for code in Spread))
    if shape is not None:
        config = dataclasses.replace(config, shape_weights=tuple(float(code == shape) for code in Shape))
    return config


def make(
    config: HeteroscedasticConfig,
    *,
    seed: int = 0,
    count: int = 40,
    rows: int = 200,
    features: int = 5,
    kind: TaskKind = TaskKind.REGRESSION,
    columns: ColumnConfig = NUMBERS,
) -> Draft:
    """Tasks as a mixture would get them."""
    request = TableRequest(
        kind=kind,
        count=count,
        rows=rows,
        features=features,
        max_classes=10,
        causes=CauseConfig(),
        columns=columns,
    )
    return sample_heteroscedastic(Draws(seed), config, request=request)


def table_of(columns: ColumnConfig = NUMBERS, *, count: int = 30, features: int = 5, rows: int = 150) -> Columns:
    """Tables to hang laws on."""
    raw = draw_causes(Draws(1), CauseConfig(), count=count, causes=features, rows=rows)
    return draw_columns(Draws(2), raw, config=columns)


def repeated(law: Law) -> Law:
    """Every task 10,000 times."""
    fields = {field.name: getattr(law, field.name) for field in dataclasses.fields(Law)}
    return Law(**{name: values.repeat_interleave(REPEATS, dim=0) for name, values in fields.items()})


def noise_of(law: Law) -> list[Any]:
    """Per task: the distribution of ε as scipy knows it (None for a contaminated normal)."""
    out = []
    for shape, degrees, tail in zip(law.shape.tolist(), law.degrees.tolist(), law.tail.tolist(), strict=True):
        unit = np.exp(tail**2) - 1
        out.append(
            {
                Shape.NORMAL: stats.norm(),
                Shape.STUDENT: stats.t(degrees, scale=np.sqrt(max(degrees - 2, 0.5) / degrees)),
                Shape.LAPLACE: stats.laplace(scale=np.sqrt(0.5)),
                Shape.CONTAMINATED: None,
                Shape.GAMMA: stats.gamma(degrees / 2, loc=-np.sqrt(degrees / 2), scale=np.sqrt(2 / degrees)),
                Shape.LOG_NORMAL: stats.lognorm(
                    tail, loc=-1 / np.sqrt(unit), scale=np.exp(-(tail**2) / 2) / np.sqrt(unit)
                ),
            }[shape]
        )
    return out


@pytest.mark.parametrize("shape", Shape)
def test_added_noise_has_the_distribution_that_it_is_named_after(shape: Shape) -> None:
    law = draw_law(Draws(3), only(shape=shape), table=table_of(count=5, rows=3))
    assert (law.degrees >= 2).all() and (law.degrees <= 6).all() and 0.19 < law.tail.min() and law.tail.max() < 1.21
    law = dataclasses.replace(law, degrees=torch.arange(2, 7), tail=torch.linspace(0.2, 1.2, 5))
    target = draw_target(Draws(4), repeated(law)).view(5, REPEATS, 3)
    noise = ((target - law.mean.unsqueeze(1)) / law.deviation.unsqueeze(1)).flatten(1).double().numpy()
    for values, wanted, tail in zip(noise, noise_of(law), law.tail.tolist(), strict=True):
        if shape is Shape.CONTAMINATED:
            share, width = tail / 8, 1 / np.sqrt(1 + 35 * tail / 8)
            points = np.array([-6, -3, -1, 0.3, 1, 3, 6]) * width
            mixed = (1 - share) * stats.norm.cdf(points, scale=width) + share * stats.norm.cdf(points, scale=6 * width)
            found = (values[:, None] <= points).mean(0)
            assert np.abs(found - mixed).max() < 0.012
        else:
            assert stats.kstest(values, wanted.cdf).statistic < 0.012


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("shape", [Shape.NORMAL, Shape.GAMMA, Shape.CONTAMINATED])
def test_conditional_means_and_variances_are_the_closed_forms(process: Process, shape: Shape) -> None:
    """E[y|x] is `expected`; Var[y|x] = E[base²]·(1 + v) − E[y|x]² + σ², v the variance of the factor."""
    law = draw_law(Draws(3), only(process=process, shape=shape), table=table_of(count=8, rows=5))
    law = dataclasses.replace(law, tail=law.tail.clamp(max=0.7))
    target = draw_target(Draws(4), repeated(law)).view(8, REPEATS, 5).double()
    factor = 2 / law.degrees if shape is Shape.GAMMA else torch.expm1(law.tail.square())
    factor = factor.unsqueeze(-1) * ((process == Process.MULTIPLIED) | (process == Process.ZEROS))
    square = (1 - law.odds) * law.mean.square() + law.odds * law.other.square()
    variance = square * (1 + factor) - law.expected.square() + law.deviation.square()
    error = (target.mean(1) - law.expected) / (variance / REPEATS).sqrt()
    assert error.abs().max() < 4.5 and error.square().mean() < 2.0
    ratio = target.var(1) / variance
    assert ratio.log().abs().quantile(0.9) < 0.25 and ratio.log().mean().abs() < 0.05
    if process is Process.ZEROS:
        assert ((target == 0).double().mean(1) - law.odds).abs().max() < 0.04 and target.min() == 0
    if process is Process.MULTIPLIED:
        assert target.min() > 0


def test_spread_is_constant_linear_exponential_or_by_groups_of_one_column() -> None:
    table = table_of(ColumnConfig(numbers_share=0.3, discrete_share=0.3, constant_share=0.0))
    x = torch.cat([table.signal, torch.ones_like(table.signal[:, :1])], dim=1).transpose(1, 2).double()
    for spread in Spread:
        deviation = draw_law(Draws(3), only(spread=spread), table=table).deviation.double()
        spreads = deviation.amax(-1) / deviation.amin(-1)
        if spread is Spread.CONSTANT:
            assert spreads.max() < 1 + 1e-5
        elif spread is Spread.GROUPS:
            sizes = [len(task.unique()) for task in deviation]
            assert max(sizes) <= 8 and np.mean(np.array(sizes) > 1) > 0.8 and spreads.median() > 2
            assert all(split_by_one(table, task, deviation[task]) for task in range(30))
        else:
            value = deviation if spread is Spread.LINEAR else deviation.log()
            inner = deviation > deviation.amin(-1, keepdim=True) * 1.001
            weight = inner.unsqueeze(-1).double()
            fit = x @ torch.linalg.lstsq(x * weight, value.unsqueeze(-1) * weight, driver="gelsd").solution
            assert ((fit.squeeze(-1) - value).abs() * inner).amax(-1).quantile(0.9) < 1e-3
            assert spreads.median() > 3


def split_by_one(table: Columns, task: int, deviation: torch.Tensor) -> bool:
    """Whether the scale follows from the codes, or from intervals, of a single column."""
    for column in range(table.values.shape[1]):
        if table.kinds[task, column] == ColumnKind.NUMBER:
            ordered = deviation[table.signal[task, column].argsort()]
            if int((ordered.diff() != 0).sum()) <= 5:
                return True
        else:
            codes = table.values[task, column]
            if all(len(deviation[codes == code].unique()) == 1 for code in codes.unique()):
                return True
    return False


def test_noise_has_the_share_of_variance_that_is_asked_for_and_reported() -> None:
    for share in (0.1, 0.6):
        config = dataclasses.replace(only(shape=Shape.NORMAL), least_noise=share, most_noise=share)
        draft = make(config, rows=1000)
        own = draft.facts["own_noise"]
        assert own.median() == pytest.approx(share, abs=0.05) and own.std() < 0.1
    draft = make(HeteroscedasticConfig(), rows=1000, count=100)
    unexplained = 1 - (draft.scores[:, 0] * draft.scores[:, 1]).mean(-1).square()
    assert (unexplained - draft.facts["own_noise"]).abs().quantile(0.9) < 0.1
    assert (draft.loudness == 0).all()


def test_the_size_of_the_noise_follows_the_scale_that_is_the_third_score() -> None:
    draft = make(only(spread=Spread.EXPONENTIAL, shape=Shape.NORMAL), rows=600)
    table = draft.scores
    slope = (table[:, :1] * table[:, 1:2]).mean(-1, keepdim=True)
    rest = (table[:, 0] - (slope * table[:, 1:2]).squeeze(1)).abs()
    rest = rest - rest.mean(-1, keepdim=True)
    relation = (rest * table[:, 2]).mean(-1) / rest.square().mean(-1).sqrt()
    assert (relation > 0.2).float().mean() > 0.8


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("columns", [NUMBERS, ColumnConfig(numbers_share=0.0, discrete_share=0.5, constant_share=0.5)])
def test_as_many_columns_matter_as_are_reported(process: Process, columns: ColumnConfig) -> None:
    """Rolling one column's rows changes the law of the same seed, or does not."""
    table = table_of(columns, count=60)
    config = only(process=process)
    law = draw_law(Draws(3), config, table=table)
    found = torch.zeros(60, dtype=torch.int64)
    for column in range(5):
        signal, values = table.signal.clone(), table.values.clone()
        signal[:, column], values[:, column] = signal[:, column].roll(1, dims=-1), values[:, column].roll(1, dims=-1)
        other = draw_law(Draws(3), config, table=dataclasses.replace(table, signal=signal, values=values))
        gap = torch.stack([getattr(law, name) - getattr(other, name) for name in ("expected", "odds", "deviation")])
        found += (gap.abs().amax((0, 2)) > 1e-4).long()
    assert (found <= law.relevant).all() and (found == law.relevant).float().mean() > 0.85
    assert {1, 5} <= set(law.relevant.tolist()) or columns is not NUMBERS


def test_means_are_linear_or_bent() -> None:
    left = {}
    for share in (0.0, 1.0):
        table = table_of()
        law = draw_law(Draws(3), dataclasses.replace(only(), linear_share=share), table=table)
        x = torch.cat([table.signal, torch.ones_like(table.signal[:, :1])], dim=1).transpose(1, 2).double()
        fit = x @ torch.linalg.lstsq(x, law.mean.double().unsqueeze(-1), driver="gelsd").solution
        left[share] = (fit.squeeze(-1) - law.mean).square().mean(-1)
    assert left[1.0].max() < 1e-4 and left[0.0].median() > 0.01


def test_a_batch_holds_all_processes_and_shapes() -> None:
    draft = make(HeteroscedasticConfig(), count=200, rows=32)
    assert set(draft.facts["process"].tolist()) == set(Process)
    assert set(draft.facts["shape"].tolist()) == set(Shape)


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize(("count", "rows", "features"), [(1, 16, 1), (3, 16, 100), (5, 300, 2)])
def test_every_shape_of_table_gives_finite_standardised_scores(
    kind: TaskKind, count: int, rows: int, features: int
) -> None:
    for seed in range(10):
        draft = make(
            HeteroscedasticConfig(),
            seed=seed,
            count=count,
            rows=rows,
            features=features,
            kind=kind,
            columns=ColumnConfig(),
        )
        assert draft.columns.values.shape == (count, features, rows) and draft.scores.shape == (count, 3, rows)
        assert draft.scores.isfinite().all() and draft.scores.mean(-1).abs().max() < 1e-4
        assert (draft.scores[:, 0].square().mean(-1) - 1).abs().max() < 1e-2 and (draft.classes == -1).all()
        assert ((draft.facts["own_noise"] >= 0) & (draft.facts["own_noise"] <= 1)).all()
        assert all(len(values) == count and values.isfinite().all() for values in draft.facts.values())


def test_equal_seeds_give_equal_tasks() -> None:
    first, second, other = (make(HeteroscedasticConfig(), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.scores, second.scores) and not torch.equal(first.scores, other.scores)
    assert all(torch.equal(first.facts[name], second.facts[name]) for name in first.facts)


def test_means_can_be_learned_from_noisy_rows_and_shuffled_ones_cannot() -> None:
    draft = make(dataclasses.replace(HeteroscedasticConfig(), most_noise=0.6), rows=300)
    x, y = draft.columns.values.transpose(1, 2).numpy(), draft.scores[:, 0].numpy()
    related = {"real": [], "shuffled": []}
    mixed = np.random.default_rng(0).permuted(y, axis=1)
    for task in range(len(y)):
        for name, target in (("real", y[task]), ("shuffled", mixed[task])):
            trees = ExtraTreesRegressor(30, random_state=0, min_samples_leaf=3).fit(x[task, :200], target[:200])
            guess = trees.predict(x[task, 200:])
            related[name].append(stats.spearmanr(guess, target[200:]).statistic)
    assert np.mean(np.array(related["real"]) > 0.3) > 0.7
    assert np.mean(np.array(related["shuffled"]) > 0.3) < 0.1
