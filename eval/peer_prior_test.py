"""Tests of eval/peer_prior.py, in the environment of peers (`peers = True`)."""

import pathlib
import random
import sys

import numpy as np
import pytest
import torch
from tabicl.prior._dataset import compute_predictability_pvalue

from eval.peer_prior import PeerPriorConfig, PeerPriorName, sample_peer_tasks
from tools.failure import BadInput, ExitCode

_SMALL = {"rows": 64, "features": 5}


@pytest.mark.parametrize("prior", PeerPriorName)
def test_every_prior_gives_tables_of_the_asked_shape_with_whole_class_ids(prior: PeerPriorName) -> None:
    tasks = sample_peer_tasks(PeerPriorConfig(prior=prior, **_SMALL), seed=1, count=6)
    assert len(tasks.x) == len(tasks.y) == 6
    assert tasks.seconds > 0
    for x, y in zip(tasks.x, tasks.y, strict=True):
        assert x.dtype == np.float32
        assert x.shape[0] == len(y) == 64
        assert 1 <= x.shape[1] <= 5
        assert np.isfinite(x).all()
        assert (x.max(0) > x.min(0)).all()
        assert y.min() == 0 and 2 <= y.max() + 1 <= 10


def test_equal_seeds_give_equal_tasks_and_others_do_not() -> None:
    config = PeerPriorConfig(prior=PeerPriorName.GRAPH_SCM, **_SMALL)
    one, again, other = (sample_peer_tasks(config, seed=seed, count=2) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.x + one.y, again.x + again.y, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one.y, other.y, strict=True))


def test_the_global_generators_are_left_as_they_were() -> None:
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    sample_peer_tasks(PeerPriorConfig(prior=PeerPriorName.MLP_SCM, **_SMALL), seed=5, count=1)
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_with_the_filter_extra_trees_predict_every_task() -> None:
    def unpredictable(*, filtered: bool) -> int:
        config = PeerPriorConfig(prior=PeerPriorName.GRAPH_SCM, filtered=filtered, **_SMALL)
        tasks = sample_peer_tasks(config, seed=0, count=12)
        pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(tasks.x, tasks.y, strict=True)]
        return sum(compute_predictability_pvalue(x, y, is_classif=True) >= 0.05 for x, y in pairs)

    assert unpredictable(filtered=False) > 0
    assert unpredictable(filtered=True) == 0


def test_a_saved_file_is_read_without_pickles(tmp_path: pathlib.Path) -> None:
    tasks = sample_peer_tasks(PeerPriorConfig(prior=PeerPriorName.TREE_SCM, **_SMALL), seed=2, count=3)
    tasks.save(tmp_path / "tasks.npz")
    with np.load(tmp_path / "tasks.npz", allow_pickle=False) as found:
        assert sorted(found) == ["x_0", "x_1", "x_2", "y_0", "y_1", "y_2"]
        assert all(np.array_equal(found[f"x_{i}"], tasks.x[i]) for i in range(3))
        assert all(np.array_equal(found[f"y_{i}"], tasks.y[i]) for i in range(3))


@pytest.mark.parametrize(
    ("sizes", "seed", "count", "complaint"),
    [
        ({"rows": 8}, 0, 1, "--rows 8 is too small: give 16 or more"),
        ({"features": 1}, 0, 1, "--features 1 is too small"),
        ({"max_classes": 1}, 0, 1, "--max-classes 1 is too small"),
        ({}, 0, 0, "--num-tasks 0 is too small"),
        ({}, -1, 1, "--seed -1 is outside"),
        ({}, 2**32, 1, "--seed 4294967296 is outside"),
    ],
)
def test_impossible_requests_are_refused(sizes: dict[str, int], seed: int, count: int, complaint: str) -> None:
    config = PeerPriorConfig(prior=PeerPriorName.MLP_SCM, **sizes)
    with pytest.raises(BadInput, match=complaint) as caught:
        sample_peer_tasks(config, seed=seed, count=count)
    assert caught.value.code is ExitCode.BAD_FLAG


def test_without_xgboost_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)  # Python's way of hiding a module
    with pytest.raises(BadInput, match="needs xgboost, which is absent: install xgboost-cpu") as caught:
        sample_peer_tasks(PeerPriorConfig(prior=PeerPriorName.MLP_SCM), seed=0, count=1)
    assert caught.value.code is ExitCode.NOT_FOUND
