"""Tests of priors.graph_scm: complete drafts, signal where columns are relevant, and facts that are true."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from priors.causes import CauseConfig
from priors.columns import ColumnConfig
from priors.draft import Draft, TableRequest
from priors.draws import Draws, standardised
from priors.graph_scm import GraphSCMConfig, sample_graph_scm
from priors.node_functions import NodeFunction, NodeFunctionConfig
from priors.node_roles import NodeRoleConfig
from priors.node_states import NodeNoiseConfig
from priors.node_views import NodeViewConfig
from priors.random_graph import GraphLaw, RandomGraphConfig, num_distinct
from priors.task import TaskKind

TWO_NODES = RandomGraphConfig(min_nodes=2, max_nodes=2)
NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0)


def request(
    *, kind: TaskKind = TaskKind.REGRESSION, count: int = 64, rows: int = 128, features: int = 10
) -> TableRequest:
    """A request with the default causes and columns."""
    shape = {"count": count, "rows": rows, "features": features}
    return TableRequest(kind=kind, max_classes=10, causes=CauseConfig(), columns=ColumnConfig(), **shape)


def make(config: GraphSCMConfig | None = None, *, seed: int = 0, of: TableRequest | None = None) -> Draft:
    """A draft of the default config and request."""
    return sample_graph_scm(Draws(seed), config or GraphSCMConfig(), request=of or request())


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize(
    ("count", "rows", "features"), [(64, 128, 10), (9, 16, 1), (3, 16, 100), (1, 50, 3), (1, 16, 1)]
)
def test_drafts_of_every_shape_are_complete_and_finite(kind: TaskKind, count: int, rows: int, features: int) -> None:
    for seed in range(3):
        draft = make(seed=seed, of=request(kind=kind, count=count, rows=rows, features=features))
        assert draft.columns.values.shape == draft.columns.signal.shape == (count, features, rows)
        assert draft.columns.values.isfinite().all() and draft.scores.isfinite().all()
        assert draft.scores.shape == (count, 3, rows) and (draft.classes == -1).all()
        assert draft.classes.shape == (count, rows) and draft.loudness.shape == (count,)
        assert (draft.loudness > 0).all() and (draft.loudness <= 1).all()
        assert all(values.shape == (count,) and values.isfinite().all() for values in draft.facts.values())


def test_scores_are_standardised() -> None:
    scores = make(of=request(count=200)).scores
    assert scores.mean(-1).abs().max() < 1e-4
    assert ((scores.std(-1, correction=0) - 1).abs() < 1e-3).float().mean() > 0.97


def test_equal_seeds_give_equal_drafts_and_others_do_not() -> None:
    one, same, other = make(), make(), make(seed=1)
    assert torch.equal(one.columns.values, same.columns.values) and torch.equal(one.scores, same.scores)
    assert all(torch.equal(values, same.facts[name]) for name, values in one.facts.items())
    assert not torch.equal(one.scores, other.scores)


def test_facts_describe_the_graphs() -> None:
    facts = make(of=request(count=300)).facts
    assert facts["nodes"].min() >= 2 and facts["nodes"].max() == 40
    assert (facts["edges"] >= 1).all() and (facts["edges"] >= facts["nodes"] - facts["roots"]).all()
    assert (facts["depth"] < facts["nodes"]).all() and facts["depth"].max() >= 10
    assert (facts["roots"] >= 1).all() and facts["roots"].max() >= 5
    assert set(facts["law"].tolist()) == set(range(len(GraphLaw)))
    assert set(facts["function"].tolist()) == set(range(len(NodeFunction)))
    assert (facts["own_noise"] == 0).any() and facts["own_noise"].max() > 0.2 and facts["own_noise"].max() <= 0.9
    assert facts["relevant"].min() >= 1 and facts["relevant"].max() == 10
    assert (facts["relevant"] < 10).float().mean() > 0.2
    assert (facts["causes"] + facts["effects"] <= facts["relevant"]).all()


def test_nearly_all_graphs_of_a_batch_are_different() -> None:
    for seed in range(5):
        assert num_distinct(make(seed=seed, of=request(features=2, rows=16)).facts["graph"].float()) >= 57


def out_of_bag(x: np.ndarray, y: np.ndarray) -> float:
    """R² of extra trees on the rows that each tree did not see."""
    trees = ExtraTreesRegressor(
        30, bootstrap=True, oob_score=True, min_samples_leaf=2, max_features=0.7, random_state=0
    )
    return float(trees.fit(x, y).oob_score_)


def test_columns_tell_the_target_in_most_tasks_and_shuffled_ones_in_none() -> None:
    draft = make(seed=2, of=request(count=32, rows=256))
    generator = np.random.default_rng(0)
    signal, control = [], []
    for values, score in zip(draft.columns.values.numpy(), draft.scores[:, 0].numpy(), strict=True):
        signal.append(out_of_bag(values.T, score))
        control.append(out_of_bag(values.T, generator.permutation(score)))
    assert np.mean(np.array(signal) > 0.05) > 0.8
    assert np.mean(np.array(control) > 0.05) <= 0.04
    assert 0.3 < np.median(signal) and np.quantile(signal, 0.2) < 0.6 < np.quantile(signal, 0.8)  # easy and hard ones


def line(**changes: object) -> Draft:
    """Two linear nodes of single numbers: the column is the plain cause, or effect, of the target."""
    linear = NodeFunctionConfig(**{name.value: float(name is NodeFunction.LINEAR) for name in NodeFunction})
    views = NodeViewConfig(second_share=0.0, changed_share=0.0)
    roles = NodeRoleConfig(stranger_share=0.0)
    config = GraphSCMConfig(graphs=TWO_NODES, functions=linear, pair_share=0.0, views=views, roles=roles)
    config = dataclasses.replace(config, **changes)
    return make(config, of=dataclasses.replace(request(rows=4000, features=1), columns=NUMBERS))


def test_own_noise_is_what_a_target_s_parents_leave_of_it() -> None:
    draft = line(noise=NodeNoiseConfig(clean_share=0.0, least=0.01, most=0.9))
    late = draft.facts["causes"] == 1
    x, y = draft.columns.signal[:, 0], draft.scores[:, 0]
    left = 1 - (x * y).mean(-1).square() / x.square().mean(-1)
    assert late.sum() > 15 and draft.facts["own_noise"][late].max() > 0.5
    assert (left - draft.facts["own_noise"])[late].abs().max() < 0.05
    assert (draft.facts["own_noise"][~late] == 0).all()


def test_the_second_score_belongs_to_the_same_node_and_the_third_to_a_parent() -> None:
    draft = line(noise=NodeNoiseConfig(clean_share=0.0, least=0.4, most=0.41))
    close = (standardised(draft.columns.signal) * draft.scores).mean(-1).abs()
    late = draft.facts["causes"] == 1
    assert (close[late, 2] > 0.999).all() and (close[late, :2] < 0.95).all() and (close[late, :2] > 0.3).all()
    assert (~late).any() and (close[~late, 2] < 0.5).all()  # of a root it is a product
    alike = (draft.scores[:, 0] * draft.scores[:, 1]).mean(-1).abs()
    assert (alike[~late] > 0.999).all()
