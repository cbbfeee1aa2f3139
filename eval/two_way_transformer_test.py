"""Tests of the two-way transformer: its size, what a query may read, padding, and that its forms learn."""

import dataclasses

import pytest
import torch

from eval.specimens import Shape, specimen
from eval.two_way_transformer import (
    TwoWayForm,
    TwoWayTransformer,
    two_way_loss,
    two_way_optimizer,
)
from model.label_injection import LabelKind
from model.network import NetworkInputs
from model.specimens import distance, specimen_inputs, stack_padded, take
from priors.task import TaskBatch, TaskKind, collate


def _model(form: TwoWayForm, *, seed: int = 0) -> TwoWayTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # style: layers initialise themselves from the global generator, restored after this
        return TwoWayTransformer(form)


def _inputs(columns: int = 5, *, seed: int = 0) -> NetworkInputs:
    return specimen_inputs(LabelKind.CLASSIFICATION, tables=1, columns=columns, seed=seed)


def _batch() -> TaskBatch:
    shape = Shape(num_context=24, num_query=16, num_features=3)
    return collate([specimen(TaskKind.CLASSIFICATION, shape, seed=seed) for seed in range(2)])


def test_the_published_form_has_its_357_thousand_parameters() -> None:
    assert sum(p.numel() for p in _model(TwoWayForm.PUBLISHED).parameters()) == 357_610


def test_the_tuned_form_is_the_modern_one() -> None:
    modern, tuned = _model(TwoWayForm.MODERN), _model(TwoWayForm.TUNED)
    inputs = stack_padded([_inputs(), _inputs(3, seed=1)])
    assert distance(modern.logits(inputs), tuned.logits(inputs)) < 1e-5


@pytest.mark.parametrize("form", TwoWayForm)
def test_a_query_reads_no_query_and_padding_changes_nothing(form: TwoWayForm) -> None:
    model, alone = _model(form), _inputs()
    expected = model(alone).probabilities()
    one = model(take(alone, queries=torch.tensor([2]))).probabilities()
    assert distance(one, expected[:, 2:3]) < 1e-5
    padded = model(stack_padded([alone, _inputs(3, seed=1)])).probabilities()
    assert distance(padded[:1, :4, :3], expected) < 1e-5
    other = dataclasses.replace(alone, y_context=(alone.y_context + 1) % 3)
    assert distance(model(other).probabilities(), expected) > 1e-3


@pytest.mark.parametrize("form", TwoWayForm)
def test_every_form_fits_a_batch(form: TwoWayForm) -> None:
    model, batch = _model(form), _batch()
    optimizer = two_way_optimizer(model, learning_rate=3e-3)
    losses = []
    for _ in range(40):
        loss = two_way_loss(model, batch=batch, dtype=torch.float32)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
