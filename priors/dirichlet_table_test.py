"""Lookup tables: the key columns decide, and nothing else does."""

import itertools

import numpy as np
import pytest

from priors.dirichlet_table import DirichletTableConfig, cells_of, key_sets, sample_dirichlet_table
from priors.draws import Draws


@pytest.mark.parametrize("features", [1, 2, 5])
def test_key_sets_are_all_choices_and_each_size_is_as_likely(features: int) -> None:
    sets = dict(key_sets(DirichletTableConfig(max_keys=3), features=features))
    sizes = range(1, min(3, features) + 1)
    assert set(sets) == {c for size in sizes for c in itertools.combinations(range(features), size)}
    for size in sizes:
        assert sum(p for keys, p in sets.items() if len(keys) == size) == pytest.approx(1 / len(sizes))


def test_cells_differ_exactly_where_a_key_differs() -> None:
    x = np.random.default_rng(0).integers(0, 3, (60, 4))
    cells = cells_of(x, (1, 3), max_levels=3)
    for i, j in itertools.combinations(range(60), 2):
        assert (cells[i] == cells[j]) == np.array_equal(x[i, [1, 3]], x[j, [1, 3]])


def test_with_certain_cells_the_class_is_a_function_of_some_key_set_of_the_drawn_size() -> None:
    config = DirichletTableConfig(concentrations=(1e-4,))
    draft = sample_dirichlet_table(Draws(2), config, count=30, rows=300, features=3)
    for x, y, size in zip(draft.x, draft.y, draft.facts["relevant"], strict=True):
        functional = []
        for keys in itertools.combinations(range(3), int(size)):
            cells = cells_of(x, keys, max_levels=4)
            functional.append(all(len(np.unique(y[cells == cell])) == 1 for cell in np.unique(cells)))
        assert any(functional)


def test_all_levels_and_classes_are_drawn_evenly() -> None:
    draft = sample_dirichlet_table(Draws(0), DirichletTableConfig(), count=4000, rows=10, features=2)
    four = draft.level_counts == 4
    shares = np.bincount(draft.x.transpose(0, 2, 1)[four].astype(int).ravel(), minlength=4) / (four.sum() * 10)
    assert np.abs(shares - 0.25).max() < 0.01
    three = draft.y[draft.num_classes == 3].astype(int)
    assert np.abs(np.bincount(three.ravel(), minlength=3) / three.size - 1 / 3).max() < 0.03
