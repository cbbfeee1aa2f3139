"""Generation: from a prior to a finished shard set, on several processes, resumable at any moment.

The bytes of a part depend on (config, seed, index) only, so parts may be made in any order, by any number of
processes, and again after a kill.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import math
import multiprocessing
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from priors import shards
from priors.splits import as_episode
from priors.group import TaskGroup
from priors.mixture import VERSION, PriorConfig, checked, draw_shape, sample_group
from priors.task import Episode
from tools import files, paths
from tools.config import to_json
from tools.failure import ExitCode, Failure

_TRAINING, _HELD_OUT = 0, 1
_EPISODES_PER_GROUP = 8
_MAX_SEED = 2**63 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """Everything but the seed that the bytes of a shard set depend on."""

    prior: Annotated[PriorConfig, tyro.conf.arg(name="")] = PriorConfig()
    """What tasks are drawn from."""
    group_size: int = 64
    """Tasks that share rows and features; a multiple of every batch size that the set is to serve."""
    groups_per_part: int = 8
    """Groups in one Arrow file."""

    @property
    def tasks_per_part(self) -> int:
        """Tasks in one Arrow file; sets are rounded up to whole files."""
        return self.group_size * self.groups_per_part

    def rounded(self, num_tasks: int) -> int:
        """Tasks that a set of `num_tasks` really holds: whole files."""
        return math.ceil(num_tasks / self.tasks_per_part) * self.tasks_per_part

    def source(self, *, seed: int) -> shards.ShardSource:
        """The identity of the sets that this config makes with `seed`."""
        return shards.ShardSource(config={**to_json(self), "version": VERSION}, seed=seed, kind=self.prior.kind)


def shard_folder(root: pathlib.Path, config: ShardConfig, *, seed: int, num_tasks: int) -> pathlib.Path:
    """Where a set lies below `root` unless the user says otherwise: every program finds there what another has made."""
    return root / "shards" / f"{config.source(seed=seed).digest()[:16]}-{num_tasks}"


def checked_seed(seed: int) -> int:
    """Returns `seed` if a set can be drawn from it.

    Raises:
        Failure: BAD_FLAG outside 0…2⁶³−1.
    """
    if not 0 <= seed <= _MAX_SEED:
        raise Failure(ExitCode.BAD_FLAG, f"--seed {seed} is outside 0…2^63−1: give a whole number of that range")
    return seed


def group_seed(seed: int, *, index: int, stream: int = _TRAINING) -> int:
    """The seed of one group; streams (training, held out) never meet."""
    return int(np.random.SeedSequence([seed, stream, index]).generate_state(1, np.uint64)[0] >> 1)


def sample_part(config: ShardConfig, *, seed: int, index: int) -> list[TaskGroup]:
    """The groups of part `index`: a pure function of its arguments."""
    groups = []
    with one_thread():
        for number in range(index * config.groups_per_part, (index + 1) * config.groups_per_part):
            own = group_seed(seed, index=number)
            shape = draw_shape(config.prior, seed=own)
            size = {"rows": shape.rows, "features": shape.features, "count": config.group_size}
            groups.append(sample_group(config.prior, seed=own, **size))
    return groups


def held_out_episodes(config: PriorConfig, *, seed: int, count: int, share: float = 0.5) -> list[Episode]:
    """Episodes for evaluation, from seeds that no shard set is drawn from.

    Args:
        config: the prior.
        seed: the seed of the collection.
        count: how many episodes.
        share: share of each task's rows that are context; every class is in the context where it has room.
    """
    checked(config)
    out: list[Episode] = []
    with one_thread():
        for index in range(math.ceil(count / _EPISODES_PER_GROUP)):
            own = group_seed(seed, index=index, stream=_HELD_OUT)
            shape = draw_shape(config, seed=own)
            size = {"rows": shape.rows, "features": shape.features, "count": _EPISODES_PER_GROUP}
            group = sample_group(config, seed=own, **size)
            out += [as_episode(task, share=share, seed=own % 2**32 + i) for i, task in enumerate(group.tasks())]
    return out[:count]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside: sums do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ensure_shards(
    config: ShardConfig,
    *,
    out: pathlib.Path,
    num_tasks: int,
    seed: int,
    workers: int = 1,
    report: Callable[[int], Any] | None = None,
) -> shards.ShardSet:
    """Generates what is absent in `out`, verifies what is there, and opens the set.

    Args:
        config: prior, group size and file size.
        out: the folder of the set; created.
        num_tasks: tasks wanted; rounded up to whole files of `config.tasks_per_part`.
        seed: the seed of the set.
        workers: processes.
        report: called with the number of tasks that are finished.

    Returns:
        The verified set.

    Raises:
        Failure: what `check_request` raises; NOT_WRITABLE; DISK_FULL; RUN_BUSY while another process generates here;
            CONFIG_MISMATCH where `out` holds another config or seed, or more tasks; FORMAT_VERSION.
    """
    check_request(config, num_tasks=num_tasks, seed=seed, workers=workers)
    paths.writable_folder(out, flag="--out")
    report = report or (lambda done: None)
    source, parts = config.source(seed=seed), config.rounded(num_tasks) // config.tasks_per_part
    with files.FolderLock(out):
        _check_owner(out, source=source, parts=parts)
        for left in out.glob(".*.tmp"):  # of killed processes: only the holder of the lock writes here
            left.unlink(missing_ok=True)
        entries = {index: entry for index in range(parts) if (entry := shards.read_entry(out, index))}
        report(len(entries) * config.tasks_per_part)
        absent = [index for index in range(parts) if index not in entries]
        if absent:
            (out / files.MANIFEST).unlink(missing_ok=True)
        for index, entry in _generate(config, out=out, seed=seed, indices=absent, workers=workers):
            entries[index] = entry
            report(len(entries) * config.tasks_per_part)
        if absent or not (out / files.MANIFEST).exists():
            shards.write_set(out, [entries[index] for index in range(parts)], source=source)
    return shards.ShardSet.open(out)


def check_request(config: ShardConfig, *, num_tasks: int, seed: int, workers: int) -> None:
    """Refuses what cannot be made, before anything is written.

    Raises:
        Failure: BAD_FLAG for numbers below 1, seeds outside 0…2⁶³−1 and impossible priors; TOO_FEW_RESOURCES for more
            workers than cores.
    """
    sizes = {"--group-size": config.group_size, "--groups-per-part": config.groups_per_part}
    for flag, value in {"--num-tasks": num_tasks, "--workers": workers, **sizes}.items():
        if value < 1:
            raise Failure(ExitCode.BAD_FLAG, f"{flag} {value} is too small: give 1 or more")
    cores = os.cpu_count() or 1
    if workers > cores:
        what = f"--workers {workers} is more than the {cores} cores of this machine"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, f"{what}: give {cores} or fewer")
    checked_seed(seed)
    checked(config.prior)


def _check_owner(out: pathlib.Path, *, source: shards.ShardSource, parts: int) -> None:
    """Refuses a folder whose parts belong to another config or seed, or that holds more parts than asked for."""
    found = sorted(out.glob("part-*.json"))
    for path in found:
        try:
            entry = json.loads(path.read_bytes())
            owner, index = entry["source"], entry["index"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if entry.get("format_version") != shards.FORMAT_VERSION:
            continue
        if owner != source.digest():
            mend = "give another folder, or the config and seed that it was made with"
            theirs = f"shards of source {owner[:16]}, not of {source.digest()[:16]}"
            raise Failure(ExitCode.CONFIG_MISMATCH, f"--out {out} holds {theirs} ({path.name}): {mend}")
        if index >= parts:
            mend = "ask for as many, or give another folder"
            raise Failure(ExitCode.CONFIG_MISMATCH, f"--out {out} holds more than {parts} files ({path.name}): {mend}")


def _generate(
    config: ShardConfig, *, out: pathlib.Path, seed: int, indices: list[int], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Makes and commits parts, here or on spawned processes of one torch thread each; yields them as they finish."""
    if workers == 1 or len(indices) < 2:
        for index in indices:
            yield index, _make_part(config, out=out, seed=seed, index=index)
        return
    context = multiprocessing.get_context("spawn")
    number = min(workers, len(indices))
    with concurrent.futures.ProcessPoolExecutor(number, mp_context=context, initializer=_follow_parent) as pool:
        waiting = {pool.submit(_make_part, config, out=out, seed=seed, index=index): index for index in indices}
        try:
            for future in concurrent.futures.as_completed(waiting):
                yield waiting[future], future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            mend = "run the same command again to go on"
            raise Failure(ExitCode.WORKER_FAILED, f"a generating process was killed: {mend}") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _make_part(config: ShardConfig, *, out: pathlib.Path, seed: int, index: int) -> dict[str, Any]:
    groups = sample_part(config, seed=seed, index=index)
    return shards.write_part(out, groups, source=config.source(seed=seed), index=index)


def _follow_parent() -> None:
    """Ends this process when its parent is gone, however the parent ended; the parent alone answers an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
