"""Checkpoints: whole or absent, verified before they are read, and never a pickle."""

import dataclasses
import errno
import io
import json
import os
import pathlib
import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import safetensors.torch
import torch

from model import checkpoint
from model.checkpoint import (
    FORMAT_VERSION,
    TrainingState,
    load_checkpoint,
    load_state,
    load_values,
    newest_verified,
    prune,
    save_checkpoint,
    step_folders,
    step_of,
)
from model.label_injection import LabelKind
from model.specimens import specimen_inputs, specimen_network, values
from tools import files
from tools.failure import ExitCode, Failure

KINDS = list(LabelKind)
NAMES = ["weights.safetensors", "config.json", "state.safetensors", "state.json", "MANIFEST.json"]
STATE = TrainingState(tensors={"moment": torch.arange(5.0)}, values={"step": 7, "seed": 2**60, "digest": "ab"})


def _save(root: pathlib.Path, *, step: int = 7, seed: int = 0) -> pathlib.Path:
    return save_checkpoint(root, step=step, network=specimen_network(LabelKind.REGRESSION, seed=seed), state=STATE)


def _refused(action: Callable[[], Any], *, code: ExitCode) -> str:
    with pytest.raises(Failure) as caught:
        action()
    assert caught.value.code is code
    assert "\n" not in caught.value.message
    return caught.value.message


