"""The estimators among scikit-learn's: what they are, DataFrames, refusals that change nothing, many queries."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import base, exceptions, model_selection

from model.estimator import ICLClassifier, ICLRegressor
from model.label_injection import LabelKind
from model.specimens import specimen_network
from tools.failure import BadInput, ExitCode

KINDS = list(LabelKind)
Estimator = ICLClassifier | ICLRegressor


def _estimator(kind: LabelKind, *, dtype: torch.dtype = torch.float32, **settings: Any) -> Estimator:
    network = specimen_network(kind, dtype=dtype)
    return (ICLClassifier if kind is LabelKind.CLASSIFICATION else ICLRegressor)(network, **settings)


def _table(rows: int = 30, *, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(seed).normal(size=(rows, columns)), np.arange(rows) % 3


def _answers(estimator: Estimator, x: Any) -> np.ndarray:
    if isinstance(estimator, ICLClassifier):
        return estimator.predict_proba(x)
    return estimator.predict_quantiles(x, [0.1, 0.5, 0.9])


def _fit(x: Any, y: Any, *, kind: LabelKind = LabelKind.CLASSIFICATION, **settings: Any) -> Estimator:
    return _estimator(kind, num_estimators=2, **settings).fit(x, y)


def _refused(action: Callable[[], Any], *, code: ExitCode, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        action()
    assert isinstance(caught.value, BadInput) and caught.value.code is code and "\n" not in str(caught.value)


def test_scikit_learn_knows_which_is_which() -> None:
    """So that its cross-validation stratifies classes: y sorted by class would else give folds of unseen ones."""
    classifier, regressor = (_estimator(kind, num_estimators=1) for kind in KINDS)
    assert base.is_classifier(classifier) and not base.is_regressor(classifier)
    assert base.is_regressor(regressor) and not base.is_classifier(regressor)
    x, y = _table()
    scores = model_selection.cross_val_score(classifier, x, np.sort(y), cv=5)
    assert scores.shape == (5,) and np.isfinite(scores).all()
    folds = model_selection.check_cv(5, np.sort(y), classifier=base.is_classifier(classifier)).split(x, np.sort(y))
    assert all(set(np.sort(y)[train]) == {0, 1, 2} for train, _ in folds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_fit_leaves_the_earlier_context(kind: LabelKind) -> None:
    """Whatever step refuses it."""
    x, y = _table()
    estimator = _fit(pd.DataFrame(x, columns=["a", "b", "c"]), y, kind=kind)
    before, state = _answers(estimator, x), dict(vars(estimator))
    wrong: list[tuple[Any, Any, Any]] = [
        (x[:5], 100 + y[:4], None),
        (np.zeros((5, 101)), 100 + y[:5], None),
        (x[:5, :2], 100 + y[:5], [0, 7]),
        (x[:5, :2], [1, None, 2, 3, 4], None),
        (np.array([["x"], ["y"]], object), [8, 9], [0]),
        (x[:0], y[:0], None),
    ]
    for other, labels, kinds in wrong:
        with pytest.raises(BadInput):
            estimator.fit(other, labels, column_kinds=kinds)
        assert all(vars(estimator)[name] is value for name, value in state.items()) and len(vars(estimator)) == len(
            state
        )
    assert np.array_equal(_answers(estimator, x), before)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_a_data_frame_go_by_name(kind: LabelKind) -> None:
    """Categories, text, times and numbers; a refit on an array forgets the names."""
    x, y = _table()
    frame = pd.DataFrame(
        {
            "size": x[:, 0],
            "grade": pd.Categorical(y + 7),
            "colour": np.array(["red", "blue"])[y % 2],
            "when": pd.date_range("2024-01-01", periods=30, freq="s"),
        }
    )
    estimator = _fit(frame, y, kind=kind)
    assert estimator.feature_names_in_.tolist() == list(frame.columns) and estimator.n_features_in_ == 4
    expected = _answers(estimator, frame)
    assert np.array_equal(_answers(estimator, frame[["when", "colour", "size", "grade"]]), expected)
    shuffled = frame.assign(when=frame["when"].to_numpy()[::-1])
    assert np.abs(_answers(estimator, shuffled) - expected).max() > 1e-3  # seconds are told apart
    renamed = frame.rename(columns={"size": "Size"})
    _refused(lambda: estimator.predict(renamed), code=ExitCode.BAD_FLAG, match="lacks 'size'.*has 'Size'")
    assert not hasattr(estimator.fit(x, y), "feature_names_in_")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [1.7e9, -3e12])
def test_predictions_follow_the_origin_of_a_column(kind: LabelKind, start: float) -> None:
    """Times and long numbers do not collapse to one value in fp32."""
    steps, y = np.arange(40.0)[:, None], np.arange(40) * 3 // 40
    plain, moved = _fit(steps, y, kind=kind), _fit(steps + start, y, kind=kind)
    expected = _answers(plain, steps)
    assert np.ptp(expected, axis=0).max() > 1e-2
    assert np.abs(_answers(moved, steps + start) - expected).max() < 1e-4


def test_long_ids_are_categories_of_their_own() -> None:
    """20000000 and 20000001 are one number in fp32."""
    ids = 20000000 + (np.arange(30) % 2)[:, None]
    found = _fit(ids, np.arange(30) % 2).set_params(num_estimators=1)
    declared = found.fit(ids, np.arange(30) % 2, column_kinds=[2]).predict_proba(ids[:2])
    short = found.fit(ids - 20000000, np.arange(30) % 2, column_kinds=[2]).predict_proba(ids[:2] - 20000000)
    assert np.array_equal(declared, short) and np.abs(declared[0] - declared[1]).max() > 1e-3


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_targets_may_be_as_large_or_small_as_fp64_holds(unit: float) -> None:
    """6.9: the spread is taken after division by the largest magnitude."""
    x, _ = _table()
    plain, moved = (_fit(x, x[:, 0] * factor, kind=LabelKind.REGRESSION) for factor in (1.0, unit))
    assert np.abs(plain.predict(x)).max() > 0.01
    np.testing.assert_allclose(moved.predict(x) / unit, plain.predict(x), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(_answers(moved, x) / unit, _answers(plain, x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"seed": None}, "seed is None: give a whole number from 0 on"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"seed": True}, "seed is True"),
        ({"num_estimators": 0}, "num_estimators is 0: give a whole number from 1 on"),
        ({"num_estimators": "4"}, "num_estimators is '4'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], match: str) -> None:
    """At fit, and at a prediction after they were changed."""
    x, y = _table()
    _refused(lambda: _estimator(LabelKind.CLASSIFICATION, **settings).fit(x, y), code=ExitCode.BAD_FLAG, match=match)
    fitted = _fit(x, y).set_params(**settings)
    _refused(lambda: fitted.predict(x), code=ExitCode.BAD_FLAG, match=match)


def test_a_prediction_before_fit_is_refused_in_both_languages() -> None:
    """Ours and scikit-learn's."""
    x, y = _table()
    classifier, regressor = (_estimator(kind) for kind in KINDS)
    for action in (
        lambda: classifier.predict(x),
        lambda: classifier.predict_proba(x),
        lambda: classifier.score(x, y),
        lambda: regressor.predict(x),
        lambda: regressor.predict_quantiles(x, [0.5]),
        lambda: regressor.forecast(x, levels=[0.5]),
        lambda: regressor.score(x, y),
    ):
        with pytest.raises(exceptions.NotFittedError, match="has no context yet: call fit first"):
            action()
        _refused(action, code=ExitCode.BAD_FLAG, match="call fit first")


