"""Tests of early warning, on series that must and that must not warn."""

import math

import numpy as np
import pytest

from train.early_warning import EarlyWarning, MovingAverage, Sign, Warned


def _records(losses: np.ndarray, *, norms: np.ndarray | None = None) -> list[dict[str, float]]:
    norms = np.ones(len(losses)) if norms is None else norms
    return [
        {"step": 10 * (i + 1), "train/loss": float(loss), "train/gradient_norm": float(norm)}
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def _looks(values: list[float]) -> list[dict[str, float]]:
    return [{"step": 100 * (i + 1), "validation/nll": value} for i, value in enumerate(values)]


def _warned(records: list[dict[str, float]]) -> list[Warned]:
    watch = EarlyWarning("nll")
    return [warned for record in records for warned in watch.see(record)]


def _learning(count: int, *, seed: int, noise: float = 0.03, floor: float = 0.6) -> np.ndarray:
    steps = np.arange(count)
    return floor + 0.4 * np.exp(-steps / 60) + noise * np.random.default_rng(seed).normal(size=count)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("noise", "floor"), [(0.03, 0.6), (0.08, -0.2), (0.3, 0.0)])
def test_a_long_noisy_plateau_warns_of_nothing(seed: int, noise: float, floor: float) -> None:
    losses = _learning(20_000, seed=seed, noise=noise, floor=floor)
    norms = np.random.default_rng(seed).lognormal(mean=-1.5, sigma=0.35, size=len(losses))
    assert _warned(_records(losses, norms=norms)) == []


def test_a_slow_rise_is_told_once_and_well_before_it_is_large() -> None:
    losses = _learning(600, seed=0)
    losses[300:] += 0.002 * np.arange(300)
    found = _warned(_records(losses))
    assert [warned.sign for warned in found] == [Sign.LOSS]
    assert 3000 < found[0].step < 4200 and found[0].value > found[0].bound


def test_a_jump_of_the_loss_is_told_once_and_a_second_one_again() -> None:
    losses = _learning(900, seed=1)
    losses[300:360] += 2.0
    losses[700:] += 2.0
    assert [warned.step for warned in _warned(_records(losses))] == [3010, 7010]


def test_one_wild_record_is_no_episode_of_the_loss() -> None:
    losses = _learning(400, seed=2)
    losses[200] += 0.5
    assert _warned(_records(losses)) == []


def test_a_loss_that_stands_still_has_room_for_rounding() -> None:
    losses = np.full(100, 0.25)
    losses[50:] += 1e-3
    assert _warned(_records(losses)) == []


def test_a_gradient_norm_far_above_its_median_is_told_once_per_episode() -> None:
    norms = np.random.default_rng(3).lognormal(sigma=0.2, size=300)
    norms[150:155] = 8.0
    norms[250] = 30.0
    found = _warned(_records(_learning(300, seed=3), norms=norms))
    assert [(warned.sign, warned.step) for warned in found] == [(Sign.GRADIENT, 1510), (Sign.GRADIENT, 2510)]


def test_large_norms_of_the_first_records_are_no_sign() -> None:
    norms = np.concatenate([[9.0, 40.0, 7.0], np.ones(60)])
    assert _warned(_records(_learning(63, seed=4), norms=norms)) == []


def test_validation_warns_at_the_second_bad_look_in_a_row() -> None:
    found = _warned(_looks([0.9, 0.7, 0.76, 0.72, 0.77, 0.78, 0.79]))
    assert [(warned.sign, warned.step, warned.value) for warned in found] == [(Sign.VALIDATION, 600, 0.78)]
    assert found[0].bound == pytest.approx(0.75)


def test_validation_that_falls_or_wavers_warns_of_nothing() -> None:
    assert _warned(_looks([0.1, -0.2, -0.16, -0.3, -0.24, -0.29, -0.24, -0.31])) == []


@pytest.mark.parametrize("before", [[], [0.7]])
def test_validation_that_is_not_finite_is_told_at_once_and_once(before: list[float]) -> None:
    found = _warned(_looks([*before, math.nan, math.inf, 0.6, 0.59, math.inf]))
    steps = [100 * len(before) + 100, 100 * len(before) + 500]
    assert [(warned.sign, warned.step) for warned in found] == [(Sign.VALIDATION, step) for step in steps]
    assert not any(math.isfinite(warned.value) for warned in found)


def test_harder_tasks_of_a_new_stage_are_no_divergence() -> None:
    losses = np.concatenate([_learning(200, seed=5), 1.0 + _learning(200, seed=6)])
    records = _records(losses)
    assert [warned.sign for warned in _warned(records)] == [Sign.LOSS]
    watch, found = EarlyWarning("nll"), []
    for record in records:
        if record["step"] == 2010:
            watch.new_tasks()
        found += watch.see(record)
    assert found == []


def test_what_a_skipped_window_lacks_or_spoils_is_passed_over() -> None:
    records = [
        *_records(_learning(60, seed=7)),
        {"step": 610, "train/skipped": 10},
        {"step": 620, "train/loss": np.nan},
    ]
    assert _warned(records) == []


def test_the_moving_average_starts_at_the_first_value_and_forgets_it() -> None:
    average = MovingAverage(10)
    assert average.add(5.0) == pytest.approx(5.0)
    assert average.add(3.0) == pytest.approx((0.9 * 5 + 3) / 1.9)
    for _ in range(300):
        last = average.add(1.0)
    assert last == pytest.approx(1.0)
