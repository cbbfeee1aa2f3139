"""Scores against scikit-learn, closed forms, and the ways in which scores have lied."""

import dataclasses
import math
import statistics
import warnings

import numpy as np
import pytest
from sklearn import metrics

from eval import scores


def _draw(*, num_rows: int, num_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    answers = generator.permutation(np.arange(num_rows) % num_classes)
    probabilities = generator.dirichlet(np.ones(num_classes), num_rows) + 0.3 * np.eye(num_classes)[answers]
    return probabilities / probabilities.sum(axis=1, keepdims=True), answers


def _normal_forecast(mean: np.ndarray, deviation: float) -> scores.Forecast:
    steps = np.array([statistics.NormalDist().inv_cdf(tau) for tau in scores.TAUS])
    return scores.Forecast(mean=mean, quantiles=mean[:, None] + deviation * steps)


@pytest.mark.parametrize("num_classes", [3, 5, 10])
def test_multi_class_scores_equal_scikit_learn(num_classes: int) -> None:
    """6.7: accuracy, NLL and both AUC definitions are the yardstick's."""
    p, y = _draw(num_rows=200, num_classes=num_classes, seed=num_classes)
    found = scores.classification_scores(p, y)
    assert found["auc_ovr"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"), abs=1e-12)
    assert found["auc_ovo"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovo"), abs=1e-12)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
    assert found["nll"] == pytest.approx(metrics.log_loss(y, p), abs=1e-4)


def test_the_two_auc_definitions_differ_when_classes_are_unbalanced() -> None:
    p, y = _draw(num_rows=200, num_classes=3, seed=1)
    keep = (y != 2) | (np.arange(200) < 20)
    found = scores.classification_scores(p[keep], y[keep])
    assert abs(found["auc_ovr"] - found["auc_ovo"]) > 1e-4


def test_binary_auc_reads_the_probability_of_class_one() -> None:
    y = np.array([0, 0, 1, 1])
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    found = scores.classification_scores(p, y)
    assert found["auc_ovr"] == found["auc_ovo"] == 1.0
    assert scores.classification_scores(p[:, ::-1], y)["auc_ovr"] == 0.0


def test_tied_scores_count_half_as_in_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    column = generator.integers(0, 4, 300) / 4
    y = generator.integers(0, 2, 300)
    expected = metrics.roc_auc_score(y, column)
    assert scores.binary_auc(column[y == 1], column[y == 0]) == pytest.approx(expected, abs=1e-12)
    assert scores.binary_auc(np.zeros(3), np.zeros(5)) == 0.5


def test_classes_absent_from_the_answers_take_no_part_in_the_auc() -> None:
    p, y = _draw(num_rows=300, num_classes=5, seed=2)
    keep = (y == 1) | (y == 3) | (y == 4)
    p, y = p[keep], y[keep]
    each = [metrics.roc_auc_score(y == k, p[:, k]) for k in (1, 3, 4)]
    found = scores.classification_scores(p, y)
    assert found["auc_ovr"] == pytest.approx(np.mean(each), abs=1e-12)
    assert np.isfinite(found["auc_ovo"])


def test_auc_is_undefined_with_one_class_and_the_rest_is_not() -> None:
    p, _ = _draw(num_rows=20, num_classes=3, seed=3)
    found = scores.classification_scores(p, np.full(20, 2))
    assert math.isnan(found["auc_ovr"]) and math.isnan(found["auc_ovo"])
    assert all(np.isfinite(found[name]) for name in ("accuracy", "nll", "ece"))


def test_a_zero_probability_costs_the_stated_floor() -> None:
    found = scores.classification_scores(np.array([[1.0, 0.0, 0.0]]), np.array([1]))
    assert found["nll"] == pytest.approx(-math.log(1e-6 / (1 + 2e-6)))
    assert scores.classification_scores(np.array([[1.0]]), np.array([0]))["nll"] == 0.0


def test_calibration_error_is_the_weighted_gap_of_each_bin() -> None:
    """6.7: 15 equal-width bins of the top label."""
    confidence = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55, 1.0])
    correct = np.array([True, True, True, False, True, False, True])
    bins = [(0.95 * 4 + 1.0, 4, 5), (0.55 * 2, 1, 2)]
    expected = sum(abs(total / n - hits / n) * n for total, hits, n in bins) / 7
    assert scores.calibration_error(confidence, correct) == pytest.approx(expected)
    one_bin = scores.calibration_error(np.array([0.61, 0.66]), np.array([True, False]))
    two_bins = scores.calibration_error(np.array([0.66, 0.67]), np.array([True, False]))
    assert (one_bin, two_bins) == pytest.approx((abs(1 - 0.61 - 0.66) / 2, (0.34 + 0.67) / 2))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.log([[0.9, 0.1], [0.2, 0.8]]), "log-probabilities"),
        (np.array([[0.9, 0.3], [0.2, 0.8]]), "sum"),
        (np.array([[np.nan, 1.0], [0.2, 0.8]]), "not finite"),
        (np.array([[1.0], [1.0]]), "class ids"),
        (np.array([[0.5, 0.5]]), "do not fit"),
    ],
)
def test_malformed_probabilities_are_refused_instead_of_scored(wrong: np.ndarray, words: str) -> None:
    """6.0: log-probabilities can not be mistaken for probabilities, nor a model's NaN for an undefined score."""
    with pytest.raises(ValueError, match=words):
        scores.classification_scores(wrong, np.array([0, 1]))


