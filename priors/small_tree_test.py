"""Small trees: cuts on ordinal columns, as many leaves as stated, and labels that a tree explains."""

import itertools

import numpy as np

from priors.draws import Draws
from priors.small_tree import SmallTreeConfig, cuts_of, sample_small_tree


def test_cuts_are_all_thresholds_between_levels() -> None:
    assert cuts_of(np.array([2, 4])).tolist() == [[0, 1], [1, 1], [1, 2], [1, 3]]


def test_the_number_of_leaves_follows_the_shares() -> None:
    config = SmallTreeConfig(root_share=0.9, child_share=0.6)
    leaves = sample_small_tree(Draws(0), config, count=8000, rows=1, features=2).facts["leaves"]
    expected = [0.1, 0.9 * 0.16, 0.9 * 0.48, 0.9 * 0.36]
    assert np.abs(np.bincount(leaves, minlength=5)[1:] / 8000 - expected).max() < 0.02
    single = sample_small_tree(Draws(0), SmallTreeConfig(root_share=0.0), count=50, rows=1, features=2)
    assert (single.facts["leaves"] == 1).all()


def test_with_certain_leaves_some_tree_of_depth_two_explains_every_label() -> None:
    config = SmallTreeConfig(concentration=1e-4, max_levels=3)
    draft = sample_small_tree(Draws(1), config, count=20, rows=120, features=3)
    used = 0
    for x, y, levels in zip(draft.x, draft.y, draft.level_counts, strict=True):
        sides = [x[:, c] >= t for c, t in cuts_of(levels)]
        assert any(
            all(len(set(y[part])) <= 1 for part in (~root & ~low, ~root & low, root & ~high, root & high))
            for root, low, high in itertools.product(sides, repeat=3)
        )
        used += len(set(y.tolist())) > 1
    assert used > 10


def test_trees_differ_from_task_to_task_and_use_every_column() -> None:
    draft = sample_small_tree(
        Draws(3), SmallTreeConfig(root_share=1.0, child_share=0.0), count=300, rows=200, features=3
    )
    strongest = []
    for x, y in zip(draft.x, draft.y, strict=True):
        gaps = [abs((y[x[:, c] >= 1] == 0).mean() - (y[x[:, c] < 1] == 0).mean()) for c in range(3)]
        strongest.append(int(np.argmax(gaps)))
    assert np.bincount(strongest, minlength=3).min() > 50
