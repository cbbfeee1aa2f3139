"""Draws which context rows a network reads for its queries, and where they are (lab 6.D).

    bazel run //eval:draw_reads -- CHECKPOINT [--seed 0] [--out FOLDER]

CHECKPOINT is a step folder, or a run folder (the best checkpoint of each kind). Writes lab.json and three pictures for
each kind. They show rows read by a prediction mechanism, neither causal neighbours nor a conclusion about mechanism.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import tyro

from eval.checkpoints import find_checkpoints
from eval.lab_folder import lab_folder, source_record, write_lab
from eval.row_reading import reading
from eval.views import sample_episode
from priors.task import TaskKind
from reports.drawing import Picture
from reports.lab_figures import READ_BOUNDARY, blocks_picture, places_picture, weights_picture
from tools import paths
from tools.config import parse_flags
from tools.failure import ExitCode, Failure, run_program

_PROGRAM = "bazel run //eval:draw_reads --"
_MAX_PANELS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawReadsFlags:
    """Draws read weights: all queries against all context rows, in the plane around single queries, and inside.

    Writes lab.json and, for each kind, KIND-weights.svg (sorted by class), KIND-places.svg (context rows as large as
    their weight) and KIND-blocks.svg (attention of the first and the last ICL block). A head that reads no rows, as all
    regression heads, is shown by the last block's attention, and the picture says so.
    """

    checkpoint: tyro.conf.Positional[pathlib.Path]
    """A step folder, or a run folder: its best checkpoint of each kind."""
    num_context: int = 48
    """Context rows of the episode (three blobs in the plane, or a noisy sine)."""
    num_query: int = 24
    """Query rows."""
    seed: int = 0
    """Of the episode."""
    out: pathlib.Path | None = None
    """Folder for the result; by default runs/labs/draw_reads in the workspace."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(DrawReadsFlags, argv, program=_PROGRAM)
    for name, value in (("--num-context", flags.num_context), ("--num-query", flags.num_query)):
        if value < _MAX_PANELS:
            raise Failure(ExitCode.BAD_FLAG, f"{name} is {value}: give {_MAX_PANELS} or more")
    found = find_checkpoints(paths.user_path(flags.checkpoint))
    folder = lab_folder(flags.out, name="draw_reads")
    record: dict[str, Any] = {"lab": "6.D read weights", "boundary": READ_BOUNDARY, "kinds": {}}
    pictures: list[Picture] = []
    for checkpoint in found:
        kind = TaskKind(checkpoint.config.kind.value)
        sizes = {"num_context": flags.num_context, "num_query": flags.num_query}
        view = reading(checkpoint.network(), sample_episode(kind, seed=flags.seed, **sizes))
        record["kinds"][kind.value] = {"checkpoint": source_record(checkpoint), "reading": view}
        pictures += [
            weights_picture(view, name=f"{kind}-weights"),
            places_picture(view, name=f"{kind}-places", queries=_chosen_queries(view)),
            blocks_picture(view, name=f"{kind}-blocks"),
        ]
    for picture in pictures:
        print(f"{picture.name}: {picture.alt}")
    drawn = {picture.name: picture.standalone() for picture in pictures}
    for path in write_lab(folder, record=record, pictures=drawn):
        print(path)
    return 0


def _chosen_queries(view: dict[str, Any]) -> list[int]:
    """The first query of each class; in regression the queries at a sixth, a half and five sixths of the feature."""
    if view["kind"] == "classification":
        return np.unique(view["y_query"], return_index=True)[1][:_MAX_PANELS].tolist()
    order = view["order_query"]
    return [order[(2 * panel + 1) * len(order) // (2 * _MAX_PANELS)] for panel in range(_MAX_PANELS)]


def main() -> None:
    """Runs the program."""
    run_program(_main)