@pytest.mark.parametrize("levels", [0.5, [[0.1, 0.9]], "0.5", ["low"], None, [None], [0.5, [0.1]], [0.5j]])
def test_levels_are_a_list_of_numbers(levels: Any) -> None:
    x, y = _table()
    regressor = _fit(x, y, kind=LabelKind.REGRESSION)
    _refused(lambda: regressor.predict_quantiles(x, levels), code=ExitCode.BAD_LEVEL, match="levels .* give a list of")


@pytest.mark.parametrize(
    ("x", "y", "code"),
    [
        ([[1.0], [1.0, 2.0]], [0, 1], ExitCode.TABLE_EMPTY),
        ([[1.0], [1.0j]], [0, 1], ExitCode.BAD_FLAG),
        ([[1.0], [2.0]], [0, None], ExitCode.TABLE_LABELS),
        ([[1.0], [2.0]], [0, math.nan], ExitCode.TABLE_LABELS),
        ([[1.0], [2.0]], ["a", None], ExitCode.TABLE_LABELS),
        ([[1.0], [2.0]], [1, 1j], ExitCode.TABLE_LABELS),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_tables_and_labels_are_refused(kind: LabelKind, x: Any, y: Any, code: ExitCode) -> None:
    _refused(lambda: _fit(x, y, kind=kind), code=code, match="give|drop")


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize(("columns", "count"), [(40, 3000), (1, 5000)])
@pytest.mark.parametrize("kind", KINDS)
def test_many_queries_pass_in_parts(kind: LabelKind, columns: int, count: int, cache: bool) -> None:
    """5.9: rows in one pass are bounded; answers are those of small predictions."""
    x, y = _table(columns=columns)
    queries, _ = _table(count, columns=columns, seed=1)
    estimator = _fit(x, y, kind=kind, cache=cache).set_params(num_estimators=1)
    rows: list[int] = []
    estimator.network.row_readout.register_forward_pre_hook(lambda _, arguments: rows.append(arguments[0].shape[1]))
    together = _answers(estimator, queries)
    assert max(rows) <= len(x) + min(2**16 // columns, 4096) and sum(rows) >= len(queries)
    parts = np.concatenate([_answers(estimator, queries[start : start + 500]) for start in range(0, count, 500)])
    assert np.abs(together - parts).max() < 1e-4
    rows.clear()
    _answers(estimator, queries[:5])
    assert len(rows) == 1


def test_without_memory_no_more_passes_are_made_than_the_context_is_worth() -> None:
    """Each of them goes over the context again: so many queries as context rows go at once, whatever the bound."""
    x, y = _table(5000, columns=1)
    estimator, rows = _fit(x, y, cache=False).set_params(num_estimators=1), list[int]()
    estimator.network.row_readout.register_forward_pre_hook(lambda _, arguments: rows.append(arguments[0].shape[1]))
    estimator.predict(x)
    assert rows == [10000]


def test_no_queries_are_refused() -> None:
    x, y = _table()
    _refused(lambda: _fit(x, y).predict(x[:0]), code=ExitCode.TABLE_EMPTY, match="0 rows")
