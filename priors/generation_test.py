"""Tests of priors.generation: kills, full disks, locks and foreign folders."""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pathlib
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from priors import shards
from priors.families import Family
from priors.generation import (
    Order,
    checked_seed,
    ensure_shards,
    held_out_episodes,
    make_set,
    run_here,
    shard_folder,
)
from priors.mixture import PriorConfig
from priors.recipe import Recipe, ShardConfig, group_seed
from tools import files
from tools.failure import ExitCode, Failure

PRIOR = PriorConfig(min_rows=32, max_rows=64, max_features=4, only=(Family.FOREST, Family.RULES))
CONFIG = ShardConfig(prior=PRIOR, group_size=4, groups_per_part=2)
TASKS = 24  # three parts
HERE = functools.partial(run_here, workers=1)


def make(
    out: shards.Location, *, config: ShardConfig = CONFIG, tasks: int = TASKS, workers: int = 1
) -> shards.ShardSet:
    """The set that every test here compares with."""
    return ensure_shards(config, out=out, num_tasks=tasks, seed=1, workers=workers)


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """File name → sha256 of everything in a folder."""
    return {path.name: files.sha256_file(path) for path in sorted(folder.iterdir())}


def refusal(call: Callable[[], object]) -> Failure:
    """The one line that a call is refused with."""
    with pytest.raises(Failure) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def in_child(work: Callable[[], object]) -> int:
    """Runs `work` in a forked child; its wait status (a failure's code is the exit code)."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            work()
            code = 0
        except Failure as failure:
            code = int(failure.code)
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@pytest.fixture(autouse=True)
def _single_thread() -> None:
    torch.set_num_threads(1)  # forked children then find no thread pool to wait for


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of a set that was made without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    make(folder)
    return hashes(folder)


def test_a_set_is_whole_and_the_right_size(tmp_path: pathlib.Path) -> None:
    shard_set = make(tmp_path / "new" / "folder", tasks=17)
    assert shard_set.num_tasks == 24 and len(shard_set.manifest["parts"]) == 3
    assert shard_set.manifest["config"]["prior"]["max_rows"] == 64
    group = shard_set.group(0)
    assert len(group) == 4 and group.x.shape[1] in (32, 64)


def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: same sha256 for 1, 2 and 4 workers, of all families."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    config = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, only=()))
    for workers in (1, 2, 4):
        make(tmp_path / str(workers), config=config, workers=workers)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2") == hashes(tmp_path / "4")


def test_bytes_do_not_depend_on_the_kind_of_store(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    """D2: a path and a URI; damage of any size is mended on the way."""
    shard_set = make(f"file://{tmp_path}/set")
    assert hashes(tmp_path / "set") == whole and shard_set.num_tasks == TASKS
    (tmp_path / "set" / "part-00000.arrow").write_bytes(b"half")
    (tmp_path / "set" / "part-00001.json").write_bytes(b"{")
    (tmp_path / "set" / "part-00002.arrow").unlink()
    (tmp_path / "set" / "MANIFEST.json").write_bytes(b"{")
    make(f"file://{tmp_path}/set")
    assert hashes(tmp_path / "set") == whole


def test_a_killed_process_of_the_pool_is_reported_and_its_part_made_later(
    tmp_path: pathlib.Path, whole: dict[str, str]
) -> None:
    """D1: kill −9 of one of two generating processes."""

    def kill(done: int) -> None:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    order = Order(
        recipe=Recipe(config=CONFIG, seed=1, num_parts=10),
        out=tmp_path,
        run=functools.partial(run_here, workers=2),
        report=kill,
    )
    failure = refusal(lambda: make_set(order))
    assert failure.code == ExitCode.WORKER_FAILED and "run the same command again" in failure.message
    assert not (tmp_path / "MANIFEST.json").exists() and not (tmp_path / "lock").exists()
    make(tmp_path, tasks=80)
    assert {name: hashes(tmp_path)[name] for name in whole if name != "MANIFEST.json"}.items() <= whole.items()


def _killed_at_event(number: int) -> Callable[[tuple], None]:
    """An audit hook that kills this process at its `number`-th file operation."""
    count = 0

    def hook(event: str, args: tuple) -> None:
        nonlocal count
        changes = event in ("os.rename", "os.remove", "os.link", "os.mkdir")
        if changes or (event == "open" and "tmp" in str(args[0])):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def test_a_kill_at_any_write_leaves_a_folder_that_resumes_to_equal_bytes(
    tmp_path: pathlib.Path, whole: dict[str, str]
) -> None:
    """D1: SIGKILL before every file operation; after a re-run all hashes equal an uninterrupted run."""
    killed = 0
    for number in range(1, 60):
        out = tmp_path / str(number)
        out.mkdir()

        def work(number: int = number, out: pathlib.Path = out) -> None:
            sys.addaudithook(_killed_at_event(number))
            make(out)

        status = in_child(work)
        if os.WIFSIGNALED(status):
            killed += 1
            assert not (out / "MANIFEST.json").exists() or shards.ShardSet.open(out).num_tasks == TASKS
            make(out)
        assert hashes_without_traces(out) == whole
        if not os.WIFSIGNALED(status):
            break
    assert killed >= 20


def hashes_without_traces(folder: pathlib.Path) -> dict[str, str]:
    """Hashes of all files but the lock's staging file, which a killed process may leave."""
    return {name: value for name, value in hashes(folder).items() if not name.startswith((".lock", ".writable"))}


