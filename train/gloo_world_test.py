"""Tests of the processes that other tests run: they are several, they are joined, and one that dies ends all."""

import copy
import os
import pathlib
import signal

import pytest
import torch
from torch import distributed

from tools.failure import BadInput, ExitCode, Failure
from train.gloo_world import MemberFailed, run_world
from train.job import Place


def _sum_of_ranks(place: Place, start: float) -> dict[str, float]:
    total = torch.tensor(start + place.rank)
    if place.world_size > 1:
        distributed.all_reduce(total)
    return {"pid": os.getpid(), "rank": place.rank, "total": float(total)}


@pytest.mark.parametrize(("size", "total"), [(1, 10.0), (2, 21.0), (3, 33.0)])
def test_every_rank_is_a_process_of_its_own_and_hears_the_others(size: int, total: float) -> None:
    found = run_world(_sum_of_ranks, 10.0, size=size)
    assert [member["rank"] for member in found] == list(range(size))
    assert len({member["pid"] for member in found} | {os.getpid()}) == size + 1
    assert {member["total"] for member in found} == {total}


def _one_dies(place: Place, ending: str, folder: str) -> None:
    (pathlib.Path(folder) / f"{place.rank}.pid").write_text(str(os.getpid()))
    distributed.barrier()
    if place.rank == 1:
        if ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("what went wrong")
    signal.pause()  # for ever, unless somebody ends it


@pytest.mark.parametrize(("ending", "reason"), [("killed", "status -9"), ("raised", "ValueError: what went wrong")])
def test_a_member_that_dies_is_named_and_the_others_are_ended(ending: str, reason: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(MemberFailed) as caught:
        run_world(_one_dies, ending, str(tmp_path))
    assert caught.value.rank == 1 and reason in caught.value.reason
    assert caught.value.code is ExitCode.WORKER_FAILED and caught.value.message == f"rank 1: {reason}"
    assert not any(pathlib.Path("/proc", path.read_text()).exists() for path in tmp_path.glob("*.pid"))


def _one_refuses(place: Place) -> None:
    if place.rank == 1:
        raise BadInput(ExitCode.DISK_FULL, "2 GB are needed")
    distributed.barrier()  # fails when the other one is gone


def test_what_a_member_refuses_is_refused_with_its_code_whoever_else_ends_by_it() -> None:
    with pytest.raises(Failure) as caught:
        run_world(_one_refuses)
    assert (caught.value.code, caught.value.message) == (ExitCode.DISK_FULL, "2 GB are needed")


def test_a_failed_member_travels_between_processes() -> None:
    copied = copy.copy(MemberFailed(1, "Traceback\nValueError: x"))
    assert (copied.rank, copied.reason, copied.message) == (1, "Traceback\nValueError: x", "rank 1: ValueError: x")


def _listeners(place: Place) -> list[str]:
    mine = {os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    distributed.barrier()
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]


def test_members_listen_on_loopback_alone() -> None:
    """S2: gloo would take the interface of the host's name."""
    for addresses in run_world(_listeners):
        assert addresses and set(addresses) == {"0100007F"}
