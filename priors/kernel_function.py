"""Functions from Gaussian processes with many kernels: responses that vary without a formula, smoothly or roughly.

Stands for what is measured over settings, places and times and has no simple law: yields over process settings, dose
and response, temperature, demand over the day and the season, terrain. The kernel says how alike the targets of alike
rows are: very smooth (squared exponential), broken like a price path (Matérn 1/2), smooth in patches of many sizes
(rational quadratic), with kinks along the columns (Laplace), recurrent (periodic), sums of effects of single columns
or small groups (additive), on top of a trend (linear), or rough in one region and smooth elsewhere (warped). Columns
differ in length scale, and some do not matter.

A function is a sum of cosines whose frequencies are drawn from the kernel's own spectrum (random Fourier features,
Rahimi & Recht 2007, algorithm 1), so that over draws its covariance is the kernel, for any number of cosines:

- Matérn ν: multivariate Student's t with 2ν degrees (Rasmussen & Williams 2006, eq. 4.15);
- rational quadratic α: normal with a Gamma(α, α) precision factor (the same, eq. 4.20);
- Laplace exp(−Σ|δ|): Cauchy in each column (Rahimi & Recht 2007, figure 1);
- periodic exp(−2 sin²(πδ/p)/ℓ²): 2π/p times the difference of two Poisson counts of mean 1/(2ℓ²), whose
  characteristic function it is.
"""

import dataclasses
import enum
import math

import torch

from priors.causes import draw_causes
from priors.columns import draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws, below, standardised

_NUM_SCORES = 3
_MOST_DEGREES = 5
_RECURRENT = 2  # most periodic columns of a task
_STEEPEST = 1e-3  # smallest divisor of a heavy-tailed frequency: higher ones would be noise of rounding


class Kernel(enum.IntEnum):
    """The stationary kernel of a task."""

    SQUARED_EXPONENTIAL = 0
    MATERN_1_2 = 1
    MATERN_3_2 = 2
    MATERN_5_2 = 3
    RATIONAL_QUADRATIC = 4
    LAPLACE = 5
    PERIODIC = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelFunctionConfig:
    """Functions from Gaussian processes."""

    kernel_weights: tuple[float, float, float, float, float, float, float] = (3.0, 1.0, 1.5, 1.5, 1.5, 1.0, 1.0)
    """How often squared exponential, Matérn 1/2, 3/2 and 5/2, rational quadratic, Laplace and periodic are drawn."""
    waves: int = 160
    """Cosines of a function."""
    roughest: float = 0.3
    """Shortest length scale of a function of one column, in units of its spread; with d columns √d times it."""
    smoothest: float = 4.0
    """Longest length scale."""
    all_relevant_share: float = 0.4
    """Share of tasks in which all columns matter (elsewhere small numbers are common)."""
    additive_share: float = 0.35
    """Share of tasks whose function is a sum over columns or small groups of columns."""
    trend_share: float = 0.3
    """Share of tasks that add a linear trend."""
    warped_share: float = 0.2
    """Share of tasks that are rough in one region of each column and smooth elsewhere."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spectrum:
    """What the frequencies of B tasks are drawn from.

    Args:
        kernel: [B] int64 of `Kernel`.
        degrees: [B] int64; 2ν of a Matérn kernel, 2α of a rational quadratic one; 1 to 5.
        rate: [B, C] 1/length scale of each column, 0 where it does not matter.
        group: [B, C] int64, the summand that a column belongs to.
        share: [B, G] ≥ 0, the summands' variances in proportion; the sum of a row is above 0.
        recurrent: [B, 2] int64, the periodic columns of a periodic task (equal where it has one).
        period: [B] of those columns.
        harmony: [B] ℓ of those columns.
    """

    kernel: torch.Tensor
    degrees: torch.Tensor
    rate: torch.Tensor
    group: torch.Tensor
    share: torch.Tensor
    recurrent: torch.Tensor
    period: torch.Tensor
    harmony: torch.Tensor


def sample_kernel_function(draws: Draws, config: KernelFunctionConfig, *, request: TableRequest) -> Draft:
    """Draws `request.count` tasks whose scores are independent functions from the task's Gaussian process."""
    count, features = request.count, request.features
    raw = draw_causes(draws, request.causes, count=count, causes=features, rows=request.rows)
    table = draw_columns(draws, raw, config=request.columns)
    relevant = draws.counts((count,), low=1, high=features)
    relevant = torch.where(draws.happens((count,), share=config.all_relevant_share), features, relevant)
    place = draws.uniform((count, features)).argsort(-1).argsort(-1)
    spectrum = draw_spectrum(draws, config, place=place, relevant=relevant)
    inputs, warped = _warped(draws, table.signal, share=config.warped_share)
    frequencies = draw_frequencies(draws, spectrum, waves=config.waves)
    functions = random_functions(draws, frequencies, inputs=inputs)
    weights = draws.normal((count, _NUM_SCORES, features)) * spectrum.rate.unsqueeze(1)
    trend = draws.uniform((count, 1, 1), low=0.2, high=0.8) * draws.happens((count, 1, 1), share=config.trend_share)
    scores = trend * standardised(weights @ table.signal) + (1 - trend) * standardised(functions)
    read = (frequencies != 0).any(1) | ((spectrum.rate > 0) & (trend.flatten(1) > 0))
    varied = table.signal.amax(-1) > 0
    return Draft(
        columns=table,
        scores=standardised(scores),
        classes=draws.full((count, request.rows), -1, dtype=torch.int64),
        loudness=draws.full((count,), 1.0),
        facts={
            "relevant": (read & varied).sum(-1),
            "kernel": spectrum.kernel,
            "summands": (spectrum.share > 0).sum(-1),
            "length_scale": spectrum.rate.square().sum(-1).rsqrt() * (spectrum.share > 0).sum(-1).sqrt(),
            "linear_part": trend.flatten(),
            "warped": warped,
        },
    )


