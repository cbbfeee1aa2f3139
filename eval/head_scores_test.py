"""Scores against a known truth: an oracle gets the best ones, and wrong predictions are told apart."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from eval import head_scores
from eval.head_scores import METRICS, answer, context_mean_rmse, curves, over_seeds, score_table, scores
from eval.head_trial import Arm, TrialConfig, evaluation_tasks, train_seed
from eval.noisy_tasks import NoiseFamily, NoisyTask
from model.quantile_prediction import QuantilePrediction
from model.regression_heads import PointPrediction, RegressionHeadKind

TINY = TrialConfig(num_steps=2, batch_size=4, num_seeds=2, num_tasks=5, num_context=12, num_query=9)
FAMILIES = list(NoiseFamily)
_LEVELS = torch.arange(1, 100, dtype=torch.float64) / 100


def _oracle(tasks: list[NoisyTask], *, widen: float = 1.0, shift: float = 0.0) -> QuantilePrediction:
    """The true quantiles, pulled from the centre by a factor and moved."""
    values = [
        [task.centre + shift + widen * (task.quantile(float(level)) - task.centre) for level in _LEVELS]
        for task in tasks
    ]
    ones = torch.ones(len(tasks), 1, dtype=torch.float64)
    return QuantilePrediction(
        values=torch.from_numpy(np.array(values)).transpose(1, 2), levels=_LEVELS, location=0 * ones, scale=ones
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_scores_perfectly(family: NoiseFamily) -> None:
    """6.C: centre error, coverage, width and crossing rate of the true quantiles."""
    tasks = evaluation_tasks(TINY, family)
    found = scores(_oracle(tasks), tasks)
    assert found["coverage"] == pytest.approx(0.9, abs=1e-6) and found["coverage_gap"] == pytest.approx(0, abs=1e-6)
    assert found["width_ratio"] == pytest.approx(1, abs=1e-6) and found["median_rmse"] == pytest.approx(0, abs=1e-6)
    assert found["crossing_rate"] == 0 and found["centre_rmse"] == pytest.approx(0, abs=0.02)


def test_wide_shifted_and_crossed_predictions_are_told_apart() -> None:
    """6.C: twice the width covers Φ(2 · 1.645) on both sides; 6.10: crossing is counted before the repair."""
    tasks = evaluation_tasks(TINY, NoiseFamily.HETEROSCEDASTIC)
    wide = scores(_oracle(tasks, widen=2.0), tasks)
    assert wide["coverage"] == pytest.approx(0.99900, abs=1e-4) and wide["width_ratio"] == pytest.approx(2, abs=1e-6)
    moved = scores(_oracle(tasks, shift=0.5), tasks)
    assert moved["centre_rmse"] == pytest.approx(0.5, abs=0.02) and moved["coverage"] < 0.7
    truth = _oracle(tasks)
    crossed = scores(dataclasses.replace(truth, values=truth.values.flip(-1)), tasks)
    assert crossed["crossing_rate"] == 1 and crossed["coverage"] == pytest.approx(0.9, abs=1e-6)


def test_coverage_that_is_right_on_average_may_be_wrong_everywhere() -> None:
    """6.C: the failure mode of heteroscedastic tasks, which a marginal coverage hides: 0.8 here, 1 there."""
    tasks = evaluation_tasks(TINY, NoiseFamily.HETEROSCEDASTIC)[:4]
    narrow, wide = _oracle(tasks, widen=0.7791), _oracle(tasks, widen=50.0)  # 1.2816 / 1.6449
    values = torch.where(torch.arange(4)[:, None, None] % 2 == 0, narrow.values, wide.values)
    found = scores(dataclasses.replace(narrow, values=values), tasks)
    assert found["coverage"] == pytest.approx(0.9, abs=1e-3) and found["coverage_gap"] == pytest.approx(0.1, abs=1e-3)


def test_a_point_has_a_centre_and_nothing_else() -> None:
    """6.0, 6.C: a scalar head has no interval, and the table says so."""
    tasks = evaluation_tasks(TINY, NoiseFamily.OUTLIERS)
    ones = torch.ones(len(tasks), 1)
    centre = torch.from_numpy(np.stack([task.centre for task in tasks]))
    found = scores(PointPrediction(value=centre + 0.25, location=0 * ones, scale=ones), tasks)
    assert found["centre_rmse"] == pytest.approx(0.25)
    assert [name for name, value in found.items() if value is None] == [
        name for name in METRICS if name != "centre_rmse"
    ]


def test_the_yardstick_is_the_contexts_mean() -> None:
    tasks = evaluation_tasks(TINY, NoiseFamily.OUTLIERS)
    means = [np.full_like(task.centre, task.episode.task.y[:12].astype(float).mean()) for task in tasks]
    ones = torch.ones(len(tasks), 1)
    point = PointPrediction(value=torch.from_numpy(np.stack(means)), location=0 * ones, scale=ones)
    assert context_mean_rmse(tasks) == pytest.approx(scores(point, tasks)["centre_rmse"], rel=1e-6)


def test_intervals_over_seeds_are_students() -> None:
    """6.12: several seeds with intervals; t(.975, 2) = 4.3027."""
    found = over_seeds([1.0, 2.0, 3.0])
    assert found["mean"] == 2 and found["high"] - 2 == pytest.approx(4.30265 / np.sqrt(3), rel=1e-5)
    assert found["low"] == pytest.approx(4 - found["high"])
    assert over_seeds([1.0])["low"] is None and over_seeds([None, None])["mean"] is None


def test_the_table_and_the_curves_hold_every_head_and_are_json() -> None:
    """6.C: scalar, bar and quantile beside the truth, every seed."""
    trials = [list(train_seed(TINY, seed=seed))[-1] for seed in range(2)]
    tasks = {family: evaluation_tasks(TINY, family) for family in FAMILIES}
    table = json.loads(json.dumps(score_table(trials, tasks), allow_nan=False))
    assert set(table) == {arm.value for arm in Arm}
    for arm in Arm:
        for family in FAMILIES:
            for kind in RegressionHeadKind:
                found = table[arm.value][family.value][kind.value]
                own = scores(answer(trials[1].arms[arm][kind], tasks[family]), tasks[family])
                assert {name: score["per_seed"][1] for name, score in found.items()} == own
    drawn = curves(trials[0], FAMILIES[0], num_context=12)
    assert len(drawn["x"]) == len(drawn["truth_low"]) == len(drawn["heads"]["bar"]["low"]) == 121
    assert drawn["heads"]["scalar"]["low"] is None and len(drawn["x_context"]) == 12
    assert (np.array(drawn["truth_low"]) < drawn["truth_mean"]).all() and head_scores.LEVEL == 0.9
