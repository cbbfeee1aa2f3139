"""Tests of meta-features of columns."""

import numpy as np
import pytest

from priors.column_features import (
    column_shape,
    dependence_features,
    geometry_features,
    marginal_features,
    missing_features,
    ranked,
)


def table(*, rows: int = 200, columns: int = 6, seed: int = 0) -> np.ndarray:
    """Independent normal columns."""
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_units_and_offsets_change_nothing() -> None:
    """2.1: a prior that standardises its columns is compared by the shape of its values."""
    x = table()
    x[:, 0] = np.exp(x[:, 0])
    x[:, 1] = np.round(x[:, 1])
    moved = x * np.array([1e-3, 1, 7, 2, 1e5, 1]) + np.array([0, 3, -1, 0, 9, 0])
    for features in (marginal_features, missing_features, dependence_features):
        assert features(moved) == pytest.approx(features(x), abs=1e-6)


def test_shapes_are_told_apart() -> None:
    z = np.random.default_rng(1).normal(size=4000)
    plain, skewed, binary = column_shape(z), column_shape(np.exp(z)), column_shape((z > 0).astype(float))
    assert abs(plain["skew"]) < 0.1 < skewed["skew"]
    assert column_shape(-np.exp(z))["skew"] == pytest.approx(-skewed["skew"])
    assert plain["tails"] == pytest.approx(np.log(4), abs=0.1)
    assert plain["humps"] == pytest.approx(1 / 3, abs=0.03)
    assert binary["humps"] == pytest.approx(1.0, abs=0.01)
    assert (binary["distinct"], plain["distinct_ratio"]) == (2, 1)
    assert skewed["far_share"] > 0.01 > plain["far_share"]
    assert column_shape(np.maximum(z, 0))["at_minimum"] == pytest.approx((z <= 0).mean())


def test_columns_without_values_or_beyond_measure_are_finite() -> None:
    odd = np.stack([np.full(50, np.nan), np.zeros(50), np.linspace(-3e38, 3e38, 50), np.r_[np.inf, np.arange(49.0)]], 1)
    for features in (marginal_features, missing_features, dependence_features):
        assert all(np.isfinite(value) for value in features(odd).values())


def test_missing_cells_are_counted_by_column_and_row() -> None:
    x = table(columns=4)
    x[:50, 0] = x[:50, 1] = np.nan
    found = missing_features(x)
    assert found["missing_share"] == pytest.approx(100 / 800)
    assert found["missing_columns"] == 0.5
    assert (found["missing_rows"], found["missing_most"], found["missing_together"]) == (0.25, 0.25, 1.0)
    assert set(missing_features(table()).values()) == {0.0}


def test_correlated_columns_have_neighbours_and_fewer_dimensions() -> None:
    x = table(rows=400, columns=6)
    one = x[:, :1] + 0.1 * x
    apart, together = dependence_features(x), dependence_features(one)
    assert together["nearest"] > 0.9 > 0.3 > apart["nearest"]
    assert together["correlation_sign"] > 0.9
    assert together["effective_share"] < 0.4 < 0.9 < apart["effective_share"]
    assert together["first_share"] > 0.8 > apart["first_share"]
    assert dependence_features(one * np.array([1, -1] * 3))["correlation_sign"] < 0


def test_rows_on_a_curve_have_one_dimension() -> None:
    angle = np.random.default_rng(2).uniform(0, 2 * np.pi, 500)
    curve = np.stack([np.sin(angle), np.cos(angle), np.sin(angle + 1), np.cos(angle + 1)], 1)
    found = np.expm1(geometry_features(ranked(curve))["local_dimension"]) * 4
    assert found == pytest.approx(1, abs=0.2)
    assert np.expm1(geometry_features(ranked(table(rows=500, columns=2)))["local_dimension"]) * 2 == pytest.approx(
        2, abs=0.4
    )


def test_copied_rows_are_counted() -> None:
    x = table(rows=100)
    assert geometry_features(ranked(np.concatenate([x, x[:20]])))["copied_rows"] == pytest.approx(40 / 120)


def test_ranks_are_middle_ranks_with_missing_cells_in_the_middle() -> None:
    x = np.array([[1.0], [5.0], [5.0], [np.nan], [9.0]])
    assert ranked(x)[:, 0] == pytest.approx([-0.375, 0, 0, 0, 0.375])
