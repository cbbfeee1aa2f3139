"""Our networks as predictors: columns by class id, shapes of forecasts, names."""

import dataclasses

import numpy as np
import pytest

from eval.icl_predictor import ICLPredictor
from eval.scores import TAUS, regression_scores
from eval.small_network import rerandomised_network, small_network
from eval.specimens import specimens
from eval.subject import rerandomise
from model.estimator import ICLClassifier, ICLRegressor
from model.network import Network
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind
from priors.task import Evidence, TaskKind


def _evidence(kind: TaskKind) -> Evidence:
    return specimens(kind)[0].evidence()


def _predictor(kind: TaskKind, *, name: str = "veritab", num_estimators: int = 2) -> ICLPredictor:
    return ICLPredictor(name=name, network=rerandomised_network(kind), num_estimators=num_estimators)


def test_columns_stand_by_class_id() -> None:
    """6.5: the column of a class is its id, whatever slots the network works in."""
    evidence, predictor = _evidence(TaskKind.CLASSIFICATION), _predictor(TaskKind.CLASSIFICATION)
    found = predictor.classify(evidence)
    assert found.shape == (len(evidence.x_query), 3)
    assert np.allclose(found.sum(1), 1.0) and (found > 0).all()
    estimator = ICLClassifier(predictor.network, num_estimators=2)
    estimator.fit(evidence.x_context, evidence.y_context, column_kinds=evidence.column_kinds)
    assert np.allclose(found, estimator.predict_proba(evidence.x_query), rtol=1e-5)  # from a remembered context


@pytest.mark.parametrize("absent", [0, 1, 2, 3])
def test_a_class_that_the_context_lacks_has_probability_0_in_its_own_column(absent: int) -> None:
    """6.5: by structure; the other classes keep their probabilities and move to their own columns."""
    evidence, predictor = _evidence(TaskKind.CLASSIFICATION), _predictor(TaskKind.CLASSIFICATION)
    without_gap = predictor.classify(evidence)
    ids = np.delete(np.arange(4), absent)
    with_gap = dataclasses.replace(
        evidence, num_classes=4, y_context=ids[evidence.y_context.astype(int)].astype(np.float32)
    )
    found = predictor.classify(with_gap)
    assert found.shape == (len(evidence.x_query), 4)
    assert (found[:, absent] == 0).all()
    assert np.array_equal(found[:, ids], without_gap)


def test_a_forecast_has_a_mean_and_every_level_of_each_query() -> None:
    """In the target's own unit, levels in order."""
    evidence, predictor = _evidence(TaskKind.REGRESSION), _predictor(TaskKind.REGRESSION)
    forecast = predictor.forecast(evidence)
    num_queries = len(evidence.x_query)
    assert forecast.mean.shape == (num_queries,) and forecast.quantiles.shape == (num_queries, len(TAUS))
    assert (np.diff(forecast.quantiles, axis=1) >= 0).all() and np.isfinite(forecast.quantiles).all()
    estimator = ICLRegressor(predictor.network, num_estimators=2)
    estimator.fit(evidence.x_context, evidence.y_context, column_kinds=evidence.column_kinds)
    assert np.allclose(forecast.mean, estimator.predict(evidence.x_query), rtol=1e-5)  # from a remembered context
    expected = estimator.predict_quantiles(evidence.x_query, TAUS)
    assert np.abs(forecast.quantiles - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("head", list(RegressionHeadKind))
def test_a_forecast_holds_what_its_head_has_and_is_scored_on_that_alone(head: RegressionHeadKind) -> None:
    """6.8 to 6.10: a point has RMSE and R², a distribution its intervals and CRPS, crossing is the quantile head's."""
    config = dataclasses.replace(small_network(TaskKind.REGRESSION).config, regression=RegressionHeadConfig(kind=head))
    predictor = ICLPredictor(name="veritab", network=rerandomise(Network(config), seed=0).eval(), num_estimators=2)
    episode = specimens(TaskKind.REGRESSION)[0]
    found = regression_scores(predictor.forecast(episode.evidence()), episode.answers())
    wanted = {"rmse", "r2"}
    if head is not RegressionHeadKind.SCALAR:
        wanted |= {"crps", "mae", "coverage90", "width90"}
    if head is RegressionHeadKind.QUANTILE:
        wanted |= {"crossing_rate"}
        assert 0.1 < found["crossing_rate"] < 0.9  # random weights
    assert set(found) == wanted and all(np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("kind", list(TaskKind))
def test_kinds_of_columns_and_the_number_of_orders_reach_the_estimator(kind: TaskKind) -> None:
    """A category that is read as a number, or another number of orders, predicts something else."""
    evidence = _evidence(kind)
    numbers = dataclasses.replace(evidence, column_kinds=np.zeros_like(evidence.column_kinds))

    def predict(seen: Evidence, num_estimators: int) -> np.ndarray:
        predictor = _predictor(kind, num_estimators=num_estimators)
        return predictor.classify(seen) if kind is TaskKind.CLASSIFICATION else predictor.forecast(seen).mean

    usual = predict(evidence, 2)
    assert np.array_equal(usual, predict(evidence, 2))
    assert not np.allclose(usual, predict(numbers, 2)) and not np.allclose(usual, predict(evidence, 3))


def test_a_predictor_has_the_name_that_it_was_given() -> None:
    """Results tell the trained network from the untrained one by it."""
    names = [_predictor(TaskKind.REGRESSION, name=name).name for name in ("veritab", "untrained")]
    assert names == ["veritab", "untrained"]
