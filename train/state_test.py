"""Tests of the training state and exact resumption."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import torch

from model import checkpoint
from model.label_injection import LabelKind
from priors.task import TaskKind
from tools import files
from tools.failure import ExitCode, Failure
from train.averaging import AveragingConfig, AveragingKind
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.state import TrainState, checkpoint_bytes, fresh_state, restore_state, save_state
from train.step import training_step
from train.toy import small_network, toy_batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Way:
    """How weights move, and which are deployed."""

    optimizer: OptimizerKind = OptimizerKind.MUON
    averaging: AveragingConfig = AveragingConfig()

    @property
    def deploys_another(self) -> bool:
        """Whether the deployed weights are not those that are trained."""
        return self != _Way(optimizer=self.optimizer) or self.optimizer is OptimizerKind.SCHEDULE_FREE


_WAYS = [
    *(_Way(optimizer=kind) for kind in OptimizerKind),
    _Way(averaging=AveragingConfig(kind=AveragingKind.EMA)),
    _Way(averaging=AveragingConfig(kind=AveragingKind.LATEST, points=3, every=2)),
]


def _state(
    *, seed: int = 0, identity: dict[str, Any] | None = None, way: _Way = _Way(), icl_width: int = 16
) -> TrainState:
    config = small_network(LabelKind.CLASSIFICATION)
    return fresh_state(
        dataclasses.replace(config, icl=dataclasses.replace(config.icl, width=icl_width)),
        OptimizerConfig(kind=way.optimizer),
        seed=seed,
        device=torch.device("cpu"),
        identity=identity or {"data": "a"},
        averaging=way.averaging,
    )


def _advance(state: TrainState, steps: int) -> None:
    for _ in range(steps):
        batch = toy_batch(TaskKind.CLASSIFICATION, seed=state.step)
        training_step(state.network, state.optimizer, batch=batch, factor=1.0, dtype=torch.float32)
        if state.average is not None:
            state.average.update(state.optimizer.num_updates)
        state.step += 1
        state.tasks_seen += 4


@pytest.mark.parametrize("way", _WAYS)
def test_three_resumes_end_in_the_bits_of_an_uninterrupted_run(way: _Way, tmp_path: pathlib.Path) -> None:
    """T2: weights, moments and the average are equal bit by bit on a CPU."""
    straight = _state(way=way)
    _advance(straight, 12)
    cut = _state(way=way)
    for sitting, steps in enumerate((2, 5, 1, 4)):
        if sitting:
            cut = _state(seed=sitting, way=way)
            assert restore_state(tmp_path, cut)
        _advance(cut, steps)
        save_state(tmp_path, cut, validation={})
    assert cut.step == straight.step and cut.tasks_seen == straight.tasks_seen
    wanted, found = straight.network.state_dict(), cut.network.state_dict()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    wanted, found = straight.deployed_weights(), cut.deployed_weights()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    moments = straight.optimizer.state_tensors()
    assert all(torch.equal(moments[name], tensor) for name, tensor in cut.optimizer.state_tensors().items())


@pytest.mark.parametrize("way", _WAYS)
def test_a_checkpoint_holds_the_deployed_weights_and_training_goes_on_with_its_own(
    way: _Way, tmp_path: pathlib.Path
) -> None:
    """Whoever loads a checkpoint predicts with the average, and knows nothing of it."""
    state = _state(way=way)
    _advance(state, 5)
    live = {name: tensor.clone() for name, tensor in state.network.state_dict().items()}
    folder = save_state(tmp_path, state, validation={})
    assert folder.exists() and sum(path.stat().st_size for path in folder.iterdir()) < checkpoint_bytes(state)
    deployed = state.deployed_weights()
    loaded = checkpoint.load_checkpoint(folder)
    assert all(torch.equal(deployed[name], tensor) for name, tensor in loaded.weights.items())
    assert all(torch.equal(deployed[name], tensor) for name, tensor in loaded.network().state_dict().items())
    assert any(not torch.equal(deployed[name], live[name]) for name in live) == way.deploys_another
    resumed = _state(seed=1, way=way)
    restore_state(tmp_path, resumed)
    assert all(torch.equal(live[name], tensor) for name, tensor in resumed.network.state_dict().items())


@pytest.mark.parametrize("way", _WAYS)
def test_the_deployed_network_predicts_with_the_average_and_is_put_back(way: _Way) -> None:
    """Also when what is done with it goes wrong."""
    state = _state(way=way)
    _advance(state, 4)
    live = {name: tensor.clone() for name, tensor in state.network.state_dict().items()}
    with pytest.raises(ZeroDivisionError), state.deployed() as network:
        assert all(torch.equal(state.deployed_weights()[n], t) for n, t in network.state_dict().items())
        raise ZeroDivisionError
    assert all(torch.equal(live[name], tensor) for name, tensor in state.network.state_dict().items())


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


def test_a_checkpoint_of_another_format_version_is_refused_and_not_passed_over(tmp_path: pathlib.Path) -> None:
    """T1: training does not begin anew beside it."""
    path = save_state(tmp_path, _state(), validation={}) / files.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "format_version": 1}))
    with pytest.raises(Failure, match="has format version 1: ") as caught:
        restore_state(tmp_path, _state())
    assert caught.value.code is ExitCode.FORMAT_VERSION


def test_without_a_checkpoint_the_state_stays_fresh(tmp_path: pathlib.Path) -> None:
    state = _state()
    assert not restore_state(tmp_path, state)
    assert state.step == 0


def test_a_checkpoint_of_another_config_or_other_data_is_refused_and_what_differs_is_named(
    tmp_path: pathlib.Path,
) -> None:
    """T3: field, old value, new value, and the flag that allows it."""
    save_state(tmp_path, _state(identity={"data": "a", "loop.batch_size": 8, "seed": 0}), validation={})
    with pytest.raises(Failure) as caught:
        restore_state(tmp_path, _state(identity={"data": "b", "loop.batch_size": 16, "seed": 0, "split.new": 0.5}))
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert "(data: a → b; loop.batch_size: 8 → 16; split.new: absent → 0.5)" in caught.value.message
    assert "--accept-changes" in caught.value.message


def test_a_refusal_of_very_many_changes_names_the_first_and_counts_the_rest(tmp_path: pathlib.Path) -> None:
    save_state(tmp_path, _state(identity={"config": "of a release that knew no names"}), validation={})
    with pytest.raises(Failure, match=r"\(config: .* → absent; f00: absent → 0; .*; f10: absent → 10; and 9 more\)"):
        restore_state(tmp_path, _state(identity={f"f{number:02d}": number for number in range(20)}))


def test_accepted_changes_are_named_and_the_run_goes_on_where_it_stood(tmp_path: pathlib.Path) -> None:
    """T3: unless asked for."""
    state = _state(identity={"data": "a", "seed": 0})
    _advance(state, 3)
    save_state(tmp_path, state, validation={})
    resumed = _state(identity={"data": "b", "seed": 0}, seed=7)
    restored = restore_state(tmp_path, resumed, accept_changes=True)
    assert restored.changes == ("data: a → b",) and resumed.step == 3 and resumed.optimizer.num_updates == 3
    save_state(tmp_path, resumed, validation={})
    assert restore_state(tmp_path, _state(identity={"data": "b", "seed": 0})).changes == ()


@pytest.mark.parametrize(
    ("way", "width", "words"),
    [
        (_Way(), 24, "has shape (16, 32), not (24, 32)"),
        (_Way(optimizer=OptimizerKind.ADAMW), 16, "has no tensor first/"),
        (_Way(optimizer=OptimizerKind.SCHEDULE_FREE), 16, "has no tensor z/"),
    ],
)
def test_changes_with_which_no_run_can_go_on_are_refused_though_accepted(
    way: _Way, width: int, words: str, tmp_path: pathlib.Path
) -> None:
    """T3: one line, the first tensor that does not fit."""
    save_state(tmp_path, _state(), validation={})
    with pytest.raises(Failure) as caught:
        restore_state(tmp_path, _state(identity={"data": "b"}, way=way, icl_width=width), accept_changes=True)
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert words in caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize("old", _WAYS[-2:])
@pytest.mark.parametrize("new", [_Way(), *_WAYS[-2:]])
def test_another_average_begins_with_the_weights_as_they_are(old: _Way, new: _Way, tmp_path: pathlib.Path) -> None:
    state = _state(way=old)
    _advance(state, 3)
    save_state(tmp_path, state, validation={})
    resumed = _state(identity={"data": "b"}, way=new)
    restore_state(tmp_path, resumed, accept_changes=True)
    mean = state.deployed_weights() if new == old else state.network.state_dict()
    assert all(torch.equal(mean[name], tensor) for name, tensor in resumed.deployed_weights().items())
