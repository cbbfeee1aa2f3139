"""Tests of compiled blocks, by the compiler's front end: what it captures is run as it is.

For its kernels see compiled_kernels_test.py.
"""

import copy
import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.utils import counters

from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from priors.mixture import PriorConfig, sample_group
from priors.task import Episode, TaskBatch, TaskKind, collate
from train.compilation import Compilation, blocks, compile_blocks, is_wanted
from train.step import batch_losses
from train.toy import small_network

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler asks for it
_SIZES = ((64, 5, 4), (96, 7, 8), (128, 20, 3), (64, 2, 6))


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def _config(kind: TaskKind) -> NetworkConfig:
    config = small_network(LabelKind(kind.value))
    deeper = {
        "cell": dataclasses.replace(config.cell, num_rounds=2),
        "icl": dataclasses.replace(config.icl, num_blocks=2),
    }
    return dataclasses.replace(config, **deeper)


def _batch(kind: TaskKind, rows: int, features: int, *, count: int) -> TaskBatch:
    group = sample_group(PriorConfig(kind=kind), seed=rows, rows=rows, features=features, count=count)
    return collate([Episode(task=task, num_context=rows // 2) for task in group.tasks()])


def _gradients(network: Network, batch: TaskBatch) -> list[torch.Tensor]:
    loss = batch_losses(network, batch).mean()
    return [loss, *torch.autograd.grad(loss, list(network.parameters()))]


@pytest.mark.parametrize("kind", list(TaskKind))
def test_compiled_blocks_give_the_same_losses_and_gradients_at_every_size_without_compiling_anew(
    kind: TaskKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression takes the attention that GPUs take, here by a limit of no logits."""
    if kind is TaskKind.REGRESSION:
        monkeypatch.setattr("model.attention._EXPLICIT_LOGITS", 0)
    plain = initial_network(_config(kind), seed=0)
    compiled = copy.deepcopy(plain)
    compile_blocks(compiled, backend="eager")
    for rows, features, count in _SIZES:
        batch = _batch(kind, rows, features, count=count)
        for ours, theirs in zip(_gradients(compiled, batch), _gradients(plain, batch), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == len({type(block) for block in blocks(compiled)})
    assert not counters["graph_break"]


def test_names_of_weights_and_copies_are_as_before() -> None:
    network = initial_network(_config(TaskKind.REGRESSION), seed=0)
    names = list(network.state_dict())
    compile_blocks(network, backend="eager")
    assert list(network.state_dict()) == names
    initial_network(_config(TaskKind.REGRESSION), seed=1).load_state_dict(network.state_dict())


def test_blocks_are_compiled_by_default_on_a_gpu_alone() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert not is_wanted(Compilation.AUTO, cpu)
    assert is_wanted(Compilation.ON, cpu)
    assert not is_wanted(Compilation.OFF, cuda)
