"""Bayes predictors of the families with a known posterior: no predictor has a smaller expected NLL on them (5.I).

Each knows the family's configuration and one table's `Evidence`, never what was drawn for the table, and averages over
all that was: weights and functions in closed form, grids, key columns and trees by enumeration.

Shapes: N context rows, M query rows, C features, K classes, G settings of a grid.
"""

import dataclasses
import math
from typing import Protocol

import numpy as np
import torch

from eval.normal_mixture import NormalMixture
from eval.scores import TAUS, Forecast
from priors.dirichlet_table import DirichletTableConfig, cells_of, key_sets
from priors.exact import ExactConfig, ExactFamily
from priors.gaussian_process import GaussianProcessConfig, squared_exponential
from priors.linear_gaussian import LinearGaussianConfig
from priors.small_tree import SmallTreeConfig, cuts_of
from priors.task import Evidence, TaskKind
from tools.failure import BadInput, ExitCode

NAME = "bayes"


class BayesPredictor(Protocol):
    """A predictor, as `eval.baselines.Predictor`, that also states the density of answers."""

    @property
    def name(self) -> str:
        """`bayes`."""

    def classify(self, evidence: Evidence) -> np.ndarray:
        """[M, K] posterior predictive probabilities, also for classes that the context lacks."""

    def forecast(self, evidence: Evidence) -> Forecast:
        """Mean and quantiles of the posterior predictive."""

    def log_density(self, evidence: Evidence, answers: np.ndarray) -> np.ndarray:
        """[M] log p(answer | context, query row), each query row by itself, in nats (per unit of y in regression)."""


def bayes_predictor(config: ExactConfig, family: ExactFamily) -> BayesPredictor:
    """The Bayes predictor of one family."""
    match family:
        case ExactFamily.LINEAR_GAUSSIAN:
            return BayesLinear(config=config.linear_gaussian)
        case ExactFamily.GAUSSIAN_PROCESS:
            return BayesProcess(config=config.gaussian_process)
        case ExactFamily.DIRICHLET_TABLE:
            return BayesTable(config=config.dirichlet_table)
    return BayesTree(config=config.small_tree)


