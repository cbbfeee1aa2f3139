"""Remembered contexts: equal answers, no second pass over the context, nothing kept from an earlier fit."""

import numpy as np
import pytest
import torch
from sklearn import base
from torch.utils.flop_counter import FlopCounterMode

from model.estimator import ICLClassifier, ICLRegressor
from model.icl_transformer import AttentionPath
from model.label_injection import LabelKind
from model.specimens import specimen_network
from tools.failure import BadInput

KINDS = list(LabelKind)
Estimator = ICLClassifier | ICLRegressor


def _estimator(kind: LabelKind, *, cache: bool) -> Estimator:
    network = specimen_network(kind, dtype=torch.float64).requires_grad_(False)
    return (ICLClassifier if kind is LabelKind.CLASSIFICATION else ICLRegressor)(network, cache=cache)


def _table(seed: int, *, rows: int = 60, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, columns)), np.arange(rows) % 3


def _answers(estimator: Estimator, x: np.ndarray) -> np.ndarray:
    if isinstance(estimator, ICLClassifier):
        return estimator.predict_proba(x)
    return estimator.predict_quantiles(x, [0.1, 0.5, 0.9])


@pytest.mark.parametrize("kind", KINDS)
def test_remembered_contexts_answer_as_others_do(kind: LabelKind) -> None:
    """5.9, 5.1: first and later predictions, for one query or many."""
    (x, y), (x_new, _) = _table(0), _table(1, rows=5)
    plain, kept = (_estimator(kind, cache=cache).fit(x, y) for cache in (False, True))
    for queries in (x_new, x_new[:1], x_new[::-1], x_new):
        np.testing.assert_allclose(_answers(kept, queries), _answers(plain, queries), atol=1e-9)


@pytest.mark.parametrize("path", list(AttentionPath))
@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_does_not_depend_on_the_path_that_the_network_is_set_to(kind: LabelKind, path: AttentionPath) -> None:
    """5.5: a context is remembered in one way, also where the network runs its reference path."""
    (x, y), (x_new, _) = _table(0), _table(1, rows=5)
    plain, kept = (_estimator(kind, cache=cache).fit(x, y) for cache in (False, True))
    kept.network.icl.path = path
    np.testing.assert_allclose(_answers(kept, x_new), _answers(plain, x_new), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_prediction_costs_far_less(kind: LabelKind) -> None:
    """5.1: counted in floating-point operations; without a cache every prediction costs the same."""
    (x, y), (x_new, _) = _table(0), _table(1, rows=1)
    costs = {}
    for cache in (False, True):
        estimator, costs[cache] = _estimator(kind, cache=cache).fit(x, y), []
        for _ in range(3):
            with FlopCounterMode(display=False) as counter:
                _answers(estimator, x_new)
            costs[cache].append(counter.get_total_flops())
    assert len(set(costs[False])) == 1
    first, second, third = costs[True]
    assert second == third and second < first / 10


@pytest.mark.parametrize("kind", KINDS)
def test_another_fit_forgets_the_context(kind: LabelKind) -> None:
    """5.E: no stale label: the answers are those of a fresh estimator."""
    (x, y), (x_new, _) = _table(0), _table(1, rows=5)
    used = _estimator(kind, cache=True).fit(x, y)
    before = _answers(used, x_new)
    again = _answers(used.fit(x, (y + 1) % 3), x_new)
    np.testing.assert_array_equal(again, _answers(_estimator(kind, cache=True).fit(x, (y + 1) % 3), x_new))
    assert np.abs(again - before).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_or_network_is_not_answered_from_memory(kind: LabelKind) -> None:
    """5.E: nothing stale: the answers are those of a fresh estimator, there and back."""
    (x, y), (x_new, _) = _table(0, columns=6), _table(1, rows=5, columns=6)
    used = _estimator(kind, cache=True).fit(x, y)
    before, first = _answers(used, x_new), used.network
    other = specimen_network(kind, seed=1, dtype=torch.float64)
    for changes in ({"seed": 1}, {"network": other}, {"num_estimators": 6}, {"network": first, "seed": 0}):
        used.set_params(**changes)
        fresh = base.clone(used).fit(x, y)
        np.testing.assert_allclose(_answers(used, x_new), _answers(fresh, x_new), atol=1e-9)
        if len(changes) == 1:
            assert np.abs(_answers(used, x_new) - before).max() > 1e-6
    np.testing.assert_allclose(_answers(used.set_params(num_estimators=4), x_new), before, atol=1e-9)


def test_a_network_of_another_kind_is_refused_at_prediction_too() -> None:
    (x, y), other = _table(0), specimen_network(LabelKind.REGRESSION, dtype=torch.float64)
    used = _estimator(LabelKind.CLASSIFICATION, cache=True).fit(x, y).set_params(network=other)
    with pytest.raises(BadInput, match="needs a classification network and got a regression one"):
        used.predict(x)
