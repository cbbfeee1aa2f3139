"""Draws a run's report again and puts it into the tracking store.

    bazel run //reports:render -- RUN [--root DIR] [--tracking-uri URI]

RUN is a run folder, or the name of one under --root (default: runs/ in the workspace). Half-done runs are drawn as far
as they went. The page is RUN/report.html, its figures lie in RUN/figures/.
"""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from reports.page import FIGURES, render
from reports.run_folder import find_run
from tools import config, paths
from tools.failure import run_program
from tools.tracking import Tracker


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenderConfig:
    """What to draw, and where to log it."""

    run: Annotated[str, tyro.conf.Positional]
    """A run folder, or the name of one under --root."""
    root: pathlib.Path | None = None
    """The folder of run folders (default: runs/ in the workspace)."""
    tracking_uri: str | None = None
    """An MLflow server or database (default: mlflow.db beside the run folder)."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> int | None:
    flags = config.parse_flags(RenderConfig, argv, program="//reports:render")
    root = paths.user_path(flags.root) if flags.root else paths.default_root()
    folder = find_run(flags.run, root=root)
    tracker = Tracker.open(uri=flags.tracking_uri, root=folder.parent, experiment="veritab", run_name=folder.name)
    page = render(folder)
    tracker.log_file(page)
    tracker.log_artifacts(folder / FIGURES, folder=FIGURES)
    tracker.close(None)
    print(f"report: {page}")
    return 0
