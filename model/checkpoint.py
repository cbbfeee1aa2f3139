"""Checkpoints: a folder of safetensors and JSON whose manifest is written last (T1, S1). No pickle, ever.

    step-00001000/  weights.safetensors  config.json  [state.safetensors  state.json]  MANIFEST.json

The folder is filled under a temporary name and renamed, so a folder named `step-…` with a manifest is whole.
"""

import dataclasses
import json
import os
import pathlib
import re
import secrets
import shutil
from typing import Any

import safetensors.torch
from torch import Tensor

from model.network import Network, NetworkConfig
from tools import config as configs
from tools import files
from tools.failure import ExitCode, Failure

FORMAT_VERSION = 1
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
        """The network with these weights, in evaluation mode."""
        network = Network(self.config)
        network.load_state_dict(self.weights)
        return network.eval()


def save_checkpoint(root: pathlib.Path, *, step: int, network: Network, state: TrainingState | None = None) -> pathlib.Path:
    """Writes `root/step-XXXXXXXX`, whole or not at all; an existing one of the same step is replaced.

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE.
    """
    folder = root / f"step-{step:08d}"
    staged = root / f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        staged.mkdir(parents=True)
        weights = {name: tensor.detach().contiguous() for name, tensor in network.state_dict().items()}
        files.write_bytes(staged / "weights.safetensors", safetensors.torch.save(weights))
        files.write_json(staged / "config.json", configs.to_json(network.config))
        if state is not None:
            tensors = {name: tensor.detach().contiguous() for name, tensor in state.tensors.items()}
            files.write_bytes(staged / "state.safetensors", safetensors.torch.save(tensors))
            files.write_json(staged / "state.json", state.values)
        files.write_manifest(staged, format_version=FORMAT_VERSION, extra={"step": step})
        if folder.exists():
            shutil.rmtree(folder)
        staged.rename(folder)
        files.sync_folder(root)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return folder


def load_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """Verifies every hash, then loads.

    Raises:
        Failure: CHECKPOINT_CORRUPT or FORMAT_VERSION, naming the file; NOT_FOUND.
    """
    if not folder.is_dir():
        raise Failure(ExitCode.NOT_FOUND, f"checkpoint {folder} does not exist: give a step folder or a run folder")
    manifest = _verify(folder)
    config = configs.from_json(NetworkConfig, json.loads((folder / "config.json").read_bytes()))
    return Checkpoint(
        folder=folder,
        step=int(manifest["step"]),
        config=config,
        weights=safetensors.torch.load((folder / "weights.safetensors").read_bytes()),
        weights_sha256=manifest["files"]["weights.safetensors"]["sha256"],
    )


def load_state(folder: pathlib.Path) -> TrainingState:
    """Loads the training state of a checkpoint that `load_checkpoint` has verified."""
    tensors = safetensors.torch.load((folder / "state.safetensors").read_bytes())
    return TrainingState(tensors=tensors, values=json.loads((folder / "state.json").read_bytes()))


def step_folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Committed checkpoint folders in ascending order of step (T11: never of time)."""
    found = [path for path in root.glob("step-*") if _STEP_FOLDER.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: path.name)


def newest_verified(root: pathlib.Path) -> pathlib.Path | None:
    """The newest checkpoint whose every hash holds, or None; damaged ones are passed over."""
    for folder in reversed(step_folders(root)):
        try:
            _verify(folder)
        except Failure:
            continue
        return folder
    return None


def prune(root: pathlib.Path, *, keep: int, protected: set[int]) -> None:
    """Deletes all but the `keep` newest checkpoints and the protected steps."""
    for folder in step_folders(root)[:-keep]:
        if int(_STEP_FOLDER.fullmatch(folder.name).group(1)) not in protected:
            shutil.rmtree(folder)


def _verify(folder: pathlib.Path) -> dict[str, Any]:
    return files.verify_manifest(
        folder, format_version=FORMAT_VERSION, code=ExitCode.CHECKPOINT_CORRUPT, what="checkpoint"
    )
