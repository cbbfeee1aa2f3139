"""For tests of this package: which tasks every worker was given at every step, noted by the worker itself.

A task's id is a digest of all that the network and the loss see of it, so it tells task, order of rows and columns, and
the cut into context and query apart.
"""

import collections
import hashlib
import os
import pathlib
from collections.abc import Mapping

from torch import distributed

from priors.task import TaskBatch
from tools import files
from train.feed import Feed

FOLDER = "VERITAB_SAMPLE_LOG"
"""The environment variable that names the folder of the log to `log_samples`."""


def sample_ids(batch: TaskBatch) -> list[str]:
    """One id for each task of a batch."""
    arrays = (batch.x_context, batch.y_context, batch.x_query, batch.y_query, batch.column_kinds)
    return [
        hashlib.sha256(b"".join(array[task].tobytes() for array in arrays)).hexdigest()[:16]
        for task in range(len(batch.families))
    ]


def log_samples() -> None:
    """From now on this process notes the batches that it is given, one line each, in a file of its rank."""
    folder, given = pathlib.Path(os.environ[FOLDER]), Feed.batch

    def batch(self: Feed, step: int) -> TaskBatch:
        found = given(self, step)
        joined = distributed.is_initialized()
        rank, workers = (distributed.get_rank(), distributed.get_world_size()) if joined else (0, 1)
        record = {"step": step, "workers": workers, "ids": sample_ids(found)}
        files.append_json_line(folder / f"rank-{rank}.jsonl", record)
        return found

    Feed.batch = batch  # type: ignore[method-assign]


def logged_samples(folder: pathlib.Path) -> Mapping[int, set[tuple[str, ...]]]:
    """Step → the global batches that were seen at it, the shares joined in order of rank: one, if all is well.

    A worker that was killed in its first step of a sitting may have noted a share that the others did not.
    """
    shares: dict[tuple[int, int], dict[int, set[tuple[str, ...]]]] = collections.defaultdict(dict)
    for path in sorted(folder.glob("rank-*.jsonl"), key=lambda path: int(path.stem[5:])):
        for record in files.read_json_lines(path):
            place = shares[record["step"], record["workers"]]
            place.setdefault(int(path.stem[5:]), set()).add(tuple(record["ids"]))
    found: dict[int, set[tuple[str, ...]]] = collections.defaultdict(set)
    for (step, workers), by_rank in shares.items():
        joined: set[tuple[str, ...]] = {()}
        for rank in range(workers):
            joined = {before + own for before in joined for own in by_rank.get(rank, set())}
        found[step] |= joined
    return found
