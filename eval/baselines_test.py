"""Baselines: sound on every legal input, blind to what they must not see, and not weaker than scikit-learn's own."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model, neighbors

from eval import baselines, design_matrix, scores, tables
from priors.task import ColumnKind, Evidence, TaskKind

CLS, REG = TaskKind.CLASSIFICATION, TaskKind.REGRESSION
NUMBER, CATEGORY = ColumnKind.NUMBER, ColumnKind.CATEGORY
_ALL = [pytest.param(one, id=one.name) for one in baselines.all_baselines(num_trees=20)]


def _evidence(kind: TaskKind, *, num_context: int = 60, num_query: int = 40, **changes: Any) -> Evidence:
    """Two numbers with missing and infinite values and a category, all telling; classes 0, 2 of 0..3."""
    generator = np.random.default_rng(0)
    rows = num_context + num_query
    x = np.stack([generator.normal(size=rows), generator.normal(size=rows), generator.integers(0, 4, rows)], axis=1)
    signal = x[:, 0] + (x[:, 2] == 1) + 0.2 * generator.normal(size=rows)
    y = 2.0 * (signal > 0.3) if kind is CLS else 100 + 20 * signal
    x[::7, 1], x[3, 1], x[-2, 1], x[-1, 2] = np.nan, np.inf, -np.inf, 4
    values = {
        "x_context": x[:num_context].astype(np.float32),
        "y_context": y[:num_context].astype(np.float32),
        "x_query": x[num_context:].astype(np.float32),
        "column_kinds": np.array([NUMBER, NUMBER, CATEGORY], np.int8),
        "level_counts": np.array([0, 0, 4], np.int32),
        "kind": kind,
        "num_classes": 4 if kind is CLS else 0,
    }
    return Evidence(**(values | changes))


def _answer(predictor: baselines.Predictor, evidence: Evidence) -> np.ndarray:
    """Probabilities, or mean and quantiles side by side; every warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if evidence.kind is CLS:
            return predictor.classify(evidence)
        forecast = predictor.forecast(evidence)
    return np.concatenate([forecast.mean[:, None], forecast.quantiles], axis=1)


def test_the_baselines_have_the_names_of_the_result_files() -> None:
    assert [one.name for one in baselines.all_baselines()] == ["majority", "knn", "linear", "random_forest", "kernel"]


@pytest.mark.parametrize("predictor", _ALL)
def test_probabilities_stand_by_class_id_and_absent_classes_have_none(predictor: baselines.Predictor) -> None:
    """6.5: classes unseen in the context have probability 0."""
    p = _answer(predictor, _evidence(CLS))
    assert p.shape == (40, 4) and np.allclose(p.sum(axis=1), 1)
    assert (p[:, [1, 3]] == 0).all() and (p[:, [0, 2]] > 0).all()


@pytest.mark.parametrize("predictor", _ALL)
def test_quantiles_ascend_and_are_finite(predictor: baselines.Predictor) -> None:
    """6.12: regression is judged on the distribution too."""
    forecast = predictor.forecast(_evidence(REG))
    assert forecast.mean.shape == (40,) and forecast.quantiles.shape == (40, 99)
    assert np.isfinite(forecast.mean).all() and (np.diff(forecast.quantiles, axis=1) >= -1e-9).all()


@pytest.mark.parametrize("predictor", _ALL)
@pytest.mark.parametrize("kind", [CLS, REG])
def test_a_query_is_answered_alone_as_among_others(predictor: baselines.Predictor, kind: TaskKind) -> None:
    """6.12: imputation, scaling and levels are fitted on context rows only (every other query row is changed)."""
    evidence = _evidence(kind)
    other = np.where(np.arange(40)[:, None] == 5, evidence.x_query, 50 * evidence.x_query + 3).astype(np.float32)
    other[:, 2] = evidence.x_query[::-1, 2]
    other[5] = evidence.x_query[5]
    whole = _answer(predictor, evidence)[5]
    among = _answer(predictor, dataclasses.replace(evidence, x_query=other))[5]
    alone = _answer(predictor, dataclasses.replace(evidence, x_query=evidence.x_query[5:6]))[0]
    assert np.allclose(whole, among, rtol=1e-9) and np.allclose(whole, alone, rtol=1e-9)


@pytest.mark.parametrize("predictor", _ALL)
def test_context_of_one_class_is_answered_with_certainty(predictor: baselines.Predictor) -> None:
    evidence = _evidence(CLS, y_context=np.full(60, 3, np.float32))
    assert np.allclose(_answer(predictor, evidence), np.eye(4)[3])


