"""Tasks with known noise: their truth is the truth."""

import numpy as np
import pytest

from eval.noisy_tasks import HALF_WIDTH, NoiseFamily, NoisyTask, QueryPlaces, TaskSize, noisy_task

FAMILIES = list(NoiseFamily)
_MANY = TaskSize(num_context=4, num_query=40_000)


def _answers(task: NoisyTask) -> np.ndarray:
    return task.episode.answers().astype(np.float64)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_answers_lie_below_the_true_quantile_as_often_as_it_says(family: NoiseFamily, seed: int) -> None:
    """6.C: the true conditional quantiles are known; 5 standard errors of a share at 40,000 answers are .0125."""
    task = noisy_task(family, seed=seed, size=_MANY)
    for level in (0.02, 0.05, 0.5, 0.95, 0.98):
        assert np.mean(_answers(task) <= task.quantile(level)) == pytest.approx(level, abs=0.0125)
    low, high = task.interval(0.9).T
    assert np.mean((_answers(task) >= low) & (_answers(task) <= high)) == pytest.approx(0.9, abs=0.0125)


@pytest.mark.parametrize("family", FAMILIES)
def test_shares_are_right_in_every_part_of_x_and_not_only_on_average(family: NoiseFamily) -> None:
    """6.C: conditional quantiles, not marginal ones."""
    task = noisy_task(family, seed=3, size=_MANY)
    x, below = task.episode.evidence().x_query[:, 0], _answers(task) <= task.quantile(0.95)
    for low in np.linspace(-HALF_WIDTH, HALF_WIDTH, 9)[:-1]:
        part = (x >= low) & (x < low + HALF_WIDTH / 4)
        assert part.sum() > 3000 and below[part].mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_cdf_and_quantile_are_inverse(family: NoiseFamily) -> None:
    task = noisy_task(family, seed=5)
    for level in (1e-4, 0.05, 0.3, 0.5, 0.999):
        assert task.cdf(task.quantile(level)) == pytest.approx(level, rel=1e-6)
    assert task.quantile(0.5) == pytest.approx(task.centre)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_centre_is_the_conditional_mean(family: NoiseFamily) -> None:
    """6.C: the mean of the noise is 0 in every part of x."""
    task = noisy_task(family, seed=6, size=_MANY)
    x, noise = task.episode.evidence().x_query[:, 0], _answers(task) - task.centre
    for part in (x < -0.5, (x >= -0.5) & (x < 0.5), x >= 0.5):
        assert abs(noise[part].mean()) < 5 * noise[part].std() / np.sqrt(part.sum())


def test_the_spread_depends_on_x_in_one_family_and_outliers_are_rows_in_the_other() -> None:
    """6.C: heteroscedastic tasks, and outliers."""
    for seed in range(8):
        task = noisy_task(NoiseFamily.HETEROSCEDASTIC, seed=seed, size=_MANY)
        assert task.spread.max() > 2 * task.spread.min() and task.outlier_share == 0
        task = noisy_task(NoiseFamily.OUTLIERS, seed=seed, size=_MANY)
        assert np.ptp(task.spread) == 0
        far = np.mean(np.abs(_answers(task) - task.centre) > 5 * task.spread)
        assert 0.3 * task.outlier_share < far < task.outlier_share


def test_functions_have_unit_spread_and_differ_by_seed() -> None:
    size = TaskSize(num_context=4, num_query=201, places=QueryPlaces.EVEN)
    tasks = [noisy_task(NoiseFamily.OUTLIERS, seed=seed, size=size) for seed in range(5)]
    for task in tasks:
        assert task.centre.mean() == pytest.approx(0, abs=1e-6) and task.centre.std() == pytest.approx(1, rel=1e-6)
        assert np.diff(task.episode.evidence().x_query[:, 0]) == pytest.approx(2 * HALF_WIDTH / 200, rel=1e-3)
    assert np.abs(tasks[0].centre - tasks[1].centre).max() > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_task(family: NoiseFamily) -> None:
    first, second, other = (noisy_task(family, seed=seed).episode.task for seed in (9, 9, 10))
    assert (first.x == second.x).all() and (first.y == second.y).all() and (first.y != other.y).any()
