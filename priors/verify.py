"""Checks every file of a shard set against its hash.

Command: `bazel run //priors:verify -- DIR`
"""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from priors.shards import ShardSet
from tools import config, paths
from tools.failure import run_program


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """What to check."""

    folder: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the shard set."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    folder = paths.user_path(config.parse_flags(VerifyConfig, argv, program="//priors:verify").folder)
    shard_set = ShardSet.open(folder)
    parts, size = len(shard_set.manifest["parts"]), shard_set.num_bytes / 1e6
    found = f"{shard_set.num_tasks} {shard_set.kind} tasks in {parts} files, {size:.1f} MB"
    print(f"{found}, digest {shard_set.digest[:16]}: all whole")
