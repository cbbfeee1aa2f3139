"""5.I: on tasks that the sampler draws, Bayes predictors are calibrated and nobody beats them."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from eval.bayes import BayesRegression, bayes_predictor
from eval.densities import BayesDensity, DensityModel, LinearDensity, MajorityDensity, log_shares
from eval.regret import RegretConfig, episode_of, mean_losses, task_groups
from priors.exact import FAMILIES_OF_KIND, ExactConfig, ExactFamily, sample_exact_group
from priors.task import Episode, TaskKind

CONFIG = ExactConfig()
EVERY = list(ExactFamily)
REGRESSION, CLASSIFICATION = (FAMILIES_OF_KIND[kind] for kind in (TaskKind.REGRESSION, TaskKind.CLASSIFICATION))


def _episodes(family: ExactFamily, *, count: int, context: int = 12, queries: int = 1, seed: int = 0) -> list[Episode]:
    shape = {"rows": context + queries, "features": 2, "count": count}
    group = sample_exact_group(CONFIG, family, seed=seed, **shape)
    return [Episode(task=task, num_context=context) for task in group.tasks()]


def _distance_from_uniform(ranks: Sequence[float]) -> float:
    """Kolmogorov's √n·D; above 1.95 with probability 0.001 (Kolmogorov 1933)."""
    ordered, n = np.sort(ranks), len(ranks)
    above = (np.arange(1, n + 1) / n - ordered).max()
    below = (ordered - np.arange(n) / n).max()
    return float(np.sqrt(n) * max(above, below))


def _ranks(family: ExactFamily, *, stretch: float = 1.0) -> list[float]:
    """P(Y ≤ answer) of one query row of each of 600 tasks; `stretch` spoils the posterior's deviations."""
    predictor, ranks = bayes_predictor(CONFIG, family), []
    assert isinstance(predictor, BayesRegression)
    for episode in _episodes(family, count=600):
        found = predictor.posterior(episode.evidence())
        spoilt = dataclasses.replace(found, deviations=found.deviations * stretch)
        ranks.append(float(spoilt.cdf(episode.answers().astype(np.float64)[:, None])[0, 0]))
    return ranks


@pytest.mark.parametrize("family", REGRESSION)
def test_answers_fall_evenly_into_their_predictive_distribution(family: ExactFamily) -> None:
    """5.I: the probability integral transform is uniform (Dawid 1984), and a posterior a third too wide is not."""
    assert _distance_from_uniform(_ranks(family)) < 1.95
    assert _distance_from_uniform(_ranks(family, stretch=1.35)) > 1.95


@pytest.mark.parametrize("family", CLASSIFICATION)
def test_predicted_shares_come_true(family: ExactFamily) -> None:
    """5.I: rank spread evenly within its step of the cdf over classes; too certain a posterior fails."""
    generator = np.random.default_rng(0)
    ranks: dict[float, list[float]] = {1.0: [], 2.0: []}
    for episode in _episodes(family, count=1500):
        p = bayes_predictor(CONFIG, family).classify(episode.evidence())[0]
        answer, spot = int(episode.answers()[0]), generator.uniform()
        for power, out in ranks.items():
            sharper = p**power / (p**power).sum()
            order = np.argsort(-sharper, kind="stable")  # likeliest class first: certainty shows
            place = int(np.flatnonzero(order == answer)[0])
            out.append(float(sharper[order[:place]].sum() + spot * sharper[answer]))
    assert _distance_from_uniform(ranks[1.0]) < 1.95 < _distance_from_uniform(ranks[2.0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tempered:
    """Bayes, with every probability raised to a power, or every deviation stretched."""

    family: ExactFamily
    power: float
    name: str = "tempered"

    def log_densities(self, episodes: Sequence[Episode]) -> list[np.ndarray]:
        predictor, out = bayes_predictor(CONFIG, self.family), []
        for episode in episodes:
            if isinstance(predictor, BayesRegression):
                found = predictor.posterior(episode.evidence())
                spoilt = dataclasses.replace(found, deviations=found.deviations * self.power)
                out.append(spoilt.log_density(episode.answers().astype(np.float64)))
            else:
                out.append(log_shares(predictor.classify(episode.evidence()) ** self.power, episode))
        return out


def _misinformed() -> ExactConfig:
    return dataclasses.replace(
        CONFIG,
        linear_gaussian=dataclasses.replace(CONFIG.linear_gaussian, noises=(0.6,)),
        gaussian_process=dataclasses.replace(CONFIG.gaussian_process, length_scales=(3.0,)),
        dirichlet_table=dataclasses.replace(CONFIG.dirichlet_table, concentrations=(8.0,)),
        small_tree=dataclasses.replace(CONFIG.small_tree, concentration=3.0),
    )


def _rivals(family: ExactFamily) -> Iterator[DensityModel]:
    yield MajorityDensity()
    yield LinearDensity()
    yield BayesDensity(config=_misinformed(), family=family)
    yield from (_Tempered(family=family, power=power) for power in (0.75, 1.35))


@pytest.mark.parametrize("family", EVERY)
def test_nobody_has_a_smaller_nll_than_bayes(family: ExactFamily) -> None:
    """5.I: not the baselines, not the exact posterior of a wrong prior, not a sharper or flatter posterior."""
    episodes = _episodes(family, count=250, context=16, queries=16)
    best = np.array(mean_losses(BayesDensity(config=CONFIG, family=family), episodes))
    for rival in _rivals(family):
        regret = np.array(mean_losses(rival, episodes)) - best
        assert np.nanmean(regret) > 2 * np.nanstd(regret) / np.sqrt(len(regret)), rival.name


@pytest.mark.parametrize("family", EVERY)
def test_more_context_rows_lower_the_expected_nll(family: ExactFamily) -> None:
    config = RegretConfig(num_tasks=80, num_queries=16, context_sizes=(4, 16, 64))
    groups, means = task_groups(family, config=config, seed=1), []
    for size in config.context_sizes:
        losses = []
        for group in groups:
            for episode in (episode_of(whole, num_context=size, config=config) for whole in group):
                logs = bayes_predictor(CONFIG, family).log_density(episode.evidence(), episode.answers())
                losses.append(-logs.mean())
        means.append(np.mean(losses))
    assert all(later < earlier - 0.02 for earlier, later in itertools.pairwise(means))


def test_a_spoilt_mixture_is_noticed() -> None:
    """The yardstick itself: uniform ranks pass, normal ones do not."""
    generator = np.random.default_rng(0)
    assert _distance_from_uniform(generator.uniform(size=500)) < 1.95
    assert _distance_from_uniform(np.clip(generator.normal(0.5, 0.2, 500), 0, 1)) > 1.95
