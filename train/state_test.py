"""Tests of the training state and exact resumption."""

import pathlib

import pytest
import torch

from model.label_injection import LabelKind
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from train.optimization import OptimizerConfig
from train.state import TrainState, fresh_state, initial_network, restore_state, save_state
from train.step import training_step
from train.toy import small_network, toy_batch


def _state(*, seed: int = 0, identity: dict[str, str] | None = None) -> TrainState:
    config = small_network(LabelKind.CLASSIFICATION)
    return fresh_state(
        config, OptimizerConfig(), seed=seed, device=torch.device("cpu"), identity=identity or {"data": "a"}
    )


def _advance(state: TrainState, steps: int) -> None:
    for _ in range(steps):
        batch = toy_batch(TaskKind.CLASSIFICATION, seed=state.step)
        training_step(state.network, state.optimizer, batch=batch, factor=1.0, dtype=torch.float32)
        state.step += 1
        state.tasks_seen += 4


def test_three_resumes_end_in_the_bits_of_an_uninterrupted_run(tmp_path: pathlib.Path) -> None:
    """T2: weights and moments are equal bit by bit on a CPU."""
    straight = _state()
    _advance(straight, 12)
    cut = _state()
    for sitting, steps in enumerate((2, 5, 1, 4)):
        if sitting:
            cut = _state(seed=sitting)
            assert restore_state(tmp_path, cut)
        _advance(cut, steps)
        save_state(tmp_path, cut, validation={})
    assert cut.step == straight.step and cut.tasks_seen == straight.tasks_seen
    wanted, found = straight.network.state_dict(), cut.network.state_dict()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    moments = straight.optimizer.state_tensors()
    assert all(torch.equal(moments[name], tensor) for name, tensor in cut.optimizer.state_tensors().items())


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: pathlib.Path) -> None:
    """T1: resume from the newest verified checkpoint."""
    state = _state()
    for _ in range(2):
        _advance(state, 1)
        folder = save_state(tmp_path, state, validation={})
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(weights)
    resumed = _state()
    assert restore_state(tmp_path, resumed)
    assert resumed.step == 1


def test_without_a_checkpoint_the_state_stays_fresh(tmp_path: pathlib.Path) -> None:
    state = _state()
    assert not restore_state(tmp_path, state)
    assert state.step == 0


def test_a_checkpoint_of_other_data_is_refused(tmp_path: pathlib.Path) -> None:
    """T3: changed data or config is refused."""
    save_state(tmp_path, _state(identity={"data": "a"}), validation={})
    with pytest.raises(Failure) as caught:
        restore_state(tmp_path, _state(identity={"data": "b"}))
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert "data a, not b" in caught.value.message


def test_initialisation_is_a_function_of_the_seed_and_leaves_the_global_generator() -> None:
    config = small_network(LabelKind.REGRESSION)
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first, second, other = (initial_network(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
