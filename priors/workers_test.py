"""Test of generation on a real Ray instance."""

import functools
import os
import pathlib
import signal

import pytest

from priors.generation import Order, ensure_shards, make_set
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig
from priors.workers import connected
from tools import files
from tools.failure import ExitCode, Failure

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings

CONFIG = ShardConfig(prior=PriorConfig(min_rows=64, max_rows=128, max_features=8), group_size=16, groups_per_part=4)


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """File name → sha256 of everything in a folder."""
    return {path.name: files.sha256_file(path) for path in sorted(folder.iterdir())}


def _parent(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _generating() -> list[int]:
    """Processes of this test's Ray instance that make parts right now: grandchildren, by the name that Ray gives."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            pid = int(path.parent.name)
            if b"ray::_make_range" in path.read_bytes() and _parent(_parent(pid)) == os.getpid():
                found.append(pid)
        except (OSError, ValueError):
            continue
    return found


def _kill_once(done: int, *, killed: list[int]) -> None:
    """Kills −9 one generating process after the first parts are there."""
    if done and not killed and (pids := _generating()):
        os.kill(pids[0], signal.SIGKILL)
        killed.append(pids[0])


def test_a_range_whose_process_is_killed_is_made_again_to_the_same_bytes(tmp_path: pathlib.Path) -> None:
    """D1 and D2 on Ray: kill −9 of a worker; the set equals an uninterrupted one, in a folder and behind a URI.

    A refusal on a worker comes back as it was, with its own exit code.
    """
    recipe = Recipe(config=CONFIG, seed=3, num_parts=24)
    killed: list[int] = []
    with connected("local", num_workers=2) as run:
        report = functools.partial(_kill_once, killed=killed)
        shard_set = make_set(Order(recipe=recipe, out=tmp_path / "set", run=run, report=report))
        assert len(killed) == 1 and not pathlib.Path(f"/proc/{killed[0]}").exists()
        make_set(Order(recipe=recipe, out=f"file://{tmp_path}/objects", run=run))
        (tmp_path / "full" / "part-00000.arrow").mkdir(parents=True)
        with pytest.raises(Failure) as caught:
            make_set(Order(recipe=recipe, out=tmp_path / "full", run=run))
        assert caught.value.code is ExitCode.NOT_WRITABLE and "part-00000.arrow" in caught.value.message
    ensure_shards(CONFIG, out=tmp_path / "whole", num_tasks=shard_set.num_tasks, seed=3)
    assert hashes(tmp_path / "set") == hashes(tmp_path / "objects") == hashes(tmp_path / "whole")
    assert not _generating()
