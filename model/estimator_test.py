"""The scikit-learn estimators: tables as people have them, limits, and the average over orders."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from model.cell_embedding import CATEGORY, NUMBER
from model.estimator import ICLClassifier, ICLRegressor
from model.label_injection import LabelKind
from model.network import Network
from model.regression_heads import QuantileConfig, RegressionHeadConfig, RegressionHeadKind
from model.specimens import redraw, specimen_config, specimen_network
from tools.failure import BadInput, ExitCode

ROWS, QUERIES = 20, 6


def _table(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X [20, 3], y in 0..2 [20], X_new [6, 3]."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(ROWS + QUERIES, 3))
    return x[:ROWS], np.arange(ROWS) % 3, x[ROWS:]


def _classifier(**changes: Any) -> ICLClassifier:
    return ICLClassifier(specimen_network(LabelKind.CLASSIFICATION), **changes)


def _regressor(**changes: Any) -> ICLRegressor:
    return ICLRegressor(specimen_network(LabelKind.REGRESSION), **changes)


def _refused(action: Any, *, code: ExitCode, match: str) -> None:
    with pytest.raises(BadInput, match=match) as caught:
        action()
    assert caught.value.code is code


def test_probabilities_belong_to_the_classes_that_y_holds() -> None:
    """6.5: ids mapped to 0..K-1 and back; labels may be text."""
    x, y, x_new = _table()
    numbers = _classifier().fit(x, y)
    probabilities = numbers.predict_proba(x_new)
    assert probabilities.shape == (QUERIES, 3)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-12)
    names = np.array(["ant", "bee", "cow"])
    text = _classifier().fit(x, names[y])
    assert list(text.classes_) == ["ant", "bee", "cow"]
    assert np.array_equal(text.predict_proba(x_new), probabilities)
    assert list(text.predict(x_new)) == list(names[probabilities.argmax(1)])
    far = _classifier().fit(x, 1000 * y - 7)
    assert set(far.predict(x_new)) <= {-7, 993, 1993}


def test_each_class_gets_its_own_probability_under_random_slots() -> None:
    """6.3: slots are random per member of the ensemble; columns come back in the order of `classes_`."""
    x, y, x_new = _table()
    average = _classifier(num_estimators=64).fit(x, y).predict_proba(x_new)
    relabelled = _classifier(num_estimators=64).fit(x, (y + 1) % 3).predict_proba(x_new)
    assert np.abs(relabelled[:, [1, 2, 0]] - average).max() < 0.05
    assert np.abs(relabelled - average).max() > 0.1


def test_more_orders_vary_less() -> None:
    """Averages over many orders depend little on the seed."""
    x, y, x_new = _table()

    def spread(num: int) -> float:
        found = [_classifier(num_estimators=num, seed=s).fit(x, y).predict_proba(x_new) for s in range(4)]
        return float(np.std(found, axis=0).mean())

    assert spread(32) < 0.6 * spread(1)


def test_the_same_seed_gives_the_same_prediction_and_touches_no_global_generator() -> None:
    """5.1: prediction changes no parameter and no state."""
    x, y, x_new = _table()
    classifier = _classifier().fit(x, y)
    state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    weights = {name: tensor.clone() for name, tensor in classifier.network.state_dict().items()}
    assert np.array_equal(classifier.predict_proba(x_new), classifier.predict_proba(x_new))
    assert np.array_equal(np.random.get_state()[1], state)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in classifier.network.state_dict().items())


def test_queries_may_come_in_any_batches() -> None:
    """5.9: one row at a time equals all at once."""
    x, y, x_new = _table()
    classifier, regressor = _classifier().fit(x, y), _regressor().fit(x, x[:, 0])
    together = classifier.predict_proba(x_new)
    alone = np.concatenate([classifier.predict_proba(x_new[i : i + 1]) for i in range(QUERIES)])
    assert np.abs(alone - together).max() < 1e-5
    alone = np.concatenate([regressor.predict(x_new[i : i + 1]) for i in range(QUERIES)])
    assert np.abs(alone - regressor.predict(x_new)).max() < 1e-5


@pytest.mark.parametrize(("factor", "shift"), [(1.0, 0.0), (1e6, 0.0), (1e-6, 2000.0), (-3.0, 1e5)])
def test_predictions_follow_the_unit_of_the_target(factor: float, shift: float) -> None:
    """6.9: targets are scaled by the context in fp64, so that year 2000 ± 1e-6 works too."""
    x, _, x_new = _table()
    y = x[:, 0] + 0.1 * x[:, 1]
    base, moved = _regressor().fit(x, y), _regressor().fit(x, factor * y + shift)
    spread = abs(factor) * np.std(y)
    assert np.abs(base.predict(x_new)).max() > 0.01
    if factor > 0:
        assert np.abs(moved.predict(x_new) - (factor * base.predict(x_new) + shift)).max() < 1e-3 * spread
    quantiles = moved.predict_quantiles(x_new, [0.05, 0.5, 0.95])
    assert quantiles.shape == (QUERIES, 3)
    assert (np.diff(quantiles, axis=1) > 0).all()
    assert np.abs(quantiles - shift).max() < 50 * spread


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e9])
@pytest.mark.parametrize("rows", [19, 20])
def test_a_constant_target_has_an_interval_of_scale_one(value: float, rows: int) -> None:
    """6.9: its spread is rounding, which is no scale."""
    x, _, x_new = _table()
    regressor = _regressor().fit(x[:rows], np.full(rows, value))
    assert np.abs(regressor.predict(x_new) - value).max() < 24.0
    low, high = regressor.predict_quantiles(x_new, [0.05, 0.95]).T
    assert (high - low > 0.01).all()


def _network_with(kind: RegressionHeadKind) -> Network:
    config = dataclasses.replace(
        specimen_config(LabelKind.REGRESSION),
        regression=RegressionHeadConfig(kind=kind, quantiles=QuantileConfig(num_quantiles=19)),
    )
    network = Network(config)
    redraw(network)
    return network.eval()


def test_a_head_that_predicts_points_has_a_mean_and_refuses_quantiles() -> None:
    """6.8 and 6.0: a point is never shown as a distribution."""
    x, _, x_new = _table()
    regressor = ICLRegressor(_network_with(RegressionHeadKind.SCALAR)).fit(x, 100 * x[:, 0])
    forecast = regressor.forecast(x_new, levels=[0.5])
    assert forecast.quantiles is None and forecast.crossing_rate is None
    assert np.array_equal(forecast.mean, regressor.predict(x_new)) and forecast.mean.shape == (QUERIES,)
    with pytest.raises(
        ValueError, match="head is scalar, which has no quantiles: use a network with a bar or"
    ) as caught:
        regressor.predict_quantiles(x_new, [0.5])
    assert isinstance(caught.value, BadInput) and caught.value.code is ExitCode.CONFIG_MISMATCH


def test_a_quantile_head_predicts_ascending_quantiles_and_tells_its_crossing_rate() -> None:
    """6.10: repaired before the average over orders; the rate is taken before the repair."""
    x, _, x_new = _table()
    regressor = ICLRegressor(_network_with(RegressionHeadKind.QUANTILE)).fit(x, 100 * x[:, 0])
    forecast = regressor.forecast(x_new, levels=np.linspace(0.001, 0.999, 50))
    assert (np.diff(forecast.quantiles, axis=1) >= 0).all()
    assert forecast.crossing_rate.shape == (QUERIES,)
    assert (forecast.crossing_rate > 0.2).all() and (forecast.crossing_rate < 0.8).all()  # random weights
    assert _regressor().fit(x, x[:, 0]).forecast(x_new, levels=[0.5]).crossing_rate is None


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
@pytest.mark.parametrize("kind", [RegressionHeadKind.BAR, RegressionHeadKind.QUANTILE])
def test_levels_outside_0_and_1_are_refused(kind: RegressionHeadKind, level: float) -> None:
    """Bad input: a ValueError that names argument, value and what is allowed."""
    x, _, x_new = _table()
    regressor = ICLRegressor(_network_with(kind), num_estimators=1).fit(x, x[:, 0])
    with pytest.raises(ValueError, match=rf"levels holds {level:g}: give levels inside \(0, 1\)"):
        regressor.predict_quantiles(x_new, [0.5, level])


def test_text_columns_become_categories_of_the_context() -> None:
    """Levels come from the context alone; an unseen level and a missing one are their own cases."""
    words = np.array(["red", "green", "blue", None] * 5, object)
    x = np.stack([words, np.arange(ROWS).astype(object)], axis=1)
    classifier = _classifier().fit(x, np.arange(ROWS) % 3)
    assert classifier._context.code.kinds.tolist() == [CATEGORY, NUMBER]
    assert list(classifier._context.code.columns[0].levels) == ["blue", "green", "red"]
    assert classifier._context.x[:4, 0].tolist()[:3] == [2.0, 1.0, 0.0]
    assert math.isnan(classifier._context.x[3, 0])
    queries = np.array([["red", 3], ["blue", 3], ["mauve", 3], [None, 3]], object)
    found = classifier.predict_proba(queries)
    assert np.isfinite(found).all()
    for first in range(4):
        for second in range(first):
            assert np.abs(found[first] - found[second]).max() > 1e-5


def test_numbers_with_missing_marks_stay_numbers() -> None:
    """None, NaN, digits as text, booleans, infinities and what fp32 cannot hold."""
    x = np.array([[1.5, True, "7"], [None, False, "8"], [math.nan, True, "9"], [1e300, False, "-1"]], object)
    classifier = _classifier().fit(x, [0, 1, 0, 1])
    assert classifier._context.code.kinds.tolist() == [NUMBER] * 3
    assert classifier._context.x[:, 1:].tolist() == [[1, 7], [0, 8], [1, 9], [0, -1]]
    assert np.isnan(classifier._context.x[1:3, 0]).all()
    assert classifier._context.x[3, 0] == np.inf
    assert np.isfinite(classifier.predict_proba(x)).all()


def test_column_kinds_may_be_given() -> None:
    """A column of codes can be declared a category."""
    x, y, x_new = _table()
    x, x_new = np.round(x), np.round(x_new)
    plain, declared = _classifier().fit(x, y), _classifier().fit(x, y, column_kinds=np.array([2, 0, 0]))
    assert np.abs(plain.predict_proba(x_new) - declared.predict_proba(x_new)).max() > 1e-4


def test_values_and_kinds_are_permuted_together() -> None:
    """Each member of the ensemble sees another order of the same columns."""
    x = np.stack([np.arange(20.0), np.arange(20.0) % 4, -np.arange(20.0)], axis=1)
    classifier, seen = (
        _classifier(num_estimators=8, cache=False).fit(x, np.arange(20) % 2, column_kinds=np.array([0, 2, 1])),
        [],
    )
    classifier.network.register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    classifier.predict_proba(x[:3])
    orders = {tuple(inputs.column_kinds[0].tolist()) for inputs in seen}
    assert len(orders) > 2
    for inputs in seen:
        for place, kind in enumerate(inputs.column_kinds[0].tolist()):
            column = x[:, [0, 2, 1][kind]]
            assert inputs.x_context[0, :, place].tolist() == column.tolist()
            assert inputs.x_query[0, :, place].tolist() == column[:3].tolist()


class _Frame:
    """Looks like a DataFrame: named columns of their own types."""

    def __init__(self, **columns: Any) -> None:
        self._columns, self.columns = columns, list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def test_a_data_frame_keeps_the_type_of_each_column() -> None:
    """Text in one column does not turn the others into text."""
    frame = _Frame(colour=np.array(["red", "blue"] * 10, object), size=np.arange(20.0))
    classifier = _classifier().fit(frame, np.arange(20) % 2)
    assert classifier._context.code.kinds.tolist() == [CATEGORY, NUMBER]
    assert classifier.predict_proba(frame).shape == (20, 2)


@pytest.mark.parametrize(
    ("x", "y", "code", "match"),
    [
        (np.zeros((0, 3)), [], ExitCode.TABLE_EMPTY, "at least one row"),
        (np.zeros((3, 0)), [0, 1, 0], ExitCode.TABLE_EMPTY, "at least one row"),
        (np.zeros(3), [0, 1, 0], ExitCode.TABLE_EMPTY, "rows and columns"),
        (np.zeros((3, 101)), [0, 1, 0], ExitCode.OVER_LIMIT, "101 features and the model takes 100"),
        (np.zeros((6, 2)), [0, 1, 2, 3, 4, 5], ExitCode.OVER_LIMIT, "6 classes and the model takes 5"),
        (np.zeros((3, 2)), [0, 1], ExitCode.TABLE_LABELS, "one label a row"),
    ],
)
def test_tables_that_the_model_cannot_take_are_refused(x: np.ndarray, y: list[int], code: ExitCode, match: str) -> None:
    """Each in one line with value and limit."""
    _refused(lambda: _classifier().fit(x, y), code=code, match=match)


def test_other_misuse_is_refused() -> None:
    """Wrong network, no context, other columns, text where numbers were, targets that are no numbers."""
    x, y, x_new = _table()
    wrong = ICLClassifier(specimen_network(LabelKind.REGRESSION))
    _refused(lambda: wrong.fit(x, y), code=ExitCode.CONFIG_MISMATCH, match="needs a classification network")
    _refused(lambda: _classifier().predict_proba(x_new), code=ExitCode.BAD_FLAG, match="call fit first")
    fitted = _classifier().fit(x, y)
    _refused(lambda: fitted.predict(x_new[:, :2]), code=ExitCode.BAD_FLAG, match="2 columns and the context has 3")
    text = np.array([["high"] * 3], object)
    _refused(lambda: fitted.predict(text), code=ExitCode.TABLE_TEXT_COLUMN, match="holds text")
    _refused(lambda: _classifier().fit(x, y, column_kinds=np.zeros(2)), code=ExitCode.BAD_FLAG, match="for 3 columns")
    _refused(lambda: _regressor().fit(x, ["a"] * ROWS), code=ExitCode.TABLE_LABELS, match="must be numbers")
    missing = np.where(y == 0, np.nan, y)
    _refused(lambda: _regressor().fit(x, missing), code=ExitCode.TABLE_LABELS, match="y lacks 7 of 20 labels")
