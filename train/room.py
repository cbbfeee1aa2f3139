"""Room on the disk for what a run will write, asked for before it begins."""

import pathlib
from collections.abc import Iterable

import torch

from tools import files
from train.job import TrainingJob
from train.state import checkpoint_bytes, fresh_state


def check_disk(jobs: Iterable[TrainingJob]) -> None:
    """Refuses a run whose checkpoints will not all fit on its disk; what lies there already needs no more room.

    Raises:
        Failure: DISK_FULL, with the bytes needed and free.
    """
    left = [job for job in jobs if not job.is_complete()]
    if not left:
        return
    needed = sum(max(0, most_bytes(job) - _bytes_below(job.checkpoints)) for job in left)
    root = pathlib.Path(left[0].folder).parent
    files.check_room(root, needed=needed, what=f"what checkpoints of {root.name} still take")


def most_bytes(job: TrainingJob) -> int:
    """What the checkpoints of a job take at once: the newest ones, the best one, and one that is being written."""
    optimizer = job.loop.optimizer
    state = fresh_state(
        job.network, optimizer, seed=job.seed, device=torch.device("meta"), identity={}, averaging=job.loop.averaging
    )
    return (job.loop.keep_checkpoints + 2) * checkpoint_bytes(state)


def _bytes_below(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
