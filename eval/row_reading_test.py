"""What is drawn as read weights is what the network reads with."""

import json

import numpy as np
import pytest

from eval.row_reading import reading
from eval.small_network import rerandomised_network, small_config
from eval.subject import Subject
from eval.views import sample_episode, views
from model.classification_head import ClassificationHeadConfig, ClassificationHeadKind
from model.icl_transformer import ICLConfig
from priors.task import TaskKind


def test_the_heads_read_weights_make_the_prediction() -> None:
    """6.D: query→context read weights [M, N] of every query; their mass on a class is its probability."""
    network, kind = rerandomised_network(TaskKind.CLASSIFICATION), TaskKind.CLASSIFICATION
    episode = sample_episode(kind, num_context=12, num_query=5)
    found = json.loads(json.dumps(reading(network, episode)))
    weights, labels = np.array(found["weights"]), np.array(found["y_context"])
    assert weights.shape == (5, 12) and found["reader"] == "head"
    mass = np.stack([weights[:, labels == label].sum(axis=1) for label in range(3)], axis=1)
    expected = Subject(network=network).fresh().run([episode]).outcomes[0].prediction
    assert mass == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_attention_of_both_blocks_is_whole_and_its_first_is_the_reports(kind: TaskKind) -> None:
    """6.D, 5.6: rows sum to 1 and forbidden keys have exactly 0."""
    network, episode = rerandomised_network(kind), sample_episode(kind, num_context=12, num_query=5)
    found = reading(network, episode)
    first, last = np.array(found["attention_first"]), np.array(found["attention_last"])
    for weights in (first, last):
        assert weights.shape == (17, 17) and (weights[:, 12:] == 0).all()
        assert weights.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert first == pytest.approx(np.array(views(network, episode)["weights"]), abs=1e-5)
    assert np.abs(first - last).max() > 1e-3


@pytest.mark.parametrize("head", [ClassificationHeadKind.MLP, None])
def test_where_the_head_reads_no_rows_the_last_block_is_shown_and_named(head: ClassificationHeadKind | None) -> None:
    """6.D: never weights of 0 that look like a reading."""
    kind = TaskKind.REGRESSION if head is None else TaskKind.CLASSIFICATION
    config = small_config(kind)
    if head is not None:
        config = type(config)(
            kind=config.kind, cell=config.cell, icl=config.icl, classification=ClassificationHeadConfig(kind=head)
        )
    found = reading(rerandomised_network(kind, config=config), sample_episode(kind, num_context=12, num_query=5))
    assert found["reader"] == "last block"
    assert np.array(found["weights"]) == pytest.approx(np.array(found["attention_last"])[12:, :12])


def test_thinking_rows_are_left_out() -> None:
    config = small_config(TaskKind.CLASSIFICATION)
    icl = ICLConfig(width=32, num_blocks=2, num_heads=2, num_thinking_rows=3)
    network = rerandomised_network(
        TaskKind.CLASSIFICATION, config=type(config)(kind=config.kind, cell=config.cell, icl=icl)
    )
    found = reading(network, sample_episode(TaskKind.CLASSIFICATION, num_context=12, num_query=5))
    last = np.array(found["attention_last"])
    assert last.shape == (17, 17) and (last.sum(axis=1) < 1).all() and (last[:, 12:] == 0).all()


def test_rows_are_ordered_by_class_or_by_the_feature() -> None:
    """6.D: sorted by class."""
    kind = TaskKind.CLASSIFICATION
    found = reading(rerandomised_network(kind), sample_episode(kind, num_context=12, num_query=5))
    assert (np.diff(np.array(found["y_context"])[found["order_context"]]) >= 0).all()
    assert (np.diff(np.array(found["y_query"])[found["order_query"]]) >= 0).all()
    kind = TaskKind.REGRESSION
    found = reading(rerandomised_network(kind), sample_episode(kind, num_context=12, num_query=5))
    assert (np.diff(np.array(found["x_context"])[found["order_context"], 0]) >= 0).all()