@pytest.mark.parametrize("uri", [False, True])
def test_a_kill_at_any_time_leaves_a_folder_that_resumes_to_equal_bytes(
    tmp_path: pathlib.Path, whole: dict[str, str], uri: bool
) -> None:
    """D1: SIGKILL at 20 random times, measured by the processor so that other load does not matter."""

    def place(name: str) -> str:
        return f"file://{tmp_path}/{name}" if uri else str(tmp_path / name)

    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert in_child(lambda: make(place("timed"))) == 0
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    duration = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    generator, killed = random.Random(0), 0
    for trial in range(20):

        def work(out: str = place(str(trial)), delay: float = generator.uniform(0.0, duration)) -> None:
            signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.setitimer(signal.ITIMER_PROF, max(delay, 1e-3))
            make(out)

        killed += os.WIFSIGNALED(in_child(work))
        for left in (tmp_path / str(trial)).glob(".*.tmp"):
            os.utime(left, (0, 0))  # where there is no lock only age tells that nobody is writing it
        make(place(str(trial)))
        assert hashes_without_traces(tmp_path / str(trial)) == whole
    assert killed >= 10


def test_verified_parts_are_kept_and_damaged_ones_made_anew(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    make(tmp_path)
    data = bytearray((tmp_path / "part-00001.arrow").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "part-00001.arrow").write_bytes(data)
    (tmp_path / "part-00002.json").unlink()
    before = (tmp_path / "part-00000.arrow").stat().st_mtime_ns
    done: list[int] = []
    ensure_shards(CONFIG, out=tmp_path, num_tasks=TASKS, seed=1, report=done.append)
    assert done == [8, 16, 24]
    assert (tmp_path / "part-00000.arrow").stat().st_mtime_ns == before
    assert hashes(tmp_path) == whole


def test_a_finished_set_is_only_verified(tmp_path: pathlib.Path) -> None:
    stamps = []
    for _ in range(2):
        make(tmp_path)
        stamps.append({path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()})
    assert stamps[0] == stamps[1]


def test_a_set_can_grow(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    make(tmp_path, tasks=8)
    make(tmp_path)
    assert hashes(tmp_path) == whole


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Makes writes beyond `size` bytes fail, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_has_its_own_exit_code_and_leaves_nothing_half_written(
    tmp_path: pathlib.Path, whole: dict[str, str]
) -> None:
    """D5: disk full: own code, bytes free and needed, nothing half-committed; with room the same command goes on."""
    with file_size_limit(2000):
        failure = refusal(lambda: make(tmp_path))
    assert failure.code == ExitCode.DISK_FULL
    assert re.search(r"part-00000\.arrow needs \d+ bytes and \d+ are free", failure.message)
    assert list(tmp_path.iterdir()) == []
    make(tmp_path)
    assert hashes(tmp_path) == whole


def test_a_second_process_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    """D6: the output folder is held by one process."""
    with files.FolderLock(tmp_path):
        start = time.monotonic()
        failure = refusal(lambda: make(tmp_path))
    assert failure.code == ExitCode.RUN_BUSY and str(os.getpid()) in failure.message
    assert time.monotonic() - start < 5


def test_folders_of_others_are_refused(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    make(tmp_path)
    wide = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, max_features=5))
    for call in (
        lambda: make(tmp_path, config=wide),
        lambda: ensure_shards(CONFIG, out=tmp_path, num_tasks=TASKS, seed=2),
        lambda: make(tmp_path, tasks=8),
    ):
        failure = refusal(call)
        assert failure.code == ExitCode.CONFIG_MISMATCH and str(tmp_path) in failure.message
        assert "--anew" in failure.message
    assert "--num-tasks asks for 8 tasks, fewer than the 24 of" in failure.message
    assert hashes(tmp_path) == whole


def test_a_manifest_alone_says_whose_the_folder_is(tmp_path: pathlib.Path) -> None:
    make(tmp_path)
    for path in tmp_path.glob("part-*"):
        path.unlink()
    before = hashes(tmp_path)
    failure = refusal(lambda: ensure_shards(CONFIG, out=tmp_path, num_tasks=TASKS, seed=2))
    assert failure.code == ExitCode.CONFIG_MISMATCH and "MANIFEST.json" in failure.message
    assert hashes(tmp_path) == before


def test_another_format_version_is_refused(tmp_path: pathlib.Path) -> None:
    make(tmp_path)
    for path in tmp_path.glob("*.json"):
        path.write_text(path.read_text().replace('"format_version": 2', '"format_version": 1'))
    before = hashes(tmp_path)
    for out in (tmp_path, f"file://{tmp_path}"):
        failure = refusal(lambda out=out: make(out))
        assert failure.code == ExitCode.FORMAT_VERSION and "--anew" in failure.message
        assert "format version 1, not 2" in failure.message
    assert hashes(tmp_path) == before


@pytest.mark.parametrize("uri", [False, True])
def test_anew_removes_whatever_shards_lie_there_and_nothing_else(
    tmp_path: pathlib.Path, whole: dict[str, str], uri: bool
) -> None:
    out = tmp_path / "set"
    make(out, tasks=40)
    wide = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, max_features=5))
    make(tmp_path / "other", config=wide)
    for path in (tmp_path / "other").glob("part-00001.*"):
        path.replace(out / path.name)
    old = out / "part-00003.json"
    old.write_text(old.read_text().replace('"format_version": 2', '"format_version": 1'))
    (out / "notes.txt").write_text("mine")
    (out / "MANIFEST.json").write_text("{")
    recipe = Recipe(config=CONFIG, seed=1, num_parts=3)
    make_set(Order(recipe=recipe, out=f"file://{out}" if uri else out, run=HERE, anew=True))
    assert hashes(out) == {**whole, "notes.txt": files.sha256_file(out / "notes.txt")}