class BayesRegression:
    """What both regression families share."""

    name = NAME

    def posterior(self, evidence: Evidence) -> NormalMixture:
        """The posterior predictive of every query row."""
        raise NotImplementedError

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Refuses."""
        raise _wrong_kind(evidence)

    def forecast(self, evidence: Evidence) -> Forecast:
        """Mean and quantiles of `posterior`."""
        found = self.posterior(evidence)
        return Forecast(mean=found.mean(), quantiles=found.quantiles(TAUS))

    def log_density(self, evidence: Evidence, answers: np.ndarray) -> np.ndarray:
        """Of `posterior` at the answers."""
        return self.posterior(evidence).log_density(answers.astype(np.float64))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesLinear(BayesRegression):
    """Linear regression: a Gaussian process with the kernel offset² + weight²·x·x′/C, averaged over the noises."""

    config: LinearGaussianConfig

    def posterior(self, evidence: Evidence) -> NormalMixture:
        """Exact: the grid of noises is finite, and given the noise all is Gaussian (Bishop 2006, 3.58 and 6.62)."""
        context, query = _checked(evidence, TaskKind.REGRESSION)
        slope, constant = self.config.weight**2 / context.shape[1], self.config.offset**2
        return process_posterior(
            within=(constant + slope * context @ context.T)[None],
            across=(constant + slope * query @ context.T)[None],
            own=(constant + slope * (query**2).sum(1))[None],
            noises=np.array(self.config.noises),
            y=evidence.y_context.astype(np.float64),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesProcess(BayesRegression):
    """Gaussian-process regression averaged over the grid of length scales and noises."""

    config: GaussianProcessConfig

    def posterior(self, evidence: Evidence) -> NormalMixture:
        """Exact: the grid is finite, and given its point all is Gaussian."""
        context, query = _checked(evidence, TaskKind.REGRESSION)
        power, scales = self.config.amplitude**2, self.config.length_scales
        return process_posterior(
            within=np.stack([power * squared_exponential(context, context, length_scale=s) for s in scales]),
            across=np.stack([power * squared_exponential(query, context, length_scale=s) for s in scales]),
            own=np.full((len(scales), len(query)), power),
            noises=np.array(self.config.noises),
            y=evidence.y_context.astype(np.float64),
        )


def process_posterior(
    *, within: np.ndarray, across: np.ndarray, own: np.ndarray, noises: np.ndarray, y: np.ndarray
) -> NormalMixture:
    """Predictive of noisy targets under a Gaussian process, averaged over kernels × noises that are equally likely.

    Rasmussen & Williams 2006, algorithm 2.1 for each of the H·S settings; weights are their marginal likelihoods.

    Args:
        within: [H, N, N] kernels of the context rows.
        across: [H, M, N] of query and context rows.
        own: [H, M] variance of each query row's function value.
        noises: [S] standard deviations.
        y: [N] context targets.
    """
    count, rows = len(within), len(y)
    variance = torch.from_numpy(np.tile(noises.astype(np.float64) ** 2, count))
    kernel, cross, variances = (torch.from_numpy(a).repeat_interleave(len(noises), 0) for a in (within, across, own))
    factor = torch.linalg.cholesky(kernel + variance[:, None, None] * torch.eye(rows, dtype=torch.float64))
    sides = torch.cat([torch.from_numpy(y).expand(len(kernel), 1, rows), cross], dim=1).mT
    solved = torch.linalg.solve_triangular(factor, sides, upper=False)
    residual, spread = solved[..., :1], solved[..., 1:]
    evidence = -0.5 * residual.square().sum((1, 2)) - factor.diagonal(dim1=1, dim2=2).log().sum(1)
    deviations = (variances - spread.square().sum(1)).clamp_min(0) + variance[:, None]
    return NormalMixture(
        weights=torch.softmax(evidence, 0).numpy(),
        means=(spread.mT @ residual)[..., 0].numpy(),
        deviations=deviations.sqrt().numpy(),
    )


class BayesClassification:
    """What both classification families share."""

    name = NAME

    def classify(self, evidence: Evidence) -> np.ndarray:
        """[M, K] posterior predictive."""
        raise NotImplementedError

    def forecast(self, evidence: Evidence) -> Forecast:
        """Refuses."""
        raise _wrong_kind(evidence)

    def log_density(self, evidence: Evidence, answers: np.ndarray) -> np.ndarray:
        """log p of each answer."""
        return np.log(np.take_along_axis(self.classify(evidence), answers.astype(np.int64)[:, None], axis=1)[:, 0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesTable(BayesClassification):
    """Lookup tables: an average over key columns and concentrations; within one of them, counts plus pseudo-counts."""

    config: DirichletTableConfig

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Exact: every choice of keys × concentrations, weighted by prior × Dirichlet-multinomial likelihood."""
        context, query = _checked(evidence, TaskKind.CLASSIFICATION)
        _check_levels(evidence, most=self.config.max_levels)
        classes, width = evidence.num_classes, self.config.max_levels
        logs, answers = [], []
        for keys, prior in key_sets(self.config, features=context.shape[1]):
            cells = width ** len(keys)
            counts = _class_counts(
                cells_of(context, keys, max_levels=width), evidence.y_context, cells=cells, classes=classes
            )
            asked = counts[cells_of(query, keys, max_levels=width)]
            for concentration in self.config.concentrations:
                logs.append(math.log(prior) + log_marginal(counts, concentration=concentration).sum())
                answers.append(leaf_probabilities(asked, concentration=concentration))
        return np.tensordot(_softmax(np.array(logs)), np.stack(answers), axes=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesTree(BayesClassification):
    """Decision trees: an average over every tree, summed child by child since leaves are independent."""

    config: SmallTreeConfig

    def classify(self, evidence: Evidence) -> np.ndarray:
        """Exact. A and B number the sides "below" and "not below" of the S cuts: 2S halves, and their intersections.

        A child that is the half a contributes Z(a) = (1 − q)·m(a) + q/S · Σ_cuts m(a∩b)·m(a∩b̄), m being the marginal
        likelihood of a leaf's labels; a tree's root (1 − p)·m(all) + p/S · Σ_cuts Z(a)·Z(ā). The predictive multiplies
        every term by the probabilities of the leaf that the query row falls into.
        """
        context, query = _checked(evidence, TaskKind.CLASSIFICATION)
        _check_levels(evidence, most=self.config.max_levels)
        halves, asked = (_halves(rows, cuts_of(evidence.level_counts)) for rows in (context, query))  # [2S, N], [2S, M]
        labels = np.eye(evidence.num_classes)[evidence.y_context.astype(np.int64)]
        quarters = (halves[:, None] * halves[None]).reshape(-1, len(context)) @ labels
        quarters = quarters.reshape(len(halves), len(halves), -1)  # [2S, 2S, K] class counts of intersections
        alpha, root, child = self.config.concentration, self.config.root_share, self.config.child_share
        number = len(halves) // 2
        other = np.roll(np.arange(len(halves)), number)  # the other side of the same cut
        whole = labels.sum(0)
        log_half = log_marginal(halves @ labels, concentration=alpha)
        log_quarter = log_marginal(quarters, concentration=alpha)
        stop = _log(1 - child) + log_half  # [2S]
        go = _log(child) - math.log(number) + log_quarter + log_quarter[:, other]  # [2S, 2S], each cut twice
        log_child = np.logaddexp(stop, np.logaddexp.reduce(go[:, :number], axis=1))
        log_root = _log(root) - math.log(number) + log_child[other]  # weight of the rest of the tree around half a
        only = _log(1 - root) + log_marginal(whole, concentration=alpha)
        total = np.logaddexp(only, np.logaddexp.reduce((log_root + log_child)[:number]))
        weight_stop, weight_go = np.exp(log_root + stop - total), np.exp(log_root[:, None] + go - total)
        by_half = weight_stop[:, None] * leaf_probabilities(halves @ labels, concentration=alpha)
        by_quarter = weight_go[..., None] * leaf_probabilities(quarters, concentration=alpha)
        found = np.exp(only - total) * leaf_probabilities(whole, concentration=alpha) + asked.T @ by_half
        deep = np.tensordot(asked.T, by_quarter, axes=1)  # [M, 2S, K]: the root's half is the query's
        return found + np.einsum("mbk,bm->mk", deep, asked)


def log_marginal(counts: np.ndarray, *, concentration: float) -> np.ndarray:
    """[...] log probability of one sequence of labels with class counts [..., K] under a symmetric Dirichlet.

    Γ(Kα)/Γ(n + Kα) · Π_k Γ(n_k + α)/Γ(α), as sums of logarithms since counts are whole numbers.
    """
    whole, classes = counts.astype(np.int64), counts.shape[-1]
    most = int(whole.sum(-1).max(initial=0))
    own, all_classes = _rising(concentration, most), _rising(classes * concentration, most)
    return own[whole].sum(-1) - all_classes[whole.sum(-1)]


def leaf_probabilities(counts: np.ndarray, *, concentration: float) -> np.ndarray:
    """[..., K] posterior predictive of a cell or leaf with class counts [..., K]: (n_k + α)/(n + Kα)."""
    return (counts + concentration) / (counts.sum(-1, keepdims=True) + counts.shape[-1] * concentration)


def _rising(start: float, most: int) -> np.ndarray:
    """[most + 1] Σ_{i<n} log(start + i) = log Γ(start + n) − log Γ(start)."""
    return np.concatenate([[0.0], np.log(start + np.arange(most)).cumsum()])


def _class_counts(cell: np.ndarray, labels: np.ndarray, *, cells: int, classes: int) -> np.ndarray:
    """[cells, K] how often each class is in each cell."""
    flat = cell * classes + labels.astype(np.int64)
    return np.bincount(flat, minlength=cells * classes).reshape(cells, classes)


def _halves(rows: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """[2S, rows] 1.0 where a row is below cut s (first S), or not (last S)."""
    above = rows[:, cuts[:, 0]].T >= cuts[:, 1:]
    return np.concatenate([~above, above]).astype(np.float64)


def _softmax(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf


def _checked(evidence: Evidence, kind: TaskKind) -> tuple[np.ndarray, np.ndarray]:
    """Context [N, C] and query [M, C] in fp64."""
    if evidence.kind is not kind:
        raise _wrong_kind(evidence)
    context, query = evidence.x_context.astype(np.float64), evidence.x_query.astype(np.float64)
    if not (np.isfinite(context).all() and np.isfinite(query).all()):
        raise BadInput(ExitCode.CONFIG_MISMATCH, "x has a missing or infinite cell, the family has none: drop its row")
    return context, query


def _check_levels(evidence: Evidence, *, most: int) -> None:
    levels = int(evidence.level_counts.max(initial=0))
    codes = np.concatenate([evidence.x_context, evidence.x_query])
    if levels > most or int(evidence.level_counts.min(initial=2)) < 2:
        found = evidence.level_counts.tolist()
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"level_counts are {found}, the family has 2 to {most}: merge levels")
    if (codes < 0).any() or (codes >= evidence.level_counts).any():
        worst = codes.max()
        raise BadInput(ExitCode.CONFIG_MISMATCH, f"x has a code of {worst:g}: give codes from 0 to level_counts − 1")


def _wrong_kind(evidence: Evidence) -> BadInput:
    found = f"the evidence is for {evidence.kind} and the family is not: take the predictor of a {evidence.kind} family"
    return BadInput(ExitCode.CONFIG_MISMATCH, found)