def _remanifest(folder: pathlib.Path, **changes: Any) -> None:
    """Commits a folder anew, as one who tampers would."""
    step = json.loads((folder / files.MANIFEST).read_text())["step"]
    (folder / files.MANIFEST).unlink()
    files.write_manifest(folder, format_version=FORMAT_VERSION, extra={"step": step, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_gives_back_the_network_bit_by_bit(kind: LabelKind, tmp_path: pathlib.Path) -> None:
    """T1 and 6.9: weights, buffers (bucket borders too), config and state; predictions are bitwise the same."""
    network = specimen_network(kind)
    folder = save_checkpoint(tmp_path, step=7, network=network, state=STATE)
    assert folder == tmp_path / "step-00000007"
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    loaded = load_checkpoint(folder)
    assert loaded.config == network.config
    assert loaded.step == 7
    assert loaded.weights_sha256 == files.sha256_file(folder / "weights.safetensors")
    again = loaded.network()
    assert not again.training
    for name, tensor in network.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert again.state_dict()[name].dtype is tensor.dtype
    inputs = specimen_inputs(kind)
    assert torch.equal(values(again(inputs)), values(network(inputs)))
    state = load_state(folder)
    assert torch.equal(state.tensors["moment"], STATE.tensors["moment"])
    assert state.values == load_values(folder) == STATE.values


def test_given_weights_are_saved_in_place_of_the_network_s_own(tmp_path: pathlib.Path) -> None:
    """What predicts may be an average of the weights that are trained."""
    network, other = (specimen_network(LabelKind.REGRESSION, seed=seed) for seed in (0, 1))
    folder = save_checkpoint(tmp_path, step=1, network=network, weights=other.state_dict())
    found = load_checkpoint(folder).network().state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in other.state_dict().items())
    assert any(not torch.equal(found[name], tensor) for name, tensor in network.state_dict().items())


def test_equal_networks_give_equal_bytes(tmp_path: pathlib.Path) -> None:
    """T2: the weights' sha256 identifies the weights."""
    folders = [_save(tmp_path / name) for name in ("a", "b")]
    for name in NAMES:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_training_state_is_optional(tmp_path: pathlib.Path) -> None:
    """A checkpoint to predict with needs no optimizer; resuming from it is refused in one line."""
    folder = save_checkpoint(tmp_path, step=1, network=specimen_network(LabelKind.REGRESSION))
    assert load_checkpoint(folder).step == 1
    for load in (load_state, load_values):
        assert "no training state" in _refused(lambda load=load: load(folder), code=ExitCode.NOT_FOUND)


def test_no_file_is_a_pickle(tmp_path: pathlib.Path) -> None:
    """S1: safetensors and JSON only, optimizer state included; the code calls no unpickler."""
    for path in _save(tmp_path).iterdir():
        data = path.read_bytes()
        assert not data.startswith((b"PK", b"\x80"))
        if path.suffix == ".json":
            json.loads(data)
        else:
            safetensors.torch.load(data)
    source = pathlib.Path(checkpoint.__file__).read_text()
    assert re.findall(r"import pickle|(?<!safetensors\.)torch\.(?:load|save)|joblib|cloudpickle", source) == []


class _Canary:
    """Makes a file when unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("maker", ["pickle", "torch"])
@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors", "config.json", "state.json"])
def test_a_malicious_file_is_refused_and_not_run(maker: str, name: str, tmp_path: pathlib.Path) -> None:
    """S1: a pickle in place of any file, with a manifest that fits, is refused; its canary stays away."""
    canary, body = tmp_path / "canary", io.BytesIO()
    if maker == "pickle":
        body.write(pickle.dumps(_Canary(canary)))
    else:
        torch.save({"weights": _Canary(canary)}, body)
    folder = _save(tmp_path / "run")
    (folder / name).write_bytes(body.getvalue())
    _remanifest(folder)
    message = _refused(lambda: [load_checkpoint(folder), load_state(folder)], code=ExitCode.CHECKPOINT_CORRUPT)
    assert str(folder / name) in message
    assert not canary.exists()
    open(canary, "w").close()  # control: such a payload does make the file
    canary.unlink()
    pickle.loads(pickle.dumps(_Canary(canary))).close()
    assert canary.exists()


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete"])
@pytest.mark.parametrize("name", NAMES)
def test_damage_to_any_file_is_named(name: str, damage: str, tmp_path: pathlib.Path) -> None:
    """T1: flip, truncate, delete each file: CHECKPOINT_CORRUPT naming the file; the newest verified one is older."""
    older, folder = _save(tmp_path, step=3), _save(tmp_path, step=7)
    data = bytearray((folder / name).read_bytes())
    if damage == "flip":
        data[len(data) // 2 if name != files.MANIFEST else 1] ^= 0x10
    (folder / name).write_bytes({"flip": data, "truncate": data[:-1], "empty": b"", "delete": b""}[damage])
    if name == files.MANIFEST and damage == "truncate":
        (folder / name).write_bytes(data[:-3])
    if damage == "delete":
        (folder / name).unlink()
    message = _refused(lambda: load_checkpoint(folder), code=ExitCode.CHECKPOINT_CORRUPT)
    assert name in message
    assert str(folder) in message
    assert newest_verified(tmp_path) == older


def test_every_flipped_bit_of_the_weights_is_noticed(tmp_path: pathlib.Path) -> None:
    """T1: 60 bits spread over the file."""
    folder = _save(tmp_path)
    path = folder / "weights.safetensors"
    data = path.read_bytes()
    for index in range(60):
        position = index * len(data) // 60
        path.write_bytes(data[:position] + bytes([data[position] ^ (1 << index % 8)]) + data[position + 1 :])
        _refused(lambda: load_checkpoint(folder), code=ExitCode.CHECKPOINT_CORRUPT)


def test_another_format_version_is_refused(tmp_path: pathlib.Path) -> None:
    """T1: FORMAT_VERSION says which version was found and which is read; it is no damage, and not passed over."""
    _save(tmp_path, step=3)
    folder = _save(tmp_path)
    manifest = json.loads((folder / files.MANIFEST).read_text())
    (folder / files.MANIFEST).write_text(json.dumps({**manifest, "format_version": FORMAT_VERSION + 1}))
    message = _refused(lambda: load_checkpoint(folder), code=ExitCode.FORMAT_VERSION)
    assert f"version {FORMAT_VERSION + 1}" in message
    assert _refused(lambda: newest_verified(tmp_path), code=ExitCode.FORMAT_VERSION) == message
    assert newest_verified(_save(tmp_path, step=9).parent) == tmp_path / "step-00000009"


@pytest.mark.parametrize("body", ["[]", "{}", '{"format_version": 2, "files": [], "step": 7}', "null", '{"files": {}}'])
def test_a_manifest_that_lists_no_checkpoint_is_refused(body: str, tmp_path: pathlib.Path) -> None:
    """T1: whatever JSON stands there."""
    folder = _save(tmp_path)
    (folder / files.MANIFEST).write_text(body)
    assert files.MANIFEST in _refused(lambda: load_checkpoint(folder), code=ExitCode.CHECKPOINT_CORRUPT)


def test_a_manifest_without_the_weights_is_refused(tmp_path: pathlib.Path) -> None:
    """T1: a file that the manifest does not list is not trusted."""
    folder = _save(tmp_path)
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").unlink()
    _remanifest(folder)
    (folder / "weights.safetensors").write_bytes(weights)
    assert "whole checkpoint" in _refused(lambda: load_checkpoint(folder), code=ExitCode.CHECKPOINT_CORRUPT)


def test_weights_of_another_network_are_refused(tmp_path: pathlib.Path) -> None:
    """Weights that do not fit config.json, or a config of another code version: one line, no traceback."""
    folder = _save(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "kind": "classification"}))
    _remanifest(folder)
    message = _refused(lambda: load_checkpoint(folder).network(), code=ExitCode.CHECKPOINT_CORRUPT)
    assert "does not fit config.json" in message
    (folder / "config.json").write_text(json.dumps({**config, "surprise": 1}))
    _remanifest(folder)
    assert "surprise" in _refused(lambda: load_checkpoint(folder), code=ExitCode.CHECKPOINT_CORRUPT)


def test_a_missing_folder_is_not_found(tmp_path: pathlib.Path) -> None:
    """NOT_FOUND; a root without checkpoints has no newest one."""
    assert "step-9" in _refused(lambda: load_checkpoint(tmp_path / "step-9"), code=ExitCode.NOT_FOUND)
    assert newest_verified(tmp_path / "nowhere") is None
    assert step_folders(tmp_path) == []


def test_a_root_that_cannot_be_written_is_refused(tmp_path: pathlib.Path) -> None:
    """NOT_WRITABLE, naming the folder."""
    (tmp_path / "file").write_text("")
    assert "step-00000007" in _refused(lambda: _save(tmp_path / "file"), code=ExitCode.NOT_WRITABLE)


def test_steps_are_ordered_by_number_and_not_by_time(tmp_path: pathlib.Path) -> None:
    """T11: modification times do not count."""
    for step in (200, 5, 1000):
        _save(tmp_path, step=step)
    os.utime(tmp_path / "step-00000005", (2e9, 2e9))
    (tmp_path / "step-00000xyz").mkdir()
    (tmp_path / "step-00009999").write_text("not a folder")
    assert [folder.name for folder in step_folders(tmp_path)] == ["step-00000005", "step-00000200", "step-00001000"]
    assert newest_verified(tmp_path) == tmp_path / "step-00001000"


def _prune(root: pathlib.Path, *, keep: int, protected: Iterable[int] = (), damaged: Iterable[int] = ()) -> None:
    whole = [folder for folder in step_folders(root) if step_of(folder) not in damaged]
    prune(root, whole=whole, keep=keep, protected=set(protected))


def test_damaged_checkpoints_do_not_count_among_those_that_stay(tmp_path: pathlib.Path) -> None:
    """T1: neither newer ones nor those between; they go when as many whole ones as are asked for are newer."""
    for step in (1, 2, 3, 4, 8, 9):
        _save(tmp_path, step=step)
    _prune(tmp_path, keep=2, damaged={2, 4, 8, 9})
    assert [step_of(folder) for folder in step_folders(tmp_path)] == [1, 2, 3, 4, 8, 9]
    _save(tmp_path, step=5)
    _prune(tmp_path, keep=2, damaged={2, 4, 8, 9})
    assert [step_of(folder) for folder in step_folders(tmp_path)] == [2, 3, 4, 5, 8, 9]
    _save(tmp_path, step=6)
    _prune(tmp_path, keep=2, damaged={2, 4, 8, 9})
    assert [step_of(folder) for folder in step_folders(tmp_path)] == [4, 5, 6, 8, 9]


def test_pruning_keeps_the_newest_and_the_protected(tmp_path: pathlib.Path) -> None:
    """T1: at least what is asked for stays; leftovers of killed processes go."""
    for step in (1, 2, 3, 4, 5):
        _save(tmp_path, step=step)
    (tmp_path / ".step-00000009.123.abcd.tmp").mkdir()
    _prune(tmp_path, keep=2, protected={1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000004", "step-00000005"]
    _prune(tmp_path, keep=9)
    assert len(step_folders(tmp_path)) == 3
    _prune(tmp_path, keep=0, protected={4})
    assert [folder.name for folder in step_folders(tmp_path)] == ["step-00000004"]
    assert load_checkpoint(tmp_path / "step-00000004").step == 4


def test_saving_a_step_again_replaces_it(tmp_path: pathlib.Path) -> None:
    """A resumed run passes the same step; nothing of the old folder stays."""
    _save(tmp_path)
    (tmp_path / "step-00000007" / "old").write_text("")
    folder = _save(tmp_path, seed=1)
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000007"]
    wanted = specimen_network(LabelKind.REGRESSION, seed=1).state_dict()["icl.norm.weight"]
    assert torch.equal(load_checkpoint(folder).weights["icl.norm.weight"], wanted)


_WRITES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link")


def _is_write(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in _WRITES


def _in_child(action: Callable[[], Any], at: int, strike: Callable[[], None]) -> int:
    """Runs `action` in a forked process and calls `strike` just before write number `at`; returns the wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if _is_write(event, arguments):
            seen += 1
            if seen == at:
                strike()

    try:
        sys.addaudithook(hook)
        action()
        os._exit(0 if seen < at else 1)
    except Failure as failure:
        os._exit(100 + int(failure.code))
    finally:
        os._exit(99)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _disk_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: it matters when the power goes, not when a process does."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _check_steps(root: pathlib.Path) -> list[int]:
    """Every folder under a step name is whole; returns the steps."""
    return [load_checkpoint(folder).step for folder in step_folders(root)]


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("strike", [_kill, _disk_full])
def test_death_at_any_write_leaves_no_half_folder(
    strike: Callable[[], None], replaces: bool, tmp_path: pathlib.Path
) -> None:
    """T1: SIGKILL, or a full disk, before each write of a save: what has a step name is whole; then a save succeeds."""
    network, deaths = specimen_network(LabelKind.REGRESSION), 0
    for at in range(1, 200):
        root = tmp_path / str(at)
        _save(root, step=3)
        if replaces:
            _save(root, step=7)
        status = _in_child(lambda r=root: save_checkpoint(r, step=7, network=network, state=STATE), at, strike)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            break
        deaths += 1
        steps = _check_steps(root)
        assert steps[0] == 3
        assert steps in ([3], [3, 7])
        if strike is _disk_full:
            assert os.WEXITSTATUS(status) in (1, 100 + ExitCode.DISK_FULL, 100 + ExitCode.NOT_WRITABLE)
            assert steps == [3, 7] if replaces else True
            assert os.WEXITSTATUS(status) == 1 or not list(root.glob(".*"))
        _save(root, step=7)
        assert _check_steps(root) == [3, 7]
        _prune(root, keep=2)
        assert sorted(path.name for path in root.iterdir()) == ["step-00000003", "step-00000007"]
    assert deaths >= 12


@pytest.mark.usefixtures("quick_disk")
def test_death_at_any_write_of_pruning_leaves_no_half_folder(tmp_path: pathlib.Path) -> None:
    """T1: SIGKILL before each deletion: what has a step name is whole."""
    deaths = 0
    for at in range(1, 200):
        root = tmp_path / str(at)
        for step in (3, 5, 7):
            _save(root, step=step)
        if os.WIFEXITED(_in_child(lambda r=root: _prune(r, keep=1), at, _kill)):
            break
        deaths += 1
        assert _check_steps(root)[-1] == 7
    assert deaths >= 12


def test_the_state_is_a_frozen_record() -> None:
    """What is saved cannot change under the writer's hands."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        STATE.values = {}
