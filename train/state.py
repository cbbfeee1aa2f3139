"""The state of a training run between two steps, and its way into checkpoints and back (T1, T2)."""

import dataclasses
import pathlib
from typing import Any

import torch

from model import checkpoint
from model.network import Network, NetworkConfig
from tools.failure import ExitCode, Failure
from train.optimization import MuonAdamW, OptimizerConfig


@dataclasses.dataclass(kw_only=True)
class TrainState:
    """Everything that the next step depends on.

    Args:
        network: weights.
        optimizer: its moments.
        step: number of steps done; with the data and the seed it fixes every later batch.
        tasks_seen: tasks in updates that were taken or skipped.
        skipped: steps left out because something was not finite.
        skipped_in_row: how many of the latest steps were.
        identity: digests (config, data) that a resumed run must share.
        numerics: what bits depend on besides: dtype, number of workers, device. Recorded with every checkpoint.
    """

    network: Network
    optimizer: MuonAdamW
    step: int = 0
    tasks_seen: int = 0
    skipped: int = 0
    skipped_in_row: int = 0
    identity: dict[str, str]
    numerics: dict[str, Any] = dataclasses.field(default_factory=dict)


_COUNTERS = ("step", "tasks_seen", "skipped", "skipped_in_row")


def initial_network(config: NetworkConfig, *, seed: int) -> Network:
    """The network at initialisation: a pure function of config and seed; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # style: torch.nn takes no generator for initial values
        return Network(config)


def fresh_state(
    config: NetworkConfig, optimizer: OptimizerConfig, *, seed: int, device: torch.device, identity: dict[str, str]
) -> TrainState:
    """The state before the first step."""
    network = initial_network(config, seed=seed).to(device)
    return TrainState(network=network, optimizer=MuonAdamW(network, optimizer), identity=identity)


def save_state(root: pathlib.Path, state: TrainState, *, validation: dict[str, float]) -> pathlib.Path:
    """Writes a checkpoint of the whole state and its validation figures; see `model.checkpoint.save_checkpoint`."""
    counters = {name: getattr(state, name) for name in _COUNTERS}
    values: dict[str, Any] = {**counters, "num_updates": state.optimizer.num_updates, "identity": state.identity}
    values |= {"validation": validation, "numerics": state.numerics}
    training = checkpoint.TrainingState(tensors=state.optimizer.state_tensors(), values=values)
    return checkpoint.save_checkpoint(root, step=state.step, network=state.network, state=training)


def checkpoint_bytes(state: TrainState) -> int:
    """What `save_state` writes, in bytes: its tensors, and 1 MiB for headers and JSON."""
    tensors = [*state.network.state_dict().values(), *state.optimizer.state_tensors().values()]
    return sum(tensor.nbytes for tensor in tensors) + 2**20


def read_validation(folder: pathlib.Path) -> dict[str, float]:
    """The validation figures that were saved with a checkpoint."""
    return checkpoint.load_state(folder).values["validation"]


def restore_state(root: pathlib.Path, state: TrainState) -> bool:
    """Brings `state` to the newest verified checkpoint under `root`; False when there is none.

    Raises:
        Failure: CONFIG_MISMATCH when the checkpoint comes from another config or other data.
    """
    folder = checkpoint.newest_verified(root)
    if folder is None:
        return False
    loaded, training = checkpoint.load_checkpoint(folder), checkpoint.load_state(folder)
    for name, wanted in state.identity.items():
        found = training.values["identity"].get(name)
        if found != wanted:
            mend = "choose another --name, or delete that run"
            raise Failure(ExitCode.CONFIG_MISMATCH, f"{folder} was made with {name} {found}, not {wanted}: {mend}")
    state.network.load_state_dict(loaded.weights)
    state.optimizer.load_state_tensors(training.tensors, num_updates=training.values["num_updates"])
    for name in _COUNTERS:
        setattr(state, name, training.values[name])
    return True
