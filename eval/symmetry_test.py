"""Sizes of symmetries: they are rounding where a network has the symmetry, and seen where it has not."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eval.icl_predictor import ICLPredictor
from eval.small_network import rerandomised_network, small_config
from eval.specimens import specimens
from eval.symmetry import NUM_ESTIMATORS, distances, scaled_predictions, symmetry
from model.network import Network
from priors.task import TaskKind

KINDS = list(TaskKind)
ROUNDING = 1e-5


def _network(kind: TaskKind, *, offsets: tuple[int, ...] = (0, 1, 3), seed: int = 0) -> Network:
    config = small_config(kind)
    cell = dataclasses.replace(config.cell, feature_offsets=offsets)
    return rerandomised_network(kind, config=dataclasses.replace(config, cell=cell), seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_has_a_mean_and_a_largest_size_with_and_without_averaging(kind: TaskKind) -> None:
    """6.3, 1.4: numbers only; the same ones each time, and others for other weights."""
    found = symmetry(_network(kind), kind)
    changes = ["column_order", "context_order"] + ["class_slots"] * (kind is TaskKind.CLASSIFICATION)
    pairs = [(f"{change}/{number}/mean", f"{change}/{number}/max") for change in changes for number in NUM_ESTIMATORS]
    assert {key for pair in pairs for key in pair} == set(found)
    assert all(0 < found[mean] < found[largest] for mean, largest in pairs)
    assert found == symmetry(_network(kind), kind) != symmetry(_network(kind, seed=1), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_column_order_is_rounding_without_feature_groups_alone(kind: TaskKind) -> None:
    """1.4, 5.11: the dependence that groups design in is what the figure shows."""
    for offsets, bounds in (((0,), (0.0, ROUNDING)), ((0, 1, 3), (10 * ROUNDING, np.inf))):
        found = symmetry(_network(kind, offsets=offsets), kind)
        assert all(bounds[0] < found[f"column_order/{number}/max"] < bounds[1] for number in NUM_ESTIMATORS)


def test_class_slots_are_rounding_where_all_slots_hold_one_embedding() -> None:
    """6.3: the dependence comes from label embeddings; permuted predictions are mapped back rightly."""
    kind = TaskKind.CLASSIFICATION
    network = _network(kind)
    before = symmetry(network, kind)
    with torch.no_grad():
        for table in (network.column_labels.classes.weight, network.icl.injection.encoder.classes.weight):
            table.copy_(table[:1].expand_as(table))
    after = symmetry(network, kind)
    for number in NUM_ESTIMATORS:
        assert before[f"class_slots/{number}/max"] > 100 * ROUNDING
        assert after[f"class_slots/{number}/max"] < ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_context_order_is_rounding_unless_rows_carry_positions(kind: TaskKind) -> None:
    """1.4: and a network that adds a row's number to its token is seen."""
    network = _network(kind)
    assert symmetry(network, kind)["context_order/1/max"] < ROUNDING

    def number_rows(module: nn.Module, args: tuple[Tensor, ...], rows: Tensor) -> Tensor:
        return rows + torch.sin(torch.arange(rows.shape[1] * rows.shape[2])).view(rows.shape[1:])

    network.row_readout.register_forward_hook(number_rows)
    assert symmetry(network, kind)["context_order/1/max"] > 100 * ROUNDING


@pytest.mark.parametrize("kind", KINDS)
def test_averaging_over_orders_makes_the_dependence_smaller(kind: TaskKind) -> None:
    """6.3: what the estimator's orders are for."""
    found = symmetry(_network(kind), kind)
    for change in ["column_order"] + ["class_slots"] * (kind is TaskKind.CLASSIFICATION):
        assert found[f"{change}/4/mean"] < 0.8 * found[f"{change}/1/mean"]


def test_sizes_are_total_variation_of_probabilities_and_deviations_of_means() -> None:
    """Distinct certainties are 1 apart; means count in standard deviations of the context's targets."""
    left, right = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.25, 0.75]])
    assert distances(left, right).tolist() == [1.0, 0.25]
    assert distances(np.array([[1.0], [2.0]]), np.array([[4.0], [2.0]])).tolist() == [3.0, 0.0]
    (episode, *_), network = specimens(TaskKind.REGRESSION), _network(TaskKind.REGRESSION)
    far = dataclasses.replace(episode, task=dataclasses.replace(episode.task, y=episode.task.y * 64))
    predictor = ICLPredictor(name="n", network=network)
    found = scaled_predictions(predictor, episode)
    assert np.allclose(scaled_predictions(predictor, far), found, atol=1e-5) and np.abs(found).max() < 10
