"""Room on the disk for what a run will write, asked for before it begins."""

import pathlib
from collections.abc import Iterable

import torch

from model.network import NetworkConfig
from tools import files
from train.job import TrainingJob
from train.loop import LoopConfig
from train.state import TrainState, checkpoint_bytes, fresh_state


def check_disk(jobs: Iterable[TrainingJob]) -> None:
    """Refuses a run whose checkpoints will not all fit on its disk; what lies there already needs no more room.

    Raises:
        Failure: DISK_FULL, with the bytes needed and free.
    """
    left = [job for job in jobs if not job.is_complete()]
    if not left:
        return
    needed = sum(max(0, most_bytes(job.network, job.loop) - _bytes_below(job.checkpoints)) for job in left)
    root = pathlib.Path(left[0].folder).parent
    files.check_room(root, needed=needed, what=f"what checkpoints of {root.name} still take")


def most_bytes(network: NetworkConfig, loop: LoopConfig) -> int:
    """What a training's checkpoints take at once: the newest ones, the best one, and one that is being written."""
    return (loop.keep_checkpoints + 2) * checkpoint_bytes(grown_state(network, loop))


def grown_state(network: NetworkConfig, loop: LoopConfig) -> TrainState:
    """A state without numbers whose checkpoint is as large as any of such a training: its average has all points."""
    averaging, meta = loop.averaging, torch.device("meta")
    state = fresh_state(network, loop.optimizer, seed=0, device=meta, identity={}, averaging=averaging)
    if state.average is not None:
        for number in range(1, averaging.points + 1):
            state.average.update(number * averaging.every)
    return state


def _bytes_below(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