@pytest.mark.parametrize("predictor", _ALL)
def test_a_constant_target_is_forecast_as_it_is(predictor: baselines.Predictor) -> None:
    evidence = _evidence(REG, y_context=np.full(60, 7, np.float32))
    assert np.allclose(_answer(predictor, evidence), 7)


@pytest.mark.parametrize("predictor", _ALL)
@pytest.mark.parametrize("kind", [CLS, REG])
@pytest.mark.parametrize("num_context", [1, 2, 3])
def test_a_handful_of_context_rows_is_enough(predictor: baselines.Predictor, kind: TaskKind, num_context: int) -> None:
    answer = _answer(predictor, _evidence(kind, num_context=num_context))
    assert np.isfinite(answer).all()


@pytest.mark.parametrize("predictor", _ALL)
@pytest.mark.parametrize("kind", [CLS, REG])
def test_extreme_and_empty_columns_are_survived(predictor: baselines.Predictor, kind: TaskKind) -> None:
    evidence = _evidence(kind)
    x_context, x_query = evidence.x_context.copy(), evidence.x_query.copy()
    x_context[:, 1] = np.nan
    x_query[:, 0] *= np.float32(1e30)
    x_query[0] = np.nan
    evidence = dataclasses.replace(evidence, x_context=x_context, x_query=x_query)
    assert np.isfinite(_answer(predictor, evidence)).all()
    hopeless = dataclasses.replace(evidence, x_context=np.full_like(x_context, np.nan))
    assert np.isfinite(_answer(predictor, hopeless)).all()


@pytest.mark.parametrize("predictor", _ALL)
def test_padded_columns_are_not_read(predictor: baselines.Predictor) -> None:
    evidence = _evidence(CLS)
    noise = np.random.default_rng(1).normal(size=(100, 1)).astype(np.float32)
    padded = dataclasses.replace(
        evidence,
        x_context=np.concatenate([evidence.x_context, noise[:60]], axis=1),
        x_query=np.concatenate([evidence.x_query, noise[60:]], axis=1),
        column_kinds=np.append(evidence.column_kinds, np.int8(ColumnKind.ABSENT)),
        level_counts=np.append(evidence.level_counts, np.int32(0)),
    )
    assert np.array_equal(_answer(predictor, evidence), _answer(predictor, padded))


def test_a_logistic_fit_that_is_cut_short_is_used_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = linear_model.LogisticRegression
    monkeypatch.setattr(linear_model, "LogisticRegression", lambda max_iter: whole(max_iter=max_iter // 1000))
    assert np.isfinite(_answer(baselines.Linear(), _evidence(CLS))).all()


def test_smoothed_votes_rank_like_plain_ones() -> None:
    """The pseudo-vote costs kNN nothing: its AUC is that of scikit-learn's classifier, and no class gets a bare 0."""
    (table,) = [one for one in tables.load_sklearn_tables(CLS) if one.name == "breast_cancer"]
    episode = tables.split(table, seed=0)
    evidence, design = episode.evidence(), design_matrix.standardised(episode.evidence())
    plain = neighbors.KNeighborsClassifier(10).fit(design.context, evidence.y_context).predict_proba(design.query)
    ours = baselines.NearestNeighbours().classify(evidence)
    assert scores.one_vs_rest_auc(ours, episode.answers().astype(int)) == pytest.approx(
        scores.one_vs_rest_auc(plain, episode.answers().astype(int)), abs=1e-12
    )
    assert ours.min() > 0 and np.abs(ours - plain).max() < 0.1


def test_every_baseline_but_the_majority_is_strong_on_easy_tables() -> None:
    """A weak baseline would flatter every model: AUC on wine and R² on diabetes have floors."""
    (wine,) = [one for one in tables.load_sklearn_tables(CLS) if one.name == "wine"]
    (diabetes,) = tables.load_sklearn_tables(REG)
    easy, hard = tables.split(wine, seed=0), tables.split(diabetes, seed=0)
    for predictor in baselines.all_baselines(num_trees=100)[1:]:
        found = scores.classification_scores(predictor.classify(easy.evidence()), easy.answers())
        assert found["auc_ovr"] > 0.985 and found["nll"] < 0.3, predictor.name
        found = scores.regression_scores(predictor.forecast(hard.evidence()), hard.answers())
        assert found["r2"] > 0.3 and 0.75 < found["coverage90"] < 0.97, predictor.name
