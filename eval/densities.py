"""Log densities of answers: what regret is counted in. Networks, baselines and Bayes predictors behind one call.

A class that the context lacks can be answered by no network (its probability is 0 by construction). Rows with such an
answer are left out for every model, and every model's probabilities are those given that the class is among the
context's: p_k / Σ_present p. So conditioned, the Bayes predictor stays the best there is.

Shapes: T tasks, N context rows, M query rows, K classes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from eval import baselines
from eval.bayes import NAME, bayes_predictor
from eval.records import network_inputs
from eval.scores import NLL_FLOOR
from model.bar_distribution import BarDistribution
from model.class_distribution import ClassLogProbabilities
from model.network import Network
from priors.exact import ExactConfig, ExactFamily
from priors.task import Episode, Evidence, TaskKind, collate

_LOW, _HIGH = 4, 94  # positions of .05 and .95 in TAUS
_NORMAL_95 = 1.6448536269514722


class DensityModel(Protocol):
    """What has a log density."""

    @property
    def name(self) -> str:
        """As it appears in results."""

    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray] | None:
        """Of each query row's answer, given its context and itself: [M] nats per episode.

        In regression per unit of the target; in classification given that the class is among the context's (and
        meaningless where it is not). None if the model states no density.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkDensity:
    """A network, one pass with the columns as they come; episodes of one shape go through it together.

    Args:
        name: as in results.
        network: in evaluation mode.
    """

    name: str
    network: Network

    @torch.no_grad()
    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray] | None:
        """From the network's class probabilities, or its predictive density."""
        device, batch = next(self.network.parameters()).device, collate(list(episodes))
        prediction = self.network(network_inputs(batch, device))
        if isinstance(prediction, ClassLogProbabilities):
            found = prediction.probabilities().double().cpu().numpy()
            return [log_shares(p[: len(e.answers())], e) for p, e in zip(found, episodes, strict=True)]
        if not isinstance(prediction, BarDistribution):
            return None  # a point, or quantiles without a density between them
        logs = prediction.log_density(torch.from_numpy(batch.y_query).to(device)).double().cpu().numpy()
        return [row[: len(episode.answers())] for row, episode in zip(logs, episodes, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesDensity:
    """The exact posterior predictive of one family."""

    config: ExactConfig
    family: ExactFamily
    name: str = NAME

    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray]:
        """Without a floor."""
        predictor = bayes_predictor(self.config, self.family)
        if episodes[0].task.kind is TaskKind.CLASSIFICATION:
            return [log_shares(predictor.classify(e.evidence()), e, floor=0.0) for e in episodes]
        return [predictor.log_density(episode.evidence(), episode.answers()) for episode in episodes]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MajorityDensity:
    """Class frequencies; Student's t around the context's mean, the posterior predictive of a normal sample.

    Under the prior 1/σ² on mean and variance: n − 1 degrees, scale s·√(1 + 1/n) (Gelman et al. 2013, section 3.2).
    """

    name: str = "majority"

    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray]:
        """The same distribution for every query row of a task."""
        if episodes[0].task.kind is TaskKind.CLASSIFICATION:
            return [log_shares(baselines.Majority().classify(e.evidence()), e) for e in episodes]
        return [_log_mean_student(episode.evidence(), episode.answers()) for episode in episodes]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearDensity:
    """Logistic regression; ridge regression whose errors are Student's t (`eval.baselines.Linear` has Gaussian ones).

    The scale is the root mean square of leave-one-out errors, as there; N − 1 degrees for what few rows know of it.
    """

    name: str = "linear"

    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray]:
        """Of the baseline's probabilities, or around its predictions."""
        if episodes[0].task.kind is TaskKind.CLASSIFICATION:
            return [log_shares(baselines.Linear().classify(e.evidence()), e) for e in episodes]
        return [_log_ridge_student(episode.evidence(), episode.answers()) for episode in episodes]


def log_shares(probabilities: np.ndarray, episode: Episode, *, floor: float = NLL_FLOOR) -> np.ndarray:
    """[M] log of p(answer) / Σ p over the classes that the context holds.

    Args:
        probabilities: [M, K or more].
        episode: where the answers are; rows whose class the context lacks get a number without meaning.
        floor: probabilities below it count as it, as in every NLL that we report.
    """
    present = np.unique(episode.evidence().y_context).astype(np.int64)
    kept = np.maximum(probabilities[:, present], floor)
    slot = np.searchsorted(present, episode.answers().astype(np.int64)).clip(max=len(present) - 1)
    return np.log(np.take_along_axis(kept, slot[:, None], axis=1)[:, 0]) - np.log(kept.sum(axis=1))


def answerable(episode: Episode) -> np.ndarray:
    """[M] bool, which query rows count: in classification those whose class the context holds."""
    if episode.task.kind is TaskKind.REGRESSION:
        return np.ones(len(episode.answers()), bool)
    return np.isin(episode.answers(), episode.evidence().y_context)


def _log_mean_student(evidence: Evidence, answers: np.ndarray) -> np.ndarray:
    y = evidence.y_context.astype(np.float64)
    scale = y.std(ddof=1) * math.sqrt(1 + 1 / len(y))
    return log_student(answers, location=y.mean(), scale=scale, degrees=len(y) - 1)


def _log_ridge_student(evidence: Evidence, answers: np.ndarray) -> np.ndarray:
    forecast = baselines.Linear().forecast(evidence)
    scale = (forecast.quantiles[:, _HIGH] - forecast.quantiles[:, _LOW]) / (2 * _NORMAL_95)
    return log_student(answers, location=forecast.mean, scale=scale, degrees=len(evidence.y_context) - 1)


def log_student(y: np.ndarray, *, location: np.ndarray | float, scale: np.ndarray | float, degrees: int) -> np.ndarray:
    """[M] log density of Student's t at y [M]."""
    constant = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    z = (y.astype(np.float64) - location) / scale
    return constant - np.log(scale) - (degrees + 1) / 2 * np.log1p(z**2 / degrees)
