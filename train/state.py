"""The state of a training run between two steps, and its way into checkpoints and back (T1, T2)."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from model import checkpoint
from model.initialisation import initial_network
from model.network import Network, NetworkConfig
from tools.failure import ExitCode, Failure
from train.averaging import Average, AveragingConfig, make_average
from train.optimizer_config import OptimizerConfig
from train.optimizers import Optimizer, make_optimizer

_SHOWN_CHANGES = 12  # in a refusal; all are named where they are accepted
_LIVE, _AVERAGE = "live/", "average/"  # before the names of tensors in a checkpoint's state


@dataclasses.dataclass(kw_only=True)
class TrainState:
    """Everything that the next step depends on.

    Args:
        network: the weights that are trained.
        optimizer: its moments.
        average: of the weights, where it is what is deployed.
        step: number of steps done; with the data and the seed it fixes every later batch.
        tasks_seen: tasks in updates that were taken or skipped.
        skipped: steps left out because something was not finite.
        skipped_in_row: how many of the latest steps were.
        identity: what a resumed run must share, by flat name: fields of its config, digests of its data.
        numerics: what bits depend on besides: dtype, number of workers, device. Recorded with every checkpoint.
    """

    network: Network
    optimizer: Optimizer
    average: Average | None = None
    step: int = 0
    tasks_seen: int = 0
    skipped: int = 0
    skipped_in_row: int = 0
    identity: dict[str, Any]
    numerics: dict[str, Any] = dataclasses.field(default_factory=dict)

    def averaged_weights(self) -> dict[str, Tensor] | None:
        """The parameters to predict with, by name, where they are not those of the network."""
        return self.optimizer.averaged() if self.average is None else self.average.weights()

    def deployed_weights(self) -> dict[str, Tensor]:
        """What is validated, audited and predicted with: the average where there is one, else the network's weights."""
        return {**self.network.state_dict(), **(self.averaged_weights() or {})}

    @contextlib.contextmanager
    def deployed(self) -> Iterator[Network]:
        """The network with its deployed weights; what is trained is back in place, bit by bit, afterwards."""
        averaged = self.averaged_weights()
        if averaged is None:
            yield self.network
            return
        live = {name: tensor.detach().clone() for name, tensor in self.network.named_parameters()}
        try:
            _put(self.network, averaged)
            yield self.network
        finally:
            _put(self.network, live)


_COUNTERS = ("step", "tasks_seen", "skipped", "skipped_in_row")


@torch.no_grad()
def _put(network: Network, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])


def fresh_state(
    config: NetworkConfig,
    optimizer: OptimizerConfig,
    *,
    seed: int,
    device: torch.device,
    identity: dict[str, Any],
    averaging: AveragingConfig = AveragingConfig(),
) -> TrainState:
    """The state before the first step."""
    network = initial_network(config, seed=seed).to(device)
    average = make_average(network, averaging)
    return TrainState(network=network, optimizer=make_optimizer(network, optimizer), average=average, identity=identity)


def save_state(root: pathlib.Path, state: TrainState, *, validation: dict[str, float]) -> pathlib.Path:
    """Writes a checkpoint of the whole state and its validation figures; see `model.checkpoint.save_checkpoint`.

    Its weights are the deployed ones; where those that are trained are others, they lie in the state.
    """
    counters = {name: getattr(state, name) for name in _COUNTERS}
    values: dict[str, Any] = {**counters, "num_updates": state.optimizer.num_updates, "identity": state.identity}
    values |= {"validation": validation, "numerics": state.numerics}
    training = checkpoint.TrainingState(tensors=_state_tensors(state), values=values)
    weights = state.deployed_weights()
    return checkpoint.save_checkpoint(root, step=state.step, network=state.network, state=training, weights=weights)


def _state_tensors(state: TrainState) -> dict[str, Tensor]:
    tensors = dict(state.optimizer.state_tensors())
    if state.average is not None:
        tensors |= {_AVERAGE + name: tensor for name, tensor in state.average.state_tensors().items()}
    if state.averaged_weights() is not None:
        tensors |= {_LIVE + name: parameter for name, parameter in state.network.named_parameters()}
    return tensors


def checkpoint_bytes(state: TrainState) -> int:
    """What `save_state` writes, in bytes: its tensors, and 1 MiB for headers and JSON."""
    tensors = [*state.deployed_weights().values(), *_state_tensors(state).values()]
    return sum(tensor.nbytes for tensor in tensors) + 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
    """From where a run goes on.

    Args:
        folder: the checkpoint.
        changes: "name: old → new" of every field of the identity that was another and was accepted.
    """

    folder: pathlib.Path
    changes: tuple[str, ...] = ()


def restore_state(root: pathlib.Path, state: TrainState, *, accept_changes: bool = False) -> Restored | None:
    """Brings `state` to the newest verified checkpoint under `root`; None when there is none.

    Args:
        root: folder of the checkpoints.
        state: a fresh one of the run as it is now.
        accept_changes: whether a run whose identity was another may go on as this one.

    Raises:
        Failure: CONFIG_MISMATCH when the checkpoint comes from another config or other data, naming what differs, or
            when its tensors do not fit this one's, naming the first that does not; FORMAT_VERSION.
    """
    folder = checkpoint.newest_verified(root)
    if folder is None:
        return None
    loaded, training = checkpoint.load_checkpoint(folder), checkpoint.load_state(folder)
    changes = differences(training.values["identity"], state.identity)
    if changes and not accept_changes:
        mend = "give --accept-changes to go on with what is new, or choose another --name"
        more = len(changes) - _SHOWN_CHANGES
        shown = "; ".join(changes[:_SHOWN_CHANGES]) + (f"; and {more} more" if more > 0 else "")
        text = f"{folder} was made with another config or other data ({shown}): {mend}"
        raise Failure(ExitCode.CONFIG_MISMATCH, text)
    tensors = training.tensors
    live = {**loaded.weights, **_part(tensors, _LIVE)}
    wanted = {**state.network.state_dict(), **state.optimizer.state_tensors()}
    _check_fit(wanted, {**live, **tensors}, folder=folder)
    state.network.load_state_dict(live)
    state.optimizer.load_state_tensors(tensors, num_updates=training.values["num_updates"])
    if state.average is not None:
        state.average.load_state_tensors(_part(tensors, _AVERAGE))
    for name in _COUNTERS:
        setattr(state, name, training.values[name])
    return Restored(folder=folder, changes=tuple(changes))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, "name: old → new" each, in order of names."""
    names = sorted({*old, *new})
    shown = [{name: str(side.get(name, "absent")) for name in names} for side in (old, new)]
    pairs = [(name, shown[0][name], shown[1][name]) for name in names if old.get(name) != new.get(name)]
    return [f"{name}: {before} → {after}" for name, before, after in pairs]


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _check_fit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], *, folder: pathlib.Path) -> None:
    mend = "choose another --name, or undo what changes the network or the optimizer"
    for name, tensor in wanted.items():
        if name not in found:
            raise Failure(ExitCode.CONFIG_MISMATCH, f"{folder} has no tensor {name}: {mend}")
        if found[name].shape != tensor.shape:
            there, here = tuple(found[name].shape), tuple(tensor.shape)
            text = f"tensor {name} in {folder} has shape {there}, not {here}: {mend}"
            raise Failure(ExitCode.CONFIG_MISMATCH, text)
