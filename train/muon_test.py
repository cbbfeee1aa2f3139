"""Tests of Muon with AdamW."""

import math

import pytest
import torch
from torch import nn

from model.classification_head import (
    ClassificationHeadConfig,
    ClassificationHeadKind,
    make_classification_head,
)
from model.regression_heads import RegressionHeadConfig, RegressionHeadKind, make_regression_head
from train.muon import MuonAdamW, orthogonalised, split_parameters
from train.optimizer_config import OptimizerConfig


class _Toy(nn.Module):
    """Two matrices of one shape, one of another, an embedding and biases."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 8)
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(self.embedding(ids))))))


def _toy(seed: int = 0) -> _Toy:
    torch.manual_seed(seed)
    return _Toy()


def _train(toy: _Toy, optimizer: MuonAdamW, steps: int) -> list[float]:
    ids, targets = torch.tensor([0, 1, 2]), torch.eye(3, 4)
    losses = []
    for _ in range(steps):
        loss = ((toy(ids) - targets) ** 2).mean()
        toy.zero_grad()
        loss.backward()
        optimizer.step(1.0)
        losses.append(loss.item())
    return losses


def test_the_ends_of_the_allowed_ranges_train() -> None:
    """No averaging, no decay, no clipping."""
    config = OptimizerConfig(betas=(0.0, 0.0), matrix_momentum=0.0, weight_decay=0.0, clip_norm=math.inf)
    toy = _toy()
    losses = _train(toy, MuonAdamW(toy, config), 20)
    assert losses[-1] < losses[0]


def test_orthogonalised_brings_all_singular_values_near_one() -> None:
    matrices = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(0))
    for stack in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonalised(stack))
        assert values.min() > 0.5 and values.max() < 1.4


def test_matrices_of_hidden_layers_go_to_muon_and_the_rest_does_not() -> None:
    matrices, rest = split_parameters(_toy())
    assert set(matrices) == {"a.weight", "b.weight", "c.weight"}
    assert set(rest) == {"embedding.weight", "a.bias", "b.bias", "c.bias"}


@pytest.mark.parametrize("kind", list(RegressionHeadKind))
def test_the_output_layer_of_a_regression_head_is_not_muon_s(kind: RegressionHeadKind) -> None:
    """6.8 to 6.10: like an embedding, a row for each thing named; the hidden layer is a matrix as others are."""
    matrices, rest = split_parameters(make_regression_head(RegressionHeadConfig(kind=kind), width=8))
    assert set(matrices) == {"layers.0.weight"}
    assert set(rest) == {"layers.0.bias", "layers.2.weight", "layers.2.bias"}


@pytest.mark.parametrize("kind", list(ClassificationHeadKind))
def test_the_output_layer_of_a_head_with_class_slots_is_not_muon_s(kind: ClassificationHeadKind) -> None:
    """6.6: a row for each slot; a retrieval head has no such layer, a kernel head no layer at all."""
    head = make_classification_head(ClassificationHeadConfig(kind=kind), width=8, max_classes=3)
    matrices, rest = split_parameters(head)
    expected = {
        ClassificationHeadKind.RETRIEVAL: ({"query.weight", "key.weight"}, {"query.bias", "scale_base", "scale_slope"}),
        ClassificationHeadKind.KERNEL: (set(), set()),
        ClassificationHeadKind.LINEAR: (set(), {"layers.weight", "layers.bias"}),
        ClassificationHeadKind.MLP: ({"layers.0.weight"}, {"layers.0.bias", "layers.2.weight", "layers.2.bias"}),
    }
    assert (set(matrices), set(rest)) == expected[kind]


def test_training_lowers_the_loss() -> None:
    toy = _toy()
    losses = _train(toy, MuonAdamW(toy, OptimizerConfig()), 60)
    assert losses[-1] < 0.3 * losses[0]


def test_vectors_follow_adamw_as_torch_computes_it() -> None:
    ours, theirs = _toy(), _toy()
    config = OptimizerConfig()
    optimizer = MuonAdamW(ours, config)
    reference = torch.optim.AdamW([theirs.c.bias], lr=config.vector_lr, betas=config.betas, weight_decay=0.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for parameter in ours.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        theirs.c.bias.grad = ours.c.bias.grad.clone()
        optimizer.step(1.0)
        reference.step()
    torch.testing.assert_close(ours.c.bias, theirs.c.bias, rtol=1e-5, atol=1e-7)


def test_state_restored_into_a_new_optimizer_goes_on_bit_by_bit() -> None:
    """T2: leaving out a part of the state shows."""
    straight = _toy()
    optimizer = MuonAdamW(straight, OptimizerConfig())
    _train(straight, optimizer, 3)
    saved = {name: tensor.clone() for name, tensor in optimizer.state_tensors().items()}
    weights = {name: tensor.clone() for name, tensor in straight.state_dict().items()}
    _train(straight, optimizer, 3)

    def resumed(tensors: dict[str, torch.Tensor], num_updates: int) -> torch.Tensor:
        toy = _toy(seed=9)
        toy.load_state_dict(weights)
        again = MuonAdamW(toy, OptimizerConfig())
        again.load_state_tensors(tensors, num_updates=num_updates)
        _train(toy, again, 3)
        return torch.cat([parameter.flatten() for parameter in toy.parameters()])

    wanted = torch.cat([parameter.flatten() for parameter in straight.parameters()])
    assert torch.equal(resumed(saved, 3), wanted)
    assert not torch.equal(resumed(saved, 0), wanted)
    for part in ("momentum", "first", "second"):
        damaged = {
            name: t.zero_() if name.startswith(part) else t for name, t in ((n, t.clone()) for n, t in saved.items())
        }
        assert not torch.equal(resumed(damaged, 3), wanted), part