def draw_spectrum(
    draws: Draws, config: KernelFunctionConfig, *, place: torch.Tensor, relevant: torch.Tensor
) -> Spectrum:
    """Draws kernels, length scales and summands.

    Args:
        draws: the random source.
        config: shares and limits.
        place: [B, C] int64, a permutation of 0 … C − 1 per task; the columns at the first places matter.
        relevant: [B] how many of them matter.
    """
    count, features = place.shape
    kernel = draws.choice((count,), weights=config.kernel_weights)
    drawn = draws.integers((count,), low=1, high=_MOST_DEGREES)
    degrees = torch.where(kernel == Kernel.RATIONAL_QUADRATIC, drawn, (2 * kernel - 1).clamp(1, _MOST_DEGREES))
    additive = draws.happens((count,), share=config.additive_share)
    summands = torch.where(
        draws.happens((count,), share=0.6), relevant, draws.counts((count,), low=1, high=relevant)
    ).where(additive, 1)
    group = place % summands.unsqueeze(-1)
    chosen = place < relevant.unsqueeze(-1)
    uneven = draws.normal((count, features)) * draws.uniform((count, 1), high=1.2)
    importance = uneven.exp() * chosen
    total = torch.zeros_like(importance).scatter_add_(1, group, importance.square())
    size = relevant / summands
    low = (config.roughest * size.sqrt().clamp(max=5.0)).clamp(max=config.smoothest / 2)
    scale = low * (config.smoothest / low) ** draws.uniform((count,))
    rate = importance / total.gather(1, group).clamp(min=1e-12).sqrt() / scale.unsqueeze(-1)
    share = draws.normal((count, features)).mul(0.7).exp() * below(summands, size=features)
    first, second = place.argsort(-1)[:, [0, min(1, features - 1)]].unbind(-1)
    two = draws.happens((count,), share=0.4) & (relevant > 1)
    return Spectrum(
        kernel=kernel,
        degrees=degrees,
        rate=rate,
        group=group,
        share=share,
        recurrent=torch.stack([first, torch.where(two, second, first)], dim=-1),
        period=draws.log_uniform((count,), low=0.7, high=4.0),
        harmony=draws.log_uniform((count,), low=0.5, high=2.0),
    )


