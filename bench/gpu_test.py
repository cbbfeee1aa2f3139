"""Tests on a real GPU; manual, with the tag `gpu`: `bazel test //bench:gpu_test`. Without a GPU they are skipped.

Whether results are right is checked by tools/gpu_check.py; here are tests of what only a GPU can show.
"""

import copy

import numpy as np
import pytest
import torch

from bench.device_correctness import BOUNDS, check_network, check_steps, random_network, relative_error, visible
from bench.findings import TimeBudget
from model import presets
from model.label_injection import LabelKind
from priors.task import TaskKind
from train.compilation import can_compile, compile_blocks
from train.device_feed import DeviceFeed, on_device
from train.optimizer_config import OptimizerConfig
from train.optimizers import make_optimizer
from train.step import compute_dtype, training_step
from train.toy import toy_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
_CUDA = torch.device("cuda")


def test_the_device_computes_what_the_cpu_computes() -> None:
    found = [*check_network(_CUDA, TimeBudget(600)), *check_steps(_CUDA, TimeBudget(600))]
    assert all(finding.passed for finding in found), [finding for finding in found if not finding.passed]


def test_staged_batches_are_the_batches_of_the_source_in_order() -> None:
    with DeviceFeed(lambda step: toy_batch(TaskKind.REGRESSION, seed=step), device=_CUDA, num_steps=20) as feed:
        for step in range(20):
            batch, expected = feed.batch(step), toy_batch(TaskKind.REGRESSION, seed=step)
            there = on_device(batch, _CUDA)
            assert there.inputs.x_context.is_cuda and there.y_query.is_cuda
            np.testing.assert_array_equal(there.inputs.x_query.cpu().numpy(), expected.x_query)
            np.testing.assert_array_equal(there.y_query.cpu().numpy(), expected.y_query)


def test_a_failing_source_fails_the_step_that_needed_it() -> None:
    def batch(step: int) -> object:
        raise ValueError(f"step {step}")

    with DeviceFeed(batch, device=_CUDA, num_steps=3) as feed, pytest.raises(ValueError, match="step 0"):
        feed.batch(0)


def test_a_step_waits_for_the_device_once() -> None:
    """The driver's own account: torch raises where the host waits, but for the one read that is allowed."""
    network = random_network(presets.tiny(LabelKind.CLASSIFICATION)).to(_CUDA)
    optimizer, dtype = make_optimizer(network, OptimizerConfig()), compute_dtype(_CUDA)
    with DeviceFeed(lambda step: toy_batch(TaskKind.CLASSIFICATION), device=_CUDA, num_steps=4) as feed:
        training_step(network, optimizer, batch=feed.batch(0), factor=0.1, dtype=dtype)
        batch = feed.batch(1)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with pytest.warns(UserWarning, match="synchroniz") as waits:
                training_step(network, optimizer, batch=batch, factor=0.1, dtype=dtype)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1, [str(wait.message) for wait in waits]


@pytest.mark.skipif(not can_compile(), reason="the compiler lacks Triton or a C compiler")
@pytest.mark.filterwarnings("ignore")
def test_compiled_blocks_compute_what_plain_ones_do() -> None:
    plain = random_network(presets.tiny(LabelKind.REGRESSION)).to(_CUDA)
    compiled = copy.deepcopy(plain)
    compile_blocks(compiled)
    inputs = on_device(toy_batch(TaskKind.REGRESSION), _CUDA).inputs
    with torch.no_grad():
        error = relative_error(visible(compiled(inputs)), visible(plain(inputs)))
    assert error < BOUNDS[torch.float32].output
