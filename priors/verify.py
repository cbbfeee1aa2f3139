"""Checks every file of a shard set against its hash.

Command: `bazel run //priors:verify -- DIR`
"""

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from typing import Annotated

import tyro

from priors.shards import ShardSet, read_manifest
from tools import config, progress, stores
from tools.failure import BadInput, ExitCode, run_program

_PATIENCE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """What to check."""

    folder: Annotated[str, tyro.conf.Positional]
    """Folder or URI of the shard set."""
    threads: int | None = None
    """Files that are hashed at once, one core each; by default as many as there are cores."""


class _Watch:
    """Sums what was checked; after a few seconds a bar shows it."""

    def __init__(self, stack: contextlib.ExitStack, *, num_bytes: int) -> None:
        self._stack, self._total = stack, num_bytes
        self._start, self._done = time.monotonic(), 0
        self._lock = threading.Lock()
        self._meter: progress.Meter | None = None

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._meter is None and time.monotonic() - self._start > _PATIENCE_SECONDS:
                meter = progress.meter("verified", total=self._total // 10**6, unit="MB", done=self._done // 10**6)
                self._meter = self._stack.enter_context(meter)
            if self._meter is not None:
                self._meter(self._done // 10**6)


@contextlib.contextmanager
def _watch(num_bytes: int) -> Iterator[_Watch]:
    with contextlib.ExitStack() as stack:
        yield _Watch(stack, num_bytes=num_bytes)


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = config.parse_flags(VerifyConfig, argv, program="//priors:verify")
    threads = flags.threads if flags.threads is not None else os.cpu_count() or 1
    if threads < 1:
        raise BadInput(ExitCode.BAD_FLAG, f"--threads {threads} is too small: give 1 or more")
    store = stores.open_store(stores.user_location(flags.folder))
    start, cpu_start = time.perf_counter(), time.process_time()
    num_bytes = sum(entry["bytes"] for entry in read_manifest(store)["parts"])
    with _watch(num_bytes) as report:
        shard_set = ShardSet.open(store, threads=threads, report=report)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    parts = len(shard_set.manifest["parts"])
    found = f"{shard_set.num_tasks} {shard_set.kind} tasks in {parts} files, {num_bytes / 1e6:.1f} MB"
    gigabytes = num_bytes / 1e9
    speed = f"{gigabytes / seconds:.2f} GB/s, {gigabytes / cpu_seconds:.2f} GB a core second, threads: {threads}"
    print(f"{found}, digest {shard_set.digest[:16]}: all whole ({speed})")
