"""A function in several real processes, joined by gloo over loopback as workers are, without Ray.

Time to target trains so, and so do tests of this package. The processes come from a fork server that has torch and the
loop loaded already, so a world costs less than a second.
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

from tools import files
from tools.failure import ExitCode, Failure
from tools.parent import follow_parent
from train.job import Place

_PRELOADED = ["train.sitting"]


class MemberFailed(Failure):
    """A member of a world raised what is no refusal, was killed, or left without a result: WORKER_FAILED.

    Args:
        rank: which one.
        reason: its traceback, or its exit status (negative: the signal); the message holds the last line.
    """

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(ExitCode.WORKER_FAILED, f"rank {rank}: {reason.strip().splitlines()[-1]}")
        self.rank, self.reason = rank, reason
        self.add_note(reason)

    def __reduce__(self) -> tuple[type["MemberFailed"], tuple[int, str]]:
        """How it travels between processes."""
        return type(self), (self.rank, self.reason)


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
        Failure: what a member refused, or MemberFailed for the first one that ended otherwise; the others are killed
            at once.
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
                    raise _failure(folder, rank=rank, status=member.exitcode)


def _failure(folder: pathlib.Path, *, rank: int, status: int) -> Failure:
    """Why a member ended badly: a refusal, be it another's whom it lost by it, or what itself said."""
    for refusal in sorted(folder.glob("*.refusal")):
        code, message = json.loads(refusal.read_bytes())
        return Failure(ExitCode(code), message)
    said = folder / f"{rank}.txt"
    return MemberFailed(rank, said.read_text() if said.exists() else f"status {status}")


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
    except Failure as failure:
        files.write_bytes(folder / f"{place.rank}.refusal", json.dumps([failure.code, failure.message]).encode())
        raise SystemExit(1) from None
    except BaseException:
        (folder / f"{place.rank}.txt").write_text(traceback.format_exc())
        raise SystemExit(1) from None
