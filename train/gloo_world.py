"""For tests of this package: a function in several real processes, joined by gloo over loopback as workers are.

The processes come from a fork server that has torch and the loop loaded already, so a world costs less than a second.
"""

import json
import multiprocessing
import os
import pathlib
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch
from torch import distributed

from tools.parent import follow_parent
from train.job import Place

_PRELOADED = ["train.sitting"]


class MemberFailed(Exception):
    """A member of a world raised, was killed, or left without a result.

    Args:
        rank: which one.
        reason: its traceback, or its exit status (negative: the signal).
    """

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank}: {reason}")
        self.rank, self.reason = rank, reason


def run_world(work: Callable[..., Any], *arguments: Any, size: int = 2) -> list[Any]:
    """Calls `work(place, *arguments)` once in each of `size` processes.

    One process alone is not joined to anything, as a single worker is not.

    Args:
        work: a function that can be imported; it returns something that JSON can hold.
        arguments: further arguments of every call.
        size: how many processes.

    Returns:
        What each rank returned, in order of rank.

    Raises:
        MemberFailed: for the first member that ended otherwise; the others are killed at once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        members = [
            context.Process(target=_member, args=(folder, Place(rank=rank, world_size=size), (work, arguments)))
            for rank in range(size)
        ]
        try:
            for member in members:
                member.start()
            _wait(members, folder)
        finally:
            for member in members:
                if member.pid is not None:
                    member.kill()
                    member.join()
        return [json.loads((folder / f"{rank}.json").read_bytes()) for rank in range(size)]


def _wait(members: Sequence[ForkServerProcess], folder: pathlib.Path) -> None:
    """Returns when all have ended well; raises as soon as one has not."""
    running = dict(enumerate(members))
    while running:
        connection.wait([member.sentinel for member in running.values()])
        for rank, member in list(running.items()):
            if member.exitcode is not None:
                del running[rank]
                if member.exitcode != 0:
                    said = folder / f"{rank}.txt"
                    raise MemberFailed(rank, said.read_text() if said.exists() else f"status {member.exitcode}")


def _member(folder: pathlib.Path, place: Place, call: tuple[Callable[..., Any], Sequence[Any]]) -> None:
    follow_parent()
    work, arguments = call
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        if place.world_size > 1:
            store = distributed.FileStore(str(folder / "store"), place.world_size)
            distributed.init_process_group("gloo", store=store, rank=place.rank, world_size=place.world_size)
        result = work(place, *arguments)
        if place.world_size > 1:
            distributed.destroy_process_group()
        (folder / f"{place.rank}.json").write_text(json.dumps(result))
    except BaseException:
        (folder / f"{place.rank}.txt").write_text(traceback.format_exc())
        raise SystemExit(1) from None
