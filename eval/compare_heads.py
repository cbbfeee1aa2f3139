"""Compares classification heads on the same frozen hidden states of a pretrained network (seeds 6.E, 6.12, 6.7).

    bazel run //eval:compare_heads -- CHECKPOINT [--num-seeds 3] [--out FOLDER]

CHECKPOINT is a step folder, or a run folder (its classification model). Fresh heads learn on the same tasks for the
same steps; a temperature is fitted on other tasks, and scores come from a third set.
"""

import dataclasses
import pathlib
from typing import Annotated

import rich.console
import rich.table
import tyro

from eval.checkpoints import find_checkpoints
from eval.frozen_heads import HEADS, METRICS, FrozenConfig, HeadScore, compare_heads, summarise
from eval.lab_folder import lab_folder, source_record, write_lab
from model.label_injection import LabelKind
from tools import paths, progress
from tools.config import parse_flags, to_json
from tools.failure import ExitCode, Failure, run_program

_PROGRAM = "//eval:compare_heads"
_BOUNDARY = (
    "The backbone was trained under one of these heads, which may favour it. Intervals are over tasks; seeds are "
    "averaged."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """Trains classification heads on the same frozen hidden states and scores them on other tasks."""

    checkpoint: tyro.conf.Positional[pathlib.Path]
    """A step folder, or a run folder: its best classification checkpoint."""
    out: pathlib.Path | None = None
    """Where lab.json goes; by default runs/labs/compare_heads in the workspace."""
    protocol: Annotated[FrozenConfig, tyro.conf.arg(name="")] = FrozenConfig()
    """What every head gets."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(CompareFlags, argv, program=_PROGRAM)
    folder = lab_folder(flags.out, name="compare_heads")
    found = [one for one in find_checkpoints(paths.user_path(flags.checkpoint)) if one.config.kind is _KIND]
    if not found:
        mend = "heads of classes are compared: give a classification checkpoint"
        raise Failure(ExitCode.CONFIG_MISMATCH, f"{flags.checkpoint} holds no classification model: {mend}")
    network, total = found[0].network(), len(HEADS) * flags.protocol.num_seeds
    with progress.meter("heads", total=total, unit="heads") as meter:
        scores = compare_heads(network, flags.protocol, report=meter)
    console = rich.console.Console()
    console = console if console.is_terminal else rich.console.Console(width=160)
    console.print(_table(scores))
    console.print(_BOUNDARY)
    record = {
        "source": source_record(found[0]),
        "protocol": to_json(flags.protocol),
        "boundary": _BOUNDARY,
        "heads": {
            name: {
                "parameters": next(score.parameters for score in scores if score.head == name),
                "temperatures": [score.temperature for score in scores if score.head == name],
                **{metric: dataclasses.asdict(summarise(scores, metric)[name]) for metric in METRICS},
            }
            for name in HEADS
        },
    }
    console.print(f"written: {write_lab(folder, record=record, pictures={})[0]}")
    return int(ExitCode.OK)


_KIND = LabelKind.CLASSIFICATION


def _table(scores: list[HeadScore]) -> rich.table.Table:
    table = rich.table.Table(
        title="mean over tasks, and in brackets the difference to the first head with its interval"
    )
    table.add_column("head")
    table.add_column("parameters", justify="right")
    for metric in METRICS:
        table.add_column(metric.replace("_", " "), justify="right")
    for name in HEADS:
        cells = []
        for metric in METRICS:
            found = summarise(scores, metric)[name]
            gap = (
                ""
                if name == next(iter(HEADS))
                else f" ({found.against[0]:+.3f}: {found.against[1]:+.3f} … {found.against[2]:+.3f})"
            )
            cells.append(f"{found.mean:.3f}{gap}")
        table.add_row(name, str(next(score.parameters for score in scores if score.head == name)), *cells)
    return table


def main() -> None:
    """Runs the program."""
    run_program(_main)