@pytest.mark.parametrize(("tasks", "workers", "word"), [(0, 1, "--num-tasks 0"), (8, 0, "--workers 0")])
def test_numbers_below_one_are_refused(tmp_path: pathlib.Path, tasks: int, workers: int, word: str) -> None:
    failure = refusal(lambda: make(tmp_path / "new", tasks=tasks, workers=workers))
    assert failure.code == ExitCode.BAD_FLAG and word in failure.message
    assert not (tmp_path / "new").exists()


def test_more_workers_than_cores_are_refused_with_both_numbers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    failure = refusal(lambda: make(tmp_path / "new", workers=4))
    assert failure.code == ExitCode.TOO_FEW_RESOURCES and "--workers 4 is more than the 3 cores" in failure.message
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_that_are_none_are_refused(tmp_path: pathlib.Path, seed: int) -> None:
    failure = refusal(lambda: ensure_shards(CONFIG, out=tmp_path / "new", num_tasks=8, seed=seed))
    assert failure.code == ExitCode.BAD_FLAG and f"--seed {seed} is outside" in failure.message
    assert not (tmp_path / "new").exists()
    assert [checked_seed(good) for good in (0, 2**63 - 1)] == [0, 2**63 - 1]


def test_the_folder_of_a_set_is_named_by_source_and_number(tmp_path: pathlib.Path) -> None:
    folder = shard_folder(tmp_path, CONFIG, seed=1, num_tasks=20)
    assert folder == tmp_path / "shards" / f"{CONFIG.source(seed=1).digest()[:16]}-20"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"min_rows": 8}, "min-rows 8"),
        ({"max_rows": 31}, "max-rows 31"),
        ({"min_features": 0}, "min-features 0"),
        ({"max_features": 1}, "max-features 1"),
    ],
)
def test_impossible_priors_are_refused(tmp_path: pathlib.Path, change: dict[str, float], word: str) -> None:
    config = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, **change))
    failure = refusal(lambda: make(tmp_path / "new", config=config))
    assert failure.code == ExitCode.BAD_FLAG and word in failure.message
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    failure = refusal(lambda: make(tmp_path / "file" / "below"))
    assert failure.code == ExitCode.NOT_WRITABLE and "--out" in failure.message


def test_held_out_episodes_are_never_training_tasks() -> None:
    seeds = {group_seed(1, index=index) for index in range(2000)}
    episodes = held_out_episodes(PRIOR, seed=1, count=40)
    assert len(episodes) == 40 and not seeds & {episode.task.seed for episode in episodes}
    assert len({(len(episode.task.y), episode.task.x.shape[1]) for episode in episodes}) > 1
    again = held_out_episodes(PRIOR, seed=1, count=40)
    for one, other in zip(episodes, again, strict=True):
        np.testing.assert_array_equal(one.task.x, other.task.x)
        classes = set(one.task.y)
        assert set(one.task.y[: one.num_context]) == classes
