"""Tests of priors.generation: kills, full disks, locks and foreign folders."""

import dataclasses
import os
import pathlib
import random
import resource
import signal
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from priors import shards
from priors.generation import (
    ShardConfig,
    checked_seed,
    ensure_shards,
    group_seed,
    held_out_episodes,
    sample_part,
    shard_folder,
)
from priors.mixture import PriorConfig
from priors.task import TaskKind
from tools import files
from tools.failure import ExitCode, Failure

PRIOR = PriorConfig(min_rows=32, max_rows=64, max_features=4)
CONFIG = ShardConfig(prior=PRIOR, group_size=4, groups_per_part=2)
TASKS = 24  # three parts


def make(out: pathlib.Path, *, config: ShardConfig = CONFIG, tasks: int = TASKS, workers: int = 1) -> shards.ShardSet:
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


@pytest.mark.parametrize("workers", [2, 4])
def test_bytes_do_not_depend_on_the_number_of_workers(
    tmp_path: pathlib.Path, whole: dict[str, str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: same sha256 for 1, 2 and 4 workers."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    make(tmp_path, workers=workers)
    assert hashes(tmp_path) == whole


def test_other_seeds_and_configs_make_other_bytes(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    ensure_shards(CONFIG, out=tmp_path / "seed", num_tasks=8, seed=2)
    kind = dataclasses.replace(CONFIG, prior=dataclasses.replace(PRIOR, kind=TaskKind.REGRESSION))
    make(tmp_path / "kind", config=kind, tasks=8)
    names = [hashes(tmp_path / name)["part-00000.arrow"] for name in ("seed", "kind")]
    assert len({*names, whole["part-00000.arrow"]}) == 3


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
            assert not (out / "MANIFEST.json").exists() or shards.ShardSet.open(out)
            make(out)
        assert hashes_without_traces(out) == whole
        if not os.WIFSIGNALED(status):
            break
    assert killed >= 20


def hashes_without_traces(folder: pathlib.Path) -> dict[str, str]:
    """Hashes of all files but the lock's staging file, which a killed process may leave."""
    return {name: value for name, value in hashes(folder).items() if not name.startswith((".lock", ".writable"))}


def test_a_kill_at_any_time_leaves_a_folder_that_resumes_to_equal_bytes(
    tmp_path: pathlib.Path, whole: dict[str, str]
) -> None:
    """D1: SIGKILL at 20 random times."""
    start = time.monotonic()
    assert in_child(lambda: make(tmp_path / "timed")) == 0
    duration = time.monotonic() - start
    generator = random.Random(0)
    for trial in range(20):
        out = tmp_path / str(trial)

        def work(out: pathlib.Path = out, delay: float = generator.uniform(0.0, duration)) -> None:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-3))
            make(out)

        in_child(work)
        make(out)
        assert hashes_without_traces(out) == whole


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
    make(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    make(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_set_can_grow(tmp_path: pathlib.Path, whole: dict[str, str]) -> None:
    make(tmp_path, tasks=8)
    make(tmp_path)
    assert hashes(tmp_path) == whole


def test_a_full_disk_has_its_own_exit_code_and_leaves_nothing_half_written(tmp_path: pathlib.Path) -> None:
    """D5: disk full."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        make(tmp_path)

    assert os.waitstatus_to_exitcode(in_child(work)) == ExitCode.DISK_FULL
    assert list(tmp_path.iterdir()) == []


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
    assert hashes(tmp_path) == whole


def test_another_format_version_is_refused(tmp_path: pathlib.Path) -> None:
    make(tmp_path)
    for path in tmp_path.glob("*.json"):
        path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 9'))
    assert refusal(lambda: make(tmp_path)).code == ExitCode.FORMAT_VERSION


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
    assert (CONFIG.rounded(1), CONFIG.rounded(20), CONFIG.rounded(24)) == (8, 24, 24)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"min_rows": 8}, "min-rows 8"),
        ({"max_rows": 31}, "max-rows 31"),
        ({"min_features": 0}, "min-features 0"),
        ({"max_features": 1}, "max-features 1"),
        ({"structural_weight": 0.0, "forest_weight": 0.0, "rules_weight": 0.0}, "weights"),
        ({"forest_weight": -1.0}, "weights"),
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


def test_parts_are_sampled_on_one_thread_and_the_setting_is_given_back() -> None:
    torch.set_num_threads(2)
    try:
        first = sample_part(CONFIG, seed=1, index=0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    second = sample_part(CONFIG, seed=1, index=0)
    np.testing.assert_array_equal(first[0].x, second[0].x)
