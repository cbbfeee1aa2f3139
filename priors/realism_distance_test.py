"""Tests of the distance between domains."""

import numpy as np
import pytest

from priors.realism_distance import (
    RealParts,
    SyntheticTasks,
    coverage,
    domain_distance,
    floor_distance,
    separations,
    weighted_quantiles,
)

TABLES, PARTS, FEATURES = 48, 2, 6


def real_parts(*, tables: int = TABLES, parts: int = PARTS) -> RealParts:
    """Tables are far apart, parts of one table near each other, as real ones are."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(tables, FEATURES))
    owners = np.repeat(np.arange(tables), parts)
    return RealParts(values=centres[owners] + 0.1 * generator.normal(size=(len(owners), FEATURES)), owners=owners)


def tasks(*, shift: float = 0.0, count: int = 80, seed: int = 1) -> SyntheticTasks:
    """Tasks like the real tables, but for a shift of one feature."""
    values = np.random.default_rng(seed).normal(size=(count, FEATURES))
    values[:, 2] += shift
    return SyntheticTasks(values=values, weights=np.ones(count))


def test_domains_that_cannot_be_told_apart_have_a_distance_near_zero() -> None:
    found = domain_distance(real_parts(), tasks(), size=80, seed=0)
    assert found.value < 0.6
    assert found.low < found.value < found.high


def test_no_part_of_a_table_helps_to_tell_another() -> None:
    """2.1: held out over tables: a classifier that knew other parts of a table would tell them by heart."""
    found = domain_distance(real_parts(tables=16, parts=8), tasks(count=128), size=128, seed=0)
    assert found.value < 0.5


def test_domains_that_differ_have_a_distance_of_almost_two() -> None:
    """2.1: 2(1 − 2·error)."""
    found = domain_distance(real_parts(), tasks(shift=8.0), size=80, seed=0)
    assert found.value > 1.9
    assert found.high <= 2.0
    assert 0.6 < domain_distance(real_parts(), tasks(shift=2.0), size=80, seed=0).value < found.value


def test_the_largest_seed_of_a_forest_is_a_seed_of_a_distance() -> None:
    found = domain_distance(real_parts(), tasks(shift=8.0), size=30, seed=2**32 - 1, repeats=2)
    assert found.value > 1.9


def test_real_tables_are_at_no_distance_from_real_tables() -> None:
    """2.1: the floor."""
    found = floor_distance(real_parts(), seed=0, repeats=4)
    assert abs(found.value) < 0.5
    assert found.low <= found.value <= found.high


def test_weights_make_a_mixture_of_one_sample() -> None:
    near, far = tasks(), tasks(shift=8.0, seed=2)
    values = np.concatenate([near.values, far.values])
    only_near = np.repeat([1.0, 0.0], 80)
    found = {
        name: domain_distance(real_parts(), SyntheticTasks(values=values, weights=weights), size=80, seed=0).value
        for name, weights in (("near", only_near), ("far", 1 - only_near), ("both", np.ones(160)))
    }
    assert found["near"] < found["both"] < found["far"]
    assert found["far"] > 1.9


def test_coverage_is_about_one_half_among_the_like_and_nothing_far_away() -> None:
    real = real_parts()
    distant = SyntheticTasks(values=tasks().values + 9.0, weights=np.ones(80))
    alike, away = coverage(real, tasks(), size=80, seed=0), coverage(real, distant, size=80, seed=0)
    assert 0.3 < alike.value < 0.8
    assert away.value == 0.0
    half = tasks(count=160)
    half.values[:80, 2] += 9.0
    assert coverage(real, half, size=80, seed=0).value < alike.value


def test_features_that_tell_come_first_with_their_direction() -> None:
    """2.1: what separates, and which side has more of it."""
    names = tuple("abcdef")
    found = separations(real_parts(), tasks(shift=-3.0), names=names, seed=0)
    assert found[0].name == "c"
    assert found[0].above > 0.9
    assert found[0].low <= found[0].above <= found[0].high
    assert found[0].real[1] > found[0].synthetic[1] + 2
    assert all(abs(part.above - 0.5) < 0.3 for part in found[1:])


def test_equal_values_count_half() -> None:
    real = real_parts()
    real.values[:, 0] = 1.0
    synthetic = tasks()
    synthetic.values[:, 0] = 1.0
    found = {part.name: part.above for part in separations(real, synthetic, names=tuple("abcdef"), seed=0)}
    assert found["a"] == pytest.approx(0.5)


def test_quantiles_follow_the_weights() -> None:
    values = np.arange(100.0)
    assert weighted_quantiles(values, np.ones(100)) == pytest.approx((9, 49, 89), abs=1)
    assert weighted_quantiles(values, (values < 10).astype(float)) == pytest.approx((0, 4, 8), abs=1)
