"""Tests of steps without numbers, and of how often a training step stops the device."""

import dataclasses

import pytest
import torch

from model import presets
from model.label_injection import LabelKind
from priors.task import TaskKind
from train.device_feed import staged
from train.dry_step import HostTalk, TableShape, dry_network, dry_step
from train.muon import MuonAdamW
from train.optimizer_config import OptimizerConfig
from train.step import training_step
from train.toy import small_network, toy_batch

_SHAPE = TableShape(tasks=2, context=40, queries=24, features=6)


def test_matrix_products_are_counted_by_hand() -> None:
    """Two operations for each pair; the backward pass makes two products of each but the first."""
    config = dataclasses.replace(small_network(LabelKind.REGRESSION))
    counted = dry_step(config, _SHAPE)
    more, most = (dry_step(config, dataclasses.replace(_SHAPE, tasks=tasks)) for tasks in (6, 10))
    assert most.flops - more.flops == more.flops - counted.flops  # not in proportion: points are projected once
    assert more.flops == pytest.approx(3 * counted.flops, rel=1e-3)
    wide = dataclasses.replace(config, icl=dataclasses.replace(config.icl, num_blocks=2))
    width, rows = config.icl.width, 64
    linear = 2 * 2 * rows * width * (2 * width + 2 * config.icl.feed_forward_factor * width)  # query, output, MLP
    linear += 2 * 2 * 40 * width * 2 * width  # keys and values of context rows
    attention = 2 * 2 * 2 * rows * 40 * width  # logits, and their weights times values
    added = dry_step(wide, _SHAPE)
    assert added.flops - counted.flops == 3 * (linear + attention)


def test_what_is_kept_grows_with_the_batch_and_counts_no_weights() -> None:
    config = small_network(LabelKind.CLASSIFICATION)
    one, four = (dry_step(config, dataclasses.replace(_SHAPE, tasks=tasks)).saved_bytes for tasks in (1, 4))
    assert 3.9 * one < four < 4.1 * one
    assert one > 64 * 6 * config.cell.width * 4  # one layer of cells at least


def test_attention_weights_from_row_to_row_are_not_kept() -> None:
    """Twice the rows keep twice as much, although attention from row to row has four times the pairs."""
    config, (few, many) = (
        small_network(LabelKind.REGRESSION),
        (TableShape(tasks=1, context=half, queries=half, features=1) for half in (200, 400)),
    )
    assert dry_step(config, many).saved_bytes < 2.01 * dry_step(config, few).saved_bytes


def test_weights_of_folded_attention_are_kept() -> None:
    """No fused kernel computes it: one more inducing point has a weight for each cell that it reads or is read by."""
    config = small_network(LabelKind.REGRESSION)

    def kept(points: int, rows: int) -> int:
        cell = dataclasses.replace(config.cell, num_inducing=points)
        shape = TableShape(tasks=1, context=rows, queries=rows // 2, features=3)
        return dry_step(dataclasses.replace(config, cell=cell), shape).saved_bytes

    few, many = (kept(5, rows) - kept(4, rows) for rows in (100, 200))
    assert many - few == 4 * 3 * (100 + 150)  # bytes, columns, more context rows and more rows


def _waits(kind: TaskKind) -> list[str]:
    network = dry_network(presets.small(LabelKind(kind.value)))
    optimizer = MuonAdamW(network, OptimizerConfig())
    batch = staged(toy_batch(kind), lambda tensor: torch.empty_like(tensor, device="meta"))
    with HostTalk() as talk:
        training_step(network, optimizer, batch=batch, factor=1.0, dtype=torch.float32)
    return talk.waits


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_training_step_stops_the_device_once(kind: TaskKind) -> None:
    """Loss and gradient norm are read together, when all of the step but the update has been asked for."""
    waits = _waits(kind)
    assert len(waits) <= 1, waits


def test_what_stops_a_device_is_seen() -> None:
    on_device = torch.empty(3, device="meta")
    with HostTalk() as talk:
        assert float(on_device.sum()) == 1.0
        torch.ones(3).to("meta")
        on_device.cpu()
        torch.tensor([1.0], device="meta")
        on_device + 1.0
    assert [wait.split(" ", 1)[1] for wait in talk.waits] == [
        "reads a value",
        "copies cpu → meta",
        "copies meta → cpu",
        "uploads a constant",
    ]
