"""Measures what a prediction costs over context rows and over query rows, in time and operations (lab 1.6).

    bazel run //eval:measure_growth -- CHECKPOINT [--out FOLDER]

CHECKPOINT is a step folder, or a run folder (the best checkpoint of each kind). Writes lab.json and a log-log picture
for each kind, of the fast path and of the cached one (`remember` a context once, then `predict` from it).
"""

import dataclasses
import pathlib
from typing import Annotated, Any

import rich.console
import rich.table
import tyro

from eval.checkpoints import find_checkpoints
from eval.lab_folder import lab_folder, source_record, write_lab
from eval.prediction_cost import GrowthConfig, fast_way, measured, predict_way, remember_way, slope
from model.network import Network
from reports.lab_figures import cost_picture
from tools import paths, progress
from tools.config import parse_flags
from tools.failure import run_program

_PROGRAM = "bazel run //eval:measure_growth --"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureGrowthFlags:
    """Measures the cost of a prediction: quadratic in the context in the end, linear in the queries.

    Times are medians on one thread, and depend on the machine and on what else runs there; operations do not. Slopes
    are exponents over the last three sizes: a quadratic term shows late where the rest of the network is wide.
    """

    checkpoint: tyro.conf.Positional[pathlib.Path]
    """A step folder, or a run folder: its best checkpoint of each kind."""
    growth: Annotated[GrowthConfig, tyro.conf.arg(name="")] = GrowthConfig(budget_seconds=60.0)
    """Which sizes are measured; budget_seconds is for each way of each kind."""
    out: pathlib.Path | None = None
    """Folder for the result; by default runs/labs/measure_growth in the workspace."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(MeasureGrowthFlags, argv, program=_PROGRAM)
    found = find_checkpoints(paths.user_path(flags.checkpoint))
    folder, console = lab_folder(flags.out, name="measure_growth"), rich.console.Console()
    record: dict[str, Any] = {"lab": "1.6 cost against N and M", "kinds": {}}
    pictures = {}
    with progress.meter("measure", total=3 * len(found), unit="ways") as report:
        for index, checkpoint in enumerate(found):
            kind = checkpoint.config.kind.value
            ways = _ways(checkpoint.network(), flags.growth, report=report, done=3 * index)
            record["kinds"][kind] = {"checkpoint": source_record(checkpoint), "ways": ways}
            picture = cost_picture(ways, name=f"{kind}-growth")
            pictures[picture.name] = picture.standalone()
    for kind, part in record["kinds"].items():
        console.print(_table(kind, part["ways"]))
    for path in write_lab(folder, record=record, pictures=pictures):
        print(path)
    return 0


def _ways(network: Network, config: GrowthConfig, *, report: progress.Meter, done: int) -> dict[str, dict[str, Any]]:
    """Every way, measured, with its slopes."""
    out = {}
    for way in (fast_way(network), remember_way(network), predict_way(network)):
        found = measured(network, way=way, config=config, with_flops=True)
        for side in ("context", "query"):
            for unit in ("seconds", "flops"):
                values = found[f"{side}_{unit}"]
                found[f"{side}_{unit}_slope"] = slope(found[f"{side}_rows"], values)
        out[way.name] = found
        report(done + len(out), way.name)
    return out


def _table(kind: str, ways: dict[str, dict[str, Any]]) -> rich.table.Table:
    table = rich.table.Table(title=f"{kind}: exponents over the last three sizes")
    for heading in ("way", "seconds over N", "FLOP over N", "seconds over M", "FLOP over M"):
        table.add_column(heading, justify="right")
    for name, found in ways.items():
        keys = [f"{side}_{unit}_slope" for side in ("context", "query") for unit in ("seconds", "flops")]
        table.add_row(name, *("" if found[key] is None else f"{found[key]:.2f}" for key in keys))
    return table


def main() -> None:
    """Runs the program."""
    run_program(_main)
