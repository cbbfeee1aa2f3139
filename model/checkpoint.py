"""Checkpoints: a folder of safetensors and JSON whose manifest is written last (T1, S1). No pickle, ever.

    step-00001000/  weights.safetensors  config.json  [state.safetensors  state.json]  MANIFEST.json

Its weights are those that predict; where training goes on from others (of which they are an average), the state has
them, see `train.state`.

The folder is filled under a temporary name and renamed, and renamed away before it is deleted, so a folder named
`step-…` is whole at every moment. One process writes to a root at a time: the caller holds the run folder's lock.
"""

import dataclasses
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Sequence
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from model.network import Network, NetworkConfig
from tools import config as configs
from tools import files
from tools.failure import ExitCode, Failure

FORMAT_VERSION = 2
_WEIGHTS, _CONFIG, _STATE, _VALUES = "weights.safetensors", "config.json", "state.safetensors", "state.json"
_STEP_FOLDER = re.compile(r"step-(\d{8})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingState:
    """What exact resumption needs beside the weights.

    Args:
        tensors: optimizer state and whatever else is a tensor, by name.
        values: JSON values: the step, the seed, the data digest, counts.
    """

    tensors: dict[str, Tensor]
    values: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint folder, loaded."""

    folder: pathlib.Path
    step: int
    config: NetworkConfig
    weights: dict[str, Tensor]
    weights_sha256: str

    def network(self) -> Network:
        """The network with these weights, in evaluation mode.

        Raises:
            Failure: CHECKPOINT_CORRUPT when the weights are not those of the config.
        """
        network = Network(self.config)
        try:
            network.load_state_dict(self.weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise _corrupt(self.folder / _WEIGHTS, f"does not fit config.json ({reason})") from error
        return network.eval()


def save_checkpoint(
    root: pathlib.Path,
    *,
    step: int,
    network: Network,
    state: TrainingState | None = None,
    weights: dict[str, Tensor] | None = None,
) -> pathlib.Path:
    """Writes `root/step-XXXXXXXX`, whole or not at all; an existing one of the same step is replaced.

    Args:
        root: folder of all checkpoints of a run.
        step: of this one.
        network: whose config, and by default whose weights, it holds.
        state: what training needs to go on from it.
        weights: to predict with, where they are not those of the network (such as their average).

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE.
    """
    folder = root / f"step-{step:08d}"
    staged, replaced = _hidden(folder), _hidden(folder)
    try:
        staged.mkdir(parents=True)
        _fill(staged, config=network.config, weights=weights or network.state_dict(), state=state)
        files.write_manifest(staged, format_version=FORMAT_VERSION, extra={"step": step})
        if folder.exists():
            folder.rename(replaced)
        staged.rename(folder)
        files.sync_folder(root)
    except OSError as error:
        mend = "choose another --root"
        raise Failure(ExitCode.NOT_WRITABLE, f"{folder} is not writable ({error.strerror}): {mend}") from error
    finally:
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        for leftover in (staged, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
    return folder


def _fill(
    staged: pathlib.Path, *, config: NetworkConfig, weights: dict[str, Tensor], state: TrainingState | None
) -> None:
    files.write_bytes(staged / _WEIGHTS, _packed(weights))
    files.write_json(staged / _CONFIG, configs.to_json(config))
    if state is not None:
        files.write_bytes(staged / _STATE, _packed(state.tensors))
        files.write_json(staged / _VALUES, state.values)


def _packed(tensors: dict[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})


def _unpacked(path: pathlib.Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise _corrupt(path, f"is not a safetensors file ({error})") from error


def load_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """Verifies every hash, then loads.

    Raises:
        Failure: CHECKPOINT_CORRUPT or FORMAT_VERSION, naming the file; NOT_FOUND.
    """
    if not folder.is_dir():
        raise Failure(ExitCode.NOT_FOUND, f"checkpoint {folder} does not exist: give a step folder or a run folder")
    manifest = _verify(folder)
    try:
        config = configs.from_json(NetworkConfig, json.loads((folder / _CONFIG).read_bytes()))
    except (TypeError, ValueError) as error:
        raise _corrupt(folder / _CONFIG, f"is not a network config of this version ({error})") from error
    return Checkpoint(
        folder=folder,
        step=int(manifest["step"]),
        config=config,
        weights=_unpacked(folder / _WEIGHTS),
        weights_sha256=manifest["files"][_WEIGHTS]["sha256"],
    )


def load_state(folder: pathlib.Path) -> TrainingState:
    """Loads the training state of a checkpoint that `load_checkpoint` has verified.

    Raises:
        Failure: NOT_FOUND for a checkpoint that was saved without one; CHECKPOINT_CORRUPT for unreadable files.
    """
    values = load_values(folder)
    return TrainingState(tensors=_unpacked(folder / _STATE), values=values)


def load_values(folder: pathlib.Path) -> dict[str, Any]:
    """The JSON values of the training state of a verified checkpoint; its tensors are not read.

    Raises:
        Failure: NOT_FOUND for a checkpoint that was saved without a state; CHECKPOINT_CORRUPT for unreadable values.
    """
    if not (folder / _STATE).is_file():
        raise Failure(ExitCode.NOT_FOUND, f"checkpoint {folder} holds no training state: training cannot go on from it")
    try:
        return json.loads((folder / _VALUES).read_bytes())
    except (OSError, ValueError) as error:
        raise _corrupt(folder / _VALUES, "is not readable JSON") from error


def step_folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Committed checkpoint folders in ascending order of step (T11: never of time)."""
    found = [path for path in root.glob("step-*") if _STEP_FOLDER.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: path.name)


def step_of(folder: pathlib.Path) -> int:
    """The step in a checkpoint folder's name."""
    return int(_STEP_FOLDER.fullmatch(folder.name).group(1))


def is_whole(folder: pathlib.Path) -> bool:
    """Whether every hash of a checkpoint folder holds."""
    try:
        _verify(folder)
    except Failure:
        return False
    return True


def newest_verified(root: pathlib.Path) -> pathlib.Path | None:
    """The newest checkpoint whose every hash holds, or None; damaged ones are passed over.

    Raises:
        Failure: FORMAT_VERSION for one of another version that is newer.
    """
    for folder in reversed(step_folders(root)):
        try:
            _verify(folder)
        except Failure as failure:
            if failure.code is ExitCode.FORMAT_VERSION:
                raise
        else:
            return folder
    return None


def prune(root: pathlib.Path, *, whole: Sequence[pathlib.Path], keep: int, protected: set[int]) -> None:
    """Deletes all but the `keep` newest whole checkpoints and the protected steps, and what killed processes left over.

    Args:
        root: folder of all checkpoints of a run.
        whole: those that verify, in ascending order of step. Damaged ones do not count; they go with what is older.
        keep: how many stay.
        protected: steps that stay besides.
    """
    spare = whole[: max(0, len(whole) - keep)]
    for folder in step_folders(root):
        if spare and folder.name <= spare[-1].name and step_of(folder) not in protected:
            _discard(folder)
    for leftover in root.glob(".step-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def _hidden(folder: pathlib.Path) -> pathlib.Path:
    return folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _discard(folder: pathlib.Path) -> None:
    """Deletes a step folder; its name is gone before the first of its files is."""
    doomed = folder.rename(_hidden(folder))
    shutil.rmtree(doomed, ignore_errors=True)


def _corrupt(path: pathlib.Path, reason: str) -> Failure:
    return Failure(ExitCode.CHECKPOINT_CORRUPT, f"checkpoint file {path} {reason}: restore it or delete {path.parent}")


def _verify(folder: pathlib.Path) -> dict[str, Any]:
    what, code = "checkpoint", ExitCode.CHECKPOINT_CORRUPT
    try:
        manifest = files.verify_manifest(folder, format_version=FORMAT_VERSION, code=code, what=what)
        named, step = set(manifest["files"]), manifest["step"]
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(folder / files.MANIFEST, "is not a checkpoint's manifest") from error
    if not named >= {_WEIGHTS, _CONFIG} or not isinstance(step, int) or (_STATE in named) != (_VALUES in named):
        raise _corrupt(folder / files.MANIFEST, "does not list a whole checkpoint")
    return manifest
