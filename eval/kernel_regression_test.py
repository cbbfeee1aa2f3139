"""The kernel estimator against loops, and its kinship with a retrieval head."""

import numpy as np
import pytest

from eval import kernel_regression
from priors.task import TaskKind


def _unit_rows(rows: int, *, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(rows, 6))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_gaussian_and_dot_product_kernels_agree_on_rows_of_one_norm() -> None:
    """1.2: attention with identity projections is Nadaraya–Watson with the kernel exp(q·k/√d)."""
    query, context = _unit_rows(5, seed=0), _unit_rows(9, seed=1)
    direct = np.exp(query @ context.T / np.sqrt(6))
    found = kernel_regression.dot_product_weights(query, context)
    assert np.allclose(found, direct / direct.sum(axis=1, keepdims=True))
    assert np.allclose(found, kernel_regression.gaussian_weights(query, context, width=6**0.25))


def test_weights_far_from_all_rows_stay_a_distribution() -> None:
    weights = kernel_regression.gaussian_weights(np.full((1, 3), 1e6), np.eye(3), width=0.01)
    assert np.isfinite(weights).all() and weights.sum() == pytest.approx(1)


def _energy_form(values: np.ndarray, weights: np.ndarray, *, answer: float) -> float:
    """CRPS as E|X − y| − ½ E|X − X'|, whatever the answer."""
    spread = weights @ np.abs(values[:, None] - values) @ weights
    return float(weights @ np.abs(values - answer) - spread / 2)


def test_crps_of_weighted_values_has_two_equal_forms() -> None:
    generator = np.random.default_rng(4)
    values, weights = generator.normal(size=12), generator.dirichlet(np.ones(12), 12)
    expected = [_energy_form(values, row, answer=value) for row, value in zip(weights, values, strict=True)]
    assert kernel_regression.weighted_crps(values, weights=weights, answers=values) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_width_is_the_best_when_each_row_is_left_out(kind: TaskKind) -> None:
    generator = np.random.default_rng(2)
    context = generator.normal(size=(30, 2))
    labels = (context[:, 0] > 0).astype(int)
    values = np.eye(2)[labels] if kind is TaskKind.CLASSIFICATION else np.sin(3 * context[:, :1])
    apart = np.sqrt(kernel_regression.squared_distances(context, context)[np.triu_indices(30, 1)])
    widths = [relative * float(np.median(apart)) for relative in kernel_regression.RELATIVE_WIDTHS]
    losses = []
    for width in widths:
        loss = 0.0
        for row in range(30):
            rest = np.arange(30) != row
            weights = kernel_regression.gaussian_weights(context[row : row + 1], context[rest], width=width)
            if kind is TaskKind.CLASSIFICATION:
                loss -= np.log(max((weights @ values[rest])[0, labels[row]], 1e-6))
            else:
                loss += _energy_form(values[rest, 0], weights[0], answer=values[row, 0])
        losses.append(loss)
    found = kernel_regression.chosen_width(context, values=values, kind=kind)
    assert found == pytest.approx(widths[int(np.argmin(losses))], rel=1e-3)
    assert widths[0] < found < widths[-1]


def test_identical_rows_still_get_a_width() -> None:
    mostly = np.concatenate([np.zeros((9, 1)), np.ones((1, 1))])
    for context, largest in ((np.zeros((4, 2)), 1.0), (np.zeros((1, 2)), 1.0), (mostly, np.sqrt(9 / 45))):
        width = kernel_regression.chosen_width(context, values=np.ones((len(context), 1)), kind=TaskKind.REGRESSION)
        assert 0 < width <= largest


def test_equal_weights_give_hazen_quantiles() -> None:
    values, levels = np.random.default_rng(3).normal(size=11), np.arange(1, 100) / 100
    found = kernel_regression.weighted_quantiles(values, weights=np.full((2, 11), 1 / 11), levels=levels)
    assert np.allclose(found, np.quantile(values, levels, method="hazen"))


def test_values_without_weight_do_not_matter() -> None:
    values, levels = np.array([5.0, -100.0, 1.0, 100.0]), np.array([0.1, 0.5, 0.9])
    found = kernel_regression.weighted_quantiles(values, weights=np.array([[0.5, 0.0, 0.5, 0.0]]), levels=levels)
    assert np.allclose(found, [[1.0, 3.0, 5.0]])
