"""What the report draws is what the network computed."""

import json

import numpy as np
import pytest
import torch

from eval.small_network import rerandomised_network
from eval.specimens import specimens
from eval.subject import Subject
from eval.views import CURVE_LEVELS, influence, sample_episode, views
from priors.task import TaskKind


def test_the_views_of_a_classification_episode() -> None:
    """5.6, 6.D: the four-block mask, weights that respect it, read weights, and the prediction that they make."""
    kind = TaskKind.CLASSIFICATION
    network, episode = rerandomised_network(kind), sample_episode(kind, num_context=9, num_query=4)
    found = json.loads(json.dumps(views(network, episode)))
    assert (found["num_context"], found["num_query"]) == (9, 4)
    assert found["mask"] == [[1] * 9 + [0] * 4] * 13
    weights = np.array(found["weights"])
    assert weights.shape == (13, 13) and (weights[:, 9:] == 0).all() and np.allclose(weights.sum(1), 1, atol=1e-4)
    read, labels = np.array(found["read_weights"]), np.array(found["context_labels"])
    retrieved = [read[labels == k].sum() for k in range(3)]
    assert np.allclose(retrieved, found["probabilities"], atol=1e-4)
    assert found["query_label"] == episode.answers()[0]
    expected = Subject(network=network).fresh().run([episode]).outcomes[0].prediction[0]
    assert np.allclose(found["probabilities"], expected, atol=1e-5)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_influence_is_exactly_zero_where_the_mask_is_and_not_elsewhere(kind: TaskKind) -> None:
    """5.5, 5.D: rows keep themselves besides; nothing small is rounded to 0."""
    episode = sample_episode(kind, num_context=9, num_query=4)
    found = json.loads(json.dumps(views(rerandomised_network(kind), episode)))
    sizes, allowed = np.array(found["influence"]), (np.array(found["mask"]) == 1) | np.eye(13, dtype=bool)
    assert ((sizes > 0) == allowed).all() and found["influence_redrawn"] == 0
    other = influence(rerandomised_network(kind, seed=1), episode)
    assert ((np.array(other) > 0) == allowed).all() and other != found["influence"]


def test_the_views_of_a_regression_episode() -> None:
    """6.C: a curve with its interval over a grid, and the truth beside it."""
    kind = TaskKind.REGRESSION
    network, episode = rerandomised_network(kind), sample_episode(kind)
    found = json.loads(json.dumps(views(network, episode)))
    assert set(found["curve_quantiles"]) == {"0.05", "0.5", "0.95"}
    low, middle, high = (np.array(found["curve_quantiles"][f"{level:g}"]) for level in CURVE_LEVELS)
    assert len(low) == len(found["curve_x"]) == len(found["curve_truth"]) > 100
    assert (low < middle).all() and (middle < high).all()
    assert np.allclose(found["curve_truth"], np.sin(1.5 * np.array(found["curve_x"])), atol=0.1)
    assert found["context_x"] == np.round(episode.evidence().x_context[:, 0].astype(float), 6).tolist()
    assert "read_weights" not in found and "probabilities" not in found


def test_the_views_follow_the_network() -> None:
    """No figure is drawn from constants."""
    for kind in TaskKind:
        episode = sample_episode(kind, num_context=9, num_query=4)
        one, two = (views(rerandomised_network(kind, seed=seed), episode) for seed in (0, 1))
        assert one["weights"] != two["weights"] and one["mask"] == two["mask"]
        drawn = "read_weights" if kind is TaskKind.CLASSIFICATION else "curve_quantiles"
        assert one[drawn] != two[drawn]


def test_the_network_is_left_as_it_was_and_sample_episodes_are_deterministic() -> None:
    """Views work on a copy."""
    network, episode = rerandomised_network(TaskKind.REGRESSION), sample_episode(TaskKind.REGRESSION)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    path = network.icl.path
    views(network, episode)
    assert network.icl.path is path
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert sample_episode(TaskKind.REGRESSION).task.y.tobytes() == episode.task.y.tobytes()


def test_a_curve_over_several_features_is_refused() -> None:
    """It is drawn over exactly one."""
    with pytest.raises(ValueError, match="6 features"):
        views(rerandomised_network(TaskKind.REGRESSION), specimens(TaskKind.REGRESSION)[0])
