"""Copies a context row again and again, and shows how much of it is read and what becomes of predictions (lab 6.B).

    bazel run //eval:duplicate -- CHECKPOINT [--num-episodes 8] [--out FOLDER]

CHECKPOINT is a step folder, or a run folder (the best checkpoint of each kind). Writes lab.json and a picture for each
kind. Reported as a phenomenon, not as bias or cause: a context with copies is also other data.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import rich.console
import rich.table
import tyro

from eval.checkpoints import find_checkpoints
from eval.duplication import COPIES, duplication
from eval.lab_folder import lab_folder, source_record, write_lab
from eval.views import sample_episode
from model.checkpoint import Checkpoint
from priors.task import TaskKind
from reports.lab_figures import duplication_picture
from tools import paths, progress
from tools.config import parse_flags
from tools.failure import ExitCode, Failure, run_program

_PROGRAM = "bazel run //eval:duplicate --"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateFlags:
    """Copies one context row 0, 1, 2, 4, 8 and 16 times: its read weight, and the prediction before and after.

    Writes lab.json (every query of every episode) and KIND-duplication.svg. The dashed line of the picture is what
    would be read if only the last reader met the copies, with hidden states as without them: the distance to it is what
    the earlier stages do. Reported as a phenomenon, not as bias or cause.
    """

    checkpoint: tyro.conf.Positional[pathlib.Path]
    """A step folder, or a run folder: its best checkpoint of each kind."""
    num_episodes: int = 8
    """Episodes of each kind (three blobs, or a noisy sine; 32 context rows, 16 queries)."""
    seed: int = 0
    """Of the episodes, and of the row that is copied in each."""
    out: pathlib.Path | None = None
    """Folder for the result; by default runs/labs/duplicate in the workspace."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(DuplicateFlags, argv, program=_PROGRAM)
    if flags.num_episodes < 1:
        raise Failure(ExitCode.BAD_FLAG, f"--num-episodes is {flags.num_episodes}: give 1 or more")
    found = find_checkpoints(paths.user_path(flags.checkpoint))
    folder, console = lab_folder(flags.out, name="duplicate"), rich.console.Console()
    record: dict[str, Any] = {"lab": "6.B context duplication", "seed": flags.seed, "kinds": {}}
    pictures = {}
    with progress.meter("duplicate", total=flags.num_episodes * len(found), unit="episodes") as report:
        for index, checkpoint in enumerate(found):
            kind = checkpoint.config.kind.value
            episodes = _episodes(checkpoint, flags, report=report, done=index * flags.num_episodes)
            record["kinds"][kind] = {"checkpoint": source_record(checkpoint), "episodes": episodes}
            picture = duplication_picture(episodes, name=f"{kind}-duplication", kind=kind)
            pictures[picture.name] = picture.standalone()
    for kind, part in record["kinds"].items():
        console.print(_table(kind, part["episodes"]))
    for path in write_lab(folder, record=record, pictures=pictures):
        print(path)
    return 0


def _episodes(
    checkpoint: Checkpoint, flags: DuplicateFlags, *, report: progress.Meter, done: int
) -> list[dict[str, Any]]:
    """One drawn row of each episode, copied."""
    network, out = checkpoint.network(), []
    for index in range(flags.num_episodes):
        seed = flags.seed * flags.num_episodes + index
        episode = sample_episode(TaskKind(checkpoint.config.kind.value), seed=seed)
        row = int(np.random.default_rng(np.random.SeedSequence([seed, 66])).integers(episode.num_context))
        out.append(duplication(network, episode, row=row).record())
        report(done + index + 1)
    return out


def _table(kind: str, episodes: list[dict[str, Any]]) -> rich.table.Table:
    """Means over queries and episodes by number of copies."""
    towards = "gain in its class's probability" if kind == "classification" else "way to its target (deviations)"
    table = rich.table.Table(title=f"{kind}: means over queries and {len(episodes)} episodes")
    for heading in ("copies", "weight on the row", "same, frozen states", towards, "prediction moved"):
        table.add_column(heading, justify="right")
    columns = [np.mean([e[key] for e in episodes], axis=(0, 2)) for key in ("mass", "frozen_mass", "towards", "moved")]
    for index, count in enumerate(COPIES):
        table.add_row(str(count), *(f"{column[index]:.4f}" for column in columns))
    return table


def main() -> None:
    """Runs the program."""
    run_program(_main)