def draw_frequencies(draws: Draws, spectrum: Spectrum, *, waves: int) -> torch.Tensor:
    """[B, F, C] independent draws from each task's spectral density."""
    count, features = spectrum.rate.shape
    squares = draws.normal((count, waves, _MOST_DEGREES)).square()
    degrees = spectrum.degrees.view(-1, 1)
    mean_square = (squares * below(spectrum.degrees, size=_MOST_DEGREES).unsqueeze(1)).sum(-1) / degrees
    kernel = spectrum.kernel.view(-1, 1)
    matern = (kernel >= Kernel.MATERN_1_2) & (kernel <= Kernel.MATERN_5_2)
    stretch = torch.where(matern, mean_square.sqrt().clamp(min=_STEEPEST).reciprocal(), 1.0)
    stretch = torch.where(kernel == Kernel.RATIONAL_QUADRATIC, mean_square.sqrt(), stretch)
    frequencies = draws.normal((count, waves, features)) * stretch.unsqueeze(-1) * spectrum.rate.unsqueeze(1)
    laplace = (spectrum.kernel == Kernel.LAPLACE).nonzero().squeeze(-1)
    if len(laplace):
        frequencies[laplace] /= draws.normal((len(laplace), waves, features)).abs().clamp(min=_STEEPEST)
    periodic = (spectrum.kernel == Kernel.PERIODIC).nonzero().squeeze(-1)
    if len(periodic):
        harmonics = _harmonics(draws, spectrum, tasks=periodic, waves=waves)
        columns = spectrum.recurrent[periodic].unsqueeze(1).expand_as(harmonics)
        frequencies[periodic] = frequencies[periodic].scatter(2, columns, harmonics)
    summand = draws.multinomial(spectrum.share, waves)
    return frequencies * (summand.unsqueeze(-1) == spectrum.group.unsqueeze(1))


def _harmonics(draws: Draws, spectrum: Spectrum, *, tasks: torch.Tensor, waves: int) -> torch.Tensor:
    """[n, F, 2] frequencies of the periodic columns of the n tasks at indices `tasks`."""
    mean = 0.5 / spectrum.harmony[tasks].square()
    shape = (2, len(tasks), waves, _RECURRENT)
    up, down = torch.poisson(mean.view(-1, 1, 1).expand(shape), generator=draws.generator)
    harmonics = (up - down) * (2 * math.pi / spectrum.period[tasks]).view(-1, 1, 1)
    one = spectrum.recurrent[tasks, :1] == spectrum.recurrent[tasks, 1:]
    return torch.where(one.unsqueeze(1), harmonics[..., :1], harmonics)


def random_functions(draws: Draws, frequencies: torch.Tensor, *, inputs: torch.Tensor) -> torch.Tensor:
    """[B, 3, R] independent functions, of variance 1 over draws, at inputs [B, C, R] (Rahimi & Recht 2007)."""
    count, waves, _ = frequencies.shape
    phases = draws.uniform((count, waves, 1), high=2 * math.pi)
    cosines = torch.baddbmm(phases, frequencies, inputs).cos_()
    return (draws.normal((count, _NUM_SCORES, waves)) * math.sqrt(2 / waves)) @ cosines


def _warped(draws: Draws, inputs: torch.Tensor, *, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Stretches a region of each column in some tasks: the inputs [B, C, R], and which tasks, [B] bool."""
    count, features, _ = inputs.shape
    warped = draws.happens((count,), share=share)
    tasks = warped.nonzero().squeeze(-1)
    if not len(tasks):
        return inputs, warped
    centre = draws.normal((len(tasks), features, 1))
    width = draws.log_uniform((len(tasks), features, 1), low=0.2, high=1.0)
    reach = draws.uniform((len(tasks), features, 1), low=1.0, high=3.0)
    stretched = inputs.clone()
    stretched[tasks] += reach * torch.erf((inputs[tasks] - centre) / width)
    return stretched, warped
