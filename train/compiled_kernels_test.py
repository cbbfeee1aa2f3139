"""Manual test: the compiler's own kernels give the losses and gradients of the plain blocks (minutes on a CPU).

bazel test //train:compiled_kernels_test
"""

import copy

import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from priors.task import TaskKind
from train.compilation import compile_blocks
from train.step import batch_losses
from train.toy import small_network, toy_batch


@pytest.mark.filterwarnings("ignore")  # the compiler brings deprecated parts of torch
def test_compiled_kernels_give_the_losses_and_gradients_of_plain_blocks() -> None:
    plain = initial_network(small_network(LabelKind.REGRESSION), seed=0)
    compiled = copy.deepcopy(plain)
    compile_blocks(compiled)
    batch, found = toy_batch(TaskKind.REGRESSION), []
    for network in (plain, compiled):
        loss = batch_losses(network, batch).mean()
        found.append([loss, *torch.autograd.grad(loss, list(network.parameters()))])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
