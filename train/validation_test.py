"""Tests of in-loop validation."""

import numpy as np
import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from priors.generation import held_out_episodes
from priors.mixture import PriorConfig
from priors.task import TaskKind
from train.toy import small_network
from train.validation import same_shape_batches, validation_figures


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_mean_is_over_tasks_and_the_families_add_up_to_it(kind: TaskKind) -> None:
    episodes = held_out_episodes(PriorConfig(kind=kind, max_rows=96, max_features=6), seed=3, count=24)
    batches = same_shape_batches(episodes)
    network = initial_network(small_network(LabelKind(kind.value)), seed=0)
    figures = validation_figures(network, batches)
    counts = {
        family: sum(batch.families.count(family) for batch in batches) for family in {e.task.family for e in episodes}
    }
    assert sum(counts.values()) == 24
    assert set(figures) == {"nll", *(f"nll/{family}" for family in counts)}
    total = sum(figures[f"nll/{family}"] * count for family, count in counts.items())
    assert np.isclose(figures["nll"], total / 24)


def test_batches_hold_no_padding_and_figures_do_not_depend_on_batching() -> None:
    episodes = held_out_episodes(PriorConfig(max_rows=96, max_features=6), seed=3, count=12)
    batches = same_shape_batches(episodes)
    assert all(batch.context_mask.all() and batch.query_mask.all() for batch in batches)
    network = initial_network(small_network(LabelKind.CLASSIFICATION), seed=0)
    together = validation_figures(network, batches)
    alone = validation_figures(network, [batch for episode in episodes for batch in same_shape_batches([episode])])
    assert np.isclose(together["nll"], alone["nll"], atol=2e-3)


def test_validation_leaves_no_gradients() -> None:
    episodes = held_out_episodes(PriorConfig(max_rows=96, max_features=6), seed=3, count=8)
    network = initial_network(small_network(LabelKind.CLASSIFICATION), seed=0)
    validation_figures(network, same_shape_batches(episodes))
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.is_grad_enabled()
