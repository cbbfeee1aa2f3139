"""Log densities of answers: whole distributions, the same rows for every model, no class that nobody can answer."""

import dataclasses

import numpy as np
import pytest

from eval import densities
from eval.densities import BayesDensity, DensityModel, LinearDensity, MajorityDensity, NetworkDensity
from model.label_injection import LabelKind
from model.network import Network
from model.regression_heads import RegressionHeadKind
from model.specimens import specimen_config, specimen_network
from priors.exact import ExactConfig, ExactFamily, sample_exact_group
from priors.task import Episode, TaskKind

CONFIG = ExactConfig()
TABLE, PROCESS = ExactFamily.DIRICHLET_TABLE, ExactFamily.GAUSSIAN_PROCESS


def _episodes(family: ExactFamily, *, context: int = 9, queries: int = 6, count: int = 3) -> list[Episode]:
    group = sample_exact_group(CONFIG, family, seed=1, rows=context + queries, features=3, count=count)
    return [Episode(task=task, num_context=context) for task in group.tasks()]


def _models(kind: TaskKind) -> list[DensityModel]:
    family = PROCESS if kind is TaskKind.REGRESSION else TABLE
    network = specimen_network(LabelKind(kind.value))
    bayes = BayesDensity(config=CONFIG, family=family)
    return [bayes, MajorityDensity(), LinearDensity(), NetworkDensity(name="veritab", network=network)]


def _answered(episode: Episode, answers: np.ndarray) -> Episode:
    y = episode.task.y.copy()
    y[episode.num_context :] = answers
    return Episode(task=dataclasses.replace(episode.task, y=y), num_context=episode.num_context)


@pytest.mark.parametrize("position", range(4))
def test_every_regression_density_integrates_to_one_over_the_answers(position: int) -> None:
    (episode,) = _episodes(PROCESS, count=1, queries=2)
    model = _models(TaskKind.REGRESSION)[position]
    grid = np.sinh(np.linspace(-5, 5, 20_001))  # fine enough for the narrowest bucket
    task = episode.task
    x = np.concatenate([task.x[:9], np.tile(task.x[9:10], (len(grid), 1))])
    y = np.concatenate([task.y[:9], grid]).astype(np.float32)
    (logs,) = model.log_densities([Episode(task=dataclasses.replace(task, x=x, y=y), num_context=9)]) or []
    assert np.trapezoid(np.exp(logs), y[9:]) == pytest.approx(1, abs=4e-3)


@pytest.mark.parametrize("position", range(4))
def test_every_classification_density_sums_to_one_over_the_contexts_classes(position: int) -> None:
    model, episodes = _models(TaskKind.CLASSIFICATION)[position], _episodes(TABLE)
    for episode in episodes:
        present = np.unique(episode.evidence().y_context)
        logs = [(model.log_densities([_answered(episode, np.full(6, label))]) or [])[0] for label in present]
        assert np.allclose(np.exp(logs).sum(0), 1, atol=1e-6)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_batch_through_a_network_is_each_table_alone(kind: TaskKind) -> None:
    model, episodes = _models(kind)[-1], _episodes(PROCESS if kind is TaskKind.REGRESSION else TABLE)
    together = model.log_densities(episodes) or []
    for episode, logs in zip(episodes, together, strict=True):
        (alone,) = model.log_densities([episode]) or []
        assert np.allclose(alone, logs, atol=1e-4)


def test_shares_are_taken_among_the_contexts_classes_and_have_the_floor() -> None:
    (episode,) = _episodes(TABLE, count=1)
    y = np.array([0, 2, 0, 2, 0, 0, 2, 0, 2, 0, 2, 1, 0, 2, 0], np.float32)
    episode = Episode(task=dataclasses.replace(episode.task, y=y, num_classes=3), num_context=9)
    p = np.tile([0.3, 0.6, 0.1], (6, 1))
    p[2:] = [1.0, 0.0, 0.0]
    logs = densities.log_shares(p, episode)
    assert np.allclose(np.exp(logs[[0, 3, 4]]), [0.75, 1.0, 1e-6], rtol=1e-5)  # answers 0, 0, 2
    assert densities.answerable(episode).tolist() == [True, True, False, True, True, True]


def test_students_t_has_its_published_values() -> None:
    """Of t with 5 degrees at 0 and 2 (tables give 0.3796 and 0.0651), and the normal's limit."""
    found = np.exp(densities.log_student(np.array([0.0, 2.0]), location=0.0, scale=1.0, degrees=5))
    assert np.allclose(found, [0.3796, 0.0651], atol=5e-5)
    many = np.exp(densities.log_student(np.array([3.0]), location=1.0, scale=2.0, degrees=10**6))
    assert many[0] == pytest.approx(np.exp(-0.5) / (2 * np.sqrt(2 * np.pi)), rel=1e-4)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_query_label_changes_its_own_row_alone(kind: TaskKind) -> None:
    """5.A: densities are read off at the answers and never made from them."""
    for model in _models(kind):
        (episode,) = _episodes(PROCESS if kind is TaskKind.REGRESSION else TABLE, count=1)
        answers = episode.answers().copy()
        known = episode.evidence().y_context
        answers[0] = answers[0] + 7 if kind is TaskKind.REGRESSION else known[np.argmax(known != answers[0])]
        before, after = ((model.log_densities([e]) or [])[0] for e in (episode, _answered(episode, answers)))
        assert np.array_equal(before[1:], after[1:]) and before[0] != after[0]


@pytest.mark.parametrize("head", [RegressionHeadKind.SCALAR, RegressionHeadKind.QUANTILE])
def test_points_and_quantiles_have_no_density(head: RegressionHeadKind) -> None:
    config = specimen_config(LabelKind.REGRESSION)
    network = Network(dataclasses.replace(config, regression=dataclasses.replace(config.regression, kind=head))).eval()
    assert NetworkDensity(name="veritab", network=network).log_densities(_episodes(PROCESS)) is None
