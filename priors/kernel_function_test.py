"""Tests of priors.kernel_function: the covariance over draws is the kernel, and functions can be learned from rows."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.kernel_function import (
    Kernel,
    KernelFunctionConfig,
    Spectrum,
    draw_frequencies,
    draw_spectrum,
    random_functions,
    sample_kernel_function,
)
from priors.task import TaskKind

PLAIN = KernelFunctionConfig(additive_share=0.0, trend_share=0.0, warped_share=0.0)
NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0, constant_share=0.0, copied_share=0.0)
DRAWS = 12000
TOLERANCE = 0.035
RATE = (1.0, 0.6, 0.0)
PERIOD, HARMONY = 1.7, 0.8


def make(
    config: KernelFunctionConfig,
    *,
    seed: int = 0,
    count: int = 40,
    rows: int = 200,
    features: int = 6,
    columns: ColumnConfig = NUMBERS,
    causes: CauseConfig = CauseConfig(),
) -> Draft:
    """Regression tasks."""
    request = TableRequest(
        kind=TaskKind.REGRESSION,
        count=count,
        rows=rows,
        features=features,
        max_classes=10,
        causes=causes,
        columns=columns,
    )
    return sample_kernel_function(Draws(seed), config, request=request)


def spectrum_of(kernel: Kernel, *, degrees: int = 1, group: tuple[int, ...] = (0, 0, 0)) -> Spectrum:
    """The same spectrum for every draw: columns of rates 1, 0.6 and 0; the first is the periodic one."""
    share = [float(code in group) for code in range(3)]
    return Spectrum(
        kernel=torch.full((DRAWS,), int(kernel)),
        degrees=torch.full((DRAWS,), degrees),
        rate=torch.tensor(RATE).expand(DRAWS, 3),
        group=torch.tensor(group).expand(DRAWS, 3),
        share=torch.tensor(share).expand(DRAWS, 3),
        recurrent=torch.zeros((DRAWS, 2), dtype=torch.int64),
        period=torch.full((DRAWS,), PERIOD),
        harmony=torch.full((DRAWS,), HARMONY),
    )


def points() -> torch.Tensor:
    """[3, 8] fixed rows."""
    return torch.randn((3, 8), generator=torch.Generator().manual_seed(5))


def empirical(spectrum: Spectrum, *, seed: int = 0) -> torch.Tensor:
    """[8, 8] second moments of 3 × 12,000 functions at the fixed rows."""
    draws = Draws(seed)
    frequencies = draw_frequencies(draws, spectrum, waves=16)
    values = random_functions(draws, frequencies, inputs=points().expand(DRAWS, 3, 8)).flatten(0, 1)
    return values.T @ values / len(values)


def closed_form(kernel: Kernel, *, degrees: int, columns: tuple[int, ...]) -> torch.Tensor:
    """[8, 8] the kernel over some of the columns."""
    rate = torch.tensor(RATE)[list(columns)].view(-1, 1, 1)
    gap = (points().unsqueeze(2) - points().unsqueeze(1))[list(columns)]
    square = (gap * rate).square().sum(0)
    r, alpha = square.sqrt(), degrees / 2
    if kernel is Kernel.LAPLACE:
        return torch.exp(-(gap * rate).abs().sum(0))
    if kernel is Kernel.PERIODIC:
        rest = (gap * rate)[1:].square().sum(0)
        return torch.exp(-2 * torch.sin(math.pi * gap[0] / PERIOD).square() / HARMONY**2 - rest / 2)
    forms = {
        Kernel.SQUARED_EXPONENTIAL: torch.exp(-square / 2),
        Kernel.MATERN_1_2: torch.exp(-r),
        Kernel.MATERN_3_2: (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r),
        Kernel.MATERN_5_2: (1 + math.sqrt(5) * r + 5 * square / 3) * torch.exp(-math.sqrt(5) * r),
        Kernel.RATIONAL_QUADRATIC: (1 + square / (2 * alpha)) ** -alpha,
    }
    return forms[kernel]


CASES = (
    (Kernel.SQUARED_EXPONENTIAL, 1),
    (Kernel.MATERN_1_2, 1),
    (Kernel.MATERN_3_2, 3),
    (Kernel.MATERN_5_2, 5),
    (Kernel.RATIONAL_QUADRATIC, 1),
    (Kernel.RATIONAL_QUADRATIC, 4),
    (Kernel.LAPLACE, 1),
    (Kernel.PERIODIC, 1),
)


@pytest.mark.parametrize(("kernel", "degrees"), CASES)
def test_the_covariance_over_draws_is_the_closed_form_of_the_kernel(kernel: Kernel, degrees: int) -> None:
    expected = closed_form(kernel, degrees=degrees, columns=(0, 1, 2))
    assert expected.min() < 0.5
    got = empirical(spectrum_of(kernel, degrees=degrees))
    assert (got - expected).abs().max() < TOLERANCE


def test_the_covariances_tell_the_kernels_apart() -> None:
    """The tolerance above is finer than the difference of any two kernels."""
    forms = [closed_form(kernel, degrees=degrees, columns=(0, 1, 2)) for kernel, degrees in CASES]
    gaps = [(a - b).abs().max() for i, a in enumerate(forms) for b in forms[:i]]
    assert min(gaps) > TOLERANCE


@pytest.mark.parametrize("kernel", [Kernel.SQUARED_EXPONENTIAL, Kernel.MATERN_1_2, Kernel.LAPLACE])
def test_a_sum_over_columns_has_the_mean_of_their_kernels(kernel: Kernel) -> None:
    parts = [closed_form(kernel, degrees=1, columns=(column,)) for column in (0, 1)]
    got = empirical(spectrum_of(kernel, group=(0, 1, 1)))
    assert (got - sum(parts) / 2).abs().max() < TOLERANCE
    assert (got - closed_form(kernel, degrees=1, columns=(0, 1))).abs().max() > 0.1


def test_drawn_spectra_match_their_kernels_and_scale_every_summand_alike() -> None:
    draws = Draws(0)
    place = draws.uniform((3000, 8)).argsort(-1)
    relevant = draws.integers((3000,), low=1, high=8)
    spectrum = draw_spectrum(
        draws, dataclasses.replace(KernelFunctionConfig(), additive_share=1.0), place=place, relevant=relevant
    )
    assert set(spectrum.kernel.tolist()) == set(Kernel)
    for kernel, degrees in ((Kernel.MATERN_1_2, 1), (Kernel.MATERN_3_2, 3), (Kernel.MATERN_5_2, 5)):
        assert (spectrum.degrees[spectrum.kernel == kernel] == degrees).all()
    assert set(spectrum.degrees[spectrum.kernel == Kernel.RATIONAL_QUADRATIC].tolist()) == {1, 2, 3, 4, 5}
    assert torch.equal((spectrum.rate > 0).sum(-1), relevant)
    for task in range(200):
        norms = [
            float(spectrum.rate[task][spectrum.group[task] == g].norm()) for g in spectrum.share[task].nonzero()[:, 0]
        ]
        assert max(norms) == pytest.approx(min(norms), rel=1e-3) and 0.24 < min(norms) < 3.4
    assert {1, 8} <= set((spectrum.share > 0).sum(-1).tolist())


@pytest.mark.parametrize("kernel", Kernel)
def test_a_column_without_a_rate_does_not_matter_and_the_others_do(kernel: Kernel) -> None:
    """The third column of `spectrum_of` has rate 0."""
    frequencies = draw_frequencies(Draws(0), spectrum_of(kernel), waves=16)
    inputs = points().expand(DRAWS, 3, 8)
    before = random_functions(Draws(1), frequencies, inputs=inputs)
    for column in range(3):
        moved = inputs.clone()
        moved[:, column] += 0.3
        gap = (random_functions(Draws(1), frequencies, inputs=moved) - before).square().mean()
        assert gap == 0 if column == 2 else gap > 1e-3


def rest_of_quadratic(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """[B] mean squares that polynomials of degree 2 in x [B, C, R] leave of y [B, R]."""
    x = torch.cat([torch.ones_like(x[:, :1]), x], dim=1).double()
    pairs = (x.unsqueeze(1) * x.unsqueeze(2)).flatten(1, 2).transpose(1, 2)
    y = y.double().unsqueeze(-1)
    fit = pairs @ torch.linalg.lstsq(pairs, y, driver="gelsd").solution
    return (y - fit).square().mean((1, 2))


def test_the_number_of_relevant_columns_is_the_realised_one() -> None:
    """Very smooth functions are quadratic; without an irrelevant column they still are. Constants do not count."""
    config = dataclasses.replace(PLAIN, kernel_weights=(1, 0, 0, 0, 0, 0, 0), roughest=10.0, smoothest=40.0)
    draft = make(config, causes=CauseConfig(independent_share=1.0, duplicate_share=0.0))
    assert {1, 6} <= set(draft.facts["relevant"].tolist())
    x, y = draft.columns.signal, draft.scores[:, 0]
    assert rest_of_quadratic(x, y).max() < 0.01
    rests = [rest_of_quadratic(x[:, [other for other in range(6) if other != column]], y) for column in range(6)]
    found = (torch.stack(rests, dim=1) > 0.02).sum(-1)
    assert (found <= draft.facts["relevant"]).all() and (found == draft.facts["relevant"]).float().mean() > 0.4
    flat = dataclasses.replace(NUMBERS, constant_share=1.0)
    tame = make(PLAIN, columns=flat)
    varied = (tame.columns.signal.std(-1) > 0).sum(-1)
    assert (tame.facts["relevant"] <= varied).all() and (varied < 6).any()


def test_rough_kernels_wiggle_more_than_smooth_ones() -> None:
    roughness = {}
    for kernel in (Kernel.SQUARED_EXPONENTIAL, Kernel.MATERN_3_2, Kernel.MATERN_1_2):
        weights = tuple(float(code == kernel) for code in Kernel)
        draft = make(dataclasses.replace(PLAIN, kernel_weights=weights, smoothest=1.0), features=1, rows=400)
        order = draft.columns.signal.argsort(-1).expand(-1, 3, -1)
        roughness[kernel] = float(draft.scores.gather(2, order).diff(dim=-1).square().mean())
    assert 4 * roughness[Kernel.SQUARED_EXPONENTIAL] < roughness[Kernel.MATERN_1_2]
    assert roughness[Kernel.SQUARED_EXPONENTIAL] < roughness[Kernel.MATERN_3_2] < roughness[Kernel.MATERN_1_2]


def test_a_trend_adds_a_linear_part() -> None:
    shares = {}
    for share in (0.0, 1.0):
        draft = make(dataclasses.replace(PLAIN, trend_share=share, smoothest=0.7))
        x, y = draft.columns.signal.transpose(1, 2), draft.scores[:, 0].unsqueeze(-1)
        fit = x @ torch.linalg.lstsq(x, y, driver="gelsd").solution
        shares[share] = float(fit.square().mean())
        assert torch.equal(draft.facts["linear_part"] > 0, torch.full((40,), share > 0))
    assert shares[1.0] > shares[0.0] + 0.1


def test_warping_makes_the_roughness_uneven() -> None:
    """The most winding tenth of a function takes a larger part of its squared slope."""
    parts = {}
    for share in (0.0, 1.0):
        config = dataclasses.replace(PLAIN, warped_share=share, kernel_weights=(1, 0, 0, 0, 0, 0, 0), roughest=1.0)
        draft = make(config, features=1, rows=600, count=64)
        order = draft.columns.signal.argsort(-1)
        grid = draft.columns.signal.gather(2, order)[:, 0]
        slope = draft.scores[:, 0].gather(1, order[:, 0]).diff(dim=-1) / grid.diff(dim=-1).clamp(min=1e-3)
        energy = slope.square()[:, 30:-30].sort(-1).values
        parts[share] = float((energy[:, -54:].sum(-1) / energy.sum(-1)).mean())
        assert draft.facts["warped"].float().mean() == share
    assert parts[1.0] > parts[0.0] + 0.1


@pytest.mark.parametrize(("count", "rows", "features"), [(1, 16, 1), (3, 16, 100), (5, 300, 2)])
def test_every_shape_gives_finite_standardised_scores(count: int, rows: int, features: int) -> None:
    for seed in range(8):
        draft = make(KernelFunctionConfig(), seed=seed, count=count, rows=rows, features=features)
        assert draft.columns.values.shape == (count, features, rows) and draft.scores.shape == (count, 3, rows)
        assert draft.scores.isfinite().all() and draft.scores.mean(-1).abs().max() < 1e-4
        assert (draft.scores.square().mean(-1) - 1).abs().max() < 1e-2
        assert (draft.classes == -1).all() and (draft.loudness == 1).all()
        assert ((draft.facts["relevant"] >= 0) & (draft.facts["relevant"] <= features)).all()
        assert all(len(values) == count and values.isfinite().all() for values in draft.facts.values())


def test_equal_seeds_give_equal_tasks() -> None:
    first, second, other = (make(KernelFunctionConfig(), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.scores, second.scores) and not torch.equal(first.scores, other.scores)
    assert all(torch.equal(first.facts[name], second.facts[name]) for name in first.facts)


def test_most_functions_can_be_learned_from_rows_and_shuffled_ones_cannot() -> None:
    draft = make(KernelFunctionConfig())
    x, y = draft.columns.values.transpose(1, 2).numpy(), draft.scores[:, 0].numpy()
    explained = {"real": [], "shuffled": []}
    mixed = np.random.default_rng(0).permuted(y, axis=1)
    for task in range(len(y)):
        for name, target in (("real", y[task]), ("shuffled", mixed[task])):
            guess = ExtraTreesRegressor(20, random_state=0).fit(x[task, :150], target[:150]).predict(x[task, 150:])
            explained[name].append(1 - np.mean((guess - target[150:]) ** 2) / np.var(target[150:]))
    assert np.mean(np.array(explained["real"]) > 0.2) > 0.8
    assert np.mean(np.array(explained["shuffled"]) > 0.2) < 0.1
