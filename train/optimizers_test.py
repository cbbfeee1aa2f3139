"""Tests of optimizers by name: each trains, and each is what its name says."""

import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from priors.task import TaskKind
from train.muon import MuonAdamW
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.optimizers import make_optimizer
from train.schedule_free import ScheduleFreeAdamW
from train.step import training_step
from train.toy import small_network, toy_batch


@pytest.mark.parametrize("kind", list(OptimizerKind))
def test_every_optimizer_lowers_the_loss(kind: OptimizerKind) -> None:
    """1.5."""
    network, batch = initial_network(small_network(LabelKind.REGRESSION), seed=0), toy_batch(TaskKind.REGRESSION)
    optimizer = make_optimizer(network, OptimizerConfig(kind=kind))
    losses = [training_step(network, optimizer, batch=batch, factor=1.0, dtype=torch.float32).loss for _ in range(60)]
    assert losses[-1] < losses[0] - 0.2
    assert optimizer.num_updates == 60


def test_only_the_schedule_free_one_deploys_an_average_of_its_own() -> None:
    network = initial_network(small_network(LabelKind.REGRESSION), seed=0)
    made = {kind: make_optimizer(network, OptimizerConfig(kind=kind)) for kind in OptimizerKind}
    assert isinstance(made[OptimizerKind.SCHEDULE_FREE], ScheduleFreeAdamW)
    assert all(isinstance(made[kind], MuonAdamW) for kind in (OptimizerKind.MUON, OptimizerKind.ADAMW))
    assert [kind for kind in OptimizerKind if made[kind].averaged()] == [OptimizerKind.SCHEDULE_FREE]


def test_adamw_is_that_of_torch_on_every_parameter() -> None:
    """1.5: matrices decay, the rest does not."""
    config = OptimizerConfig(kind=OptimizerKind.ADAMW, weight_decay=0.1)
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    optimizer = make_optimizer(ours, config)
    assert not any(name.startswith("momentum/") for name in optimizer.state_tensors())
    matrices, rest = ([p for p in theirs.parameters() if (p.ndim == 2) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=config.vector_lr, betas=config.betas)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        optimizer.step(1.0)
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