def test_regression_scores_equal_scikit_learn() -> None:
    """6.12: RMSE beside distribution and interval."""
    generator = np.random.default_rng(0)
    y, mean = generator.normal(size=80), generator.normal(size=80)
    forecast = _normal_forecast(mean, 1.3)
    found = scores.regression_scores(forecast, y)
    losses = [metrics.mean_pinball_loss(y, q, alpha=t) for t, q in zip(scores.TAUS, forecast.quantiles.T, strict=True)]
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, mean))
    assert found["r2"] == pytest.approx(metrics.r2_score(y, mean))
    assert found["crps"] == pytest.approx(2 * np.mean(losses))
    assert found["width90"] == pytest.approx(2 * 1.3 * 1.6448536, rel=1e-6)


def test_crps_is_near_the_closed_form_of_a_gaussian() -> None:
    y = np.linspace(-3, 3, 61)
    forecast = _normal_forecast(np.zeros(61), 1.0)
    normal = statistics.NormalDist()
    exact = [z * (2 * normal.cdf(z) - 1) + 2 * normal.pdf(z) - 1 / math.sqrt(math.pi) for z in y]
    assert scores.regression_scores(forecast, y)["crps"] == pytest.approx(np.mean(exact), rel=0.02)


def test_coverage_counts_both_ends_of_the_interval() -> None:
    forecast = scores.Forecast(mean=np.zeros(4), quantiles=np.tile(scores.TAUS, (4, 1)))
    assert scores.regression_scores(forecast, np.array([0.05, 0.95, 0.5, 0.96]))["coverage90"] == 0.75
    generator = np.random.default_rng(1)
    found = scores.regression_scores(_normal_forecast(np.zeros(20_000), 1.0), generator.normal(size=20_000))
    assert found["coverage90"] == pytest.approx(0.9, abs=0.01)


def test_a_scale_divides_what_has_units_and_nothing_else() -> None:
    y = np.random.default_rng(2).normal(size=50)
    forecast = _normal_forecast(np.zeros(50), 2.0)
    raw, scaled = scores.regression_scores(forecast, y), scores.regression_scores(forecast, y, scale=4.0)
    with_units = ("rmse", "crps", "mae", "width90")
    assert {name: raw[name] / scaled[name] for name in with_units} == pytest.approx(dict.fromkeys(with_units, 4.0))
    assert (raw["r2"], raw["coverage90"]) == (scaled["r2"], scaled["coverage90"])


def test_r2_of_a_constant_target_is_undefined_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = scores.regression_scores(_normal_forecast(np.zeros(3), 1.0), np.ones(3))
        assert math.isnan(found["r2"]) and found["rmse"] == 1.0
        assert math.isnan(scores.regression_scores(_normal_forecast(np.zeros(1), 1.0), np.ones(1))["r2"])


def test_malformed_forecasts_are_refused_instead_of_scored() -> None:
    good, many = _normal_forecast(np.zeros(3), 1.0), np.zeros((3, 98))
    wrong = [
        (good, np.zeros(4), "mean .* does not fit 4 answers"),
        (scores.Forecast(mean=np.full(3, np.nan), quantiles=good.quantiles), np.zeros(3), "mean .* not finite"),
        (scores.Forecast(mean=np.zeros(3), quantiles=many), np.zeros(3), "do not fit 3 answers, 99 levels"),
        (scores.Forecast(mean=np.zeros(3), quantiles=np.full((3, 99), np.inf)), np.zeros(3), "quantile is not finite"),
        (dataclasses.replace(good, crossing_rate=np.zeros(2)), np.zeros(3), r"crossing rates \(2,\) are not 3 shares"),
        (dataclasses.replace(good, crossing_rate=np.full(3, 1.1)), np.zeros(3), "between 0 and 1"),
    ]
    for forecast, answers, words in wrong:
        with pytest.raises(ValueError, match=words):
            scores.regression_scores(forecast, answers)
    with pytest.raises(ValueError, match="positive"):
        scores.regression_scores(good, np.zeros(3), scale=0.0)


def test_a_point_forecast_has_no_score_of_a_distribution() -> None:
    """6.0 and 6.8: RMSE and R² alone; no interval or CRPS is made up for it."""
    generator = np.random.default_rng(3)
    y, mean = generator.normal(size=40), generator.normal(size=40)
    whole = scores.regression_scores(_normal_forecast(mean, 1.0), y)
    point = scores.regression_scores(scores.Forecast(mean=mean, quantiles=None), y)
    assert point == {name: whole[name] for name in ("rmse", "r2")}


def test_median_and_crossing_rate_are_scored_where_there_are_any() -> None:
    """6.10: median, coverage, width and crossing rate are recorded."""
    generator = np.random.default_rng(4)
    y, rates = generator.normal(size=60), generator.uniform(size=60)
    skewed = np.tile(scores.TAUS**2, (60, 1))
    forecast = scores.Forecast(mean=np.full(60, 0.4), quantiles=skewed, crossing_rate=rates)
    found = scores.regression_scores(forecast, y, scale=2.0)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(y, np.full(60, 0.25)) / 2)
    assert found["crossing_rate"] == pytest.approx(rates.mean())
    assert "crossing_rate" not in scores.regression_scores(_normal_forecast(np.zeros(60), 1.0), y)
