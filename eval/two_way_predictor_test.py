"""Tests of the two-way transformer's answers on tables."""

import numpy as np
import torch

from eval.two_way_predictor import TwoWayPredictor
from eval.two_way_transformer import TwoWayConfig, TwoWayForm, TwoWayTransformer
from priors.task import Evidence, TaskKind

_SMALL = TwoWayConfig(width=8, num_heads=2, hidden=16, num_layers=1)


def _model() -> TwoWayTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TwoWayTransformer(TwoWayForm.MODERN, _SMALL).eval()


def _evidence(*, lacks: int | None = None) -> Evidence:
    generator = np.random.default_rng(0)
    y = np.arange(30) % 3
    if lacks is not None:
        y[y == lacks] = (lacks + 1) % 3
    return Evidence(
        x_context=generator.normal(size=(30, 4)).astype(np.float32),
        y_context=y.astype(np.float32),
        x_query=generator.normal(size=(7, 4)).astype(np.float32),
        column_kinds=np.zeros(4, np.int8),
        level_counts=np.zeros(4, np.int32),
        kind=TaskKind.CLASSIFICATION,
        num_classes=3,
    )


def test_answers_are_distributions_and_nothing_falls_to_a_class_that_the_context_lacks() -> None:
    found = TwoWayPredictor(model=_model()).classify(_evidence(lacks=1))
    assert found.shape == (7, 3)
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found[:, 1] == 0).all() and (found[:, [0, 2]] > 0).all()


def test_the_average_is_over_class_orders_each_turned_back_to_class_ids() -> None:
    """The second order is that of the seed: what it adds is the answer to renamed classes under their own names."""
    evidence, seed = _evidence(), 3
    order = np.random.default_rng(seed).permutation(3)
    assert (order != np.arange(3)).any()
    one = TwoWayPredictor(model=_model(), num_estimators=1).classify(evidence)
    both = TwoWayPredictor(model=_model(), num_estimators=2, seed=seed).classify(evidence)
    renamed = _with_labels(evidence, order[evidence.y_context.astype(int)])
    turned = TwoWayPredictor(model=_model(), num_estimators=1).classify(renamed)[:, order]
    assert np.abs(turned - one).max() > 1e-3
    np.testing.assert_allclose(both, (one + turned) / 2, atol=1e-6)


def _with_labels(evidence: Evidence, labels: np.ndarray) -> Evidence:
    return Evidence(
        x_context=evidence.x_context,
        y_context=labels.astype(np.float32),
        x_query=evidence.x_query,
        column_kinds=evidence.column_kinds,
        level_counts=evidence.level_counts,
        kind=evidence.kind,
        num_classes=evidence.num_classes,
    )
