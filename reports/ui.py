"""Opens the MLflow pages of the local store, on this machine only.

    bazel run //reports:ui [-- --root DIR] [--port 5000]

Ctrl-C ends it.
"""

import dataclasses
import pathlib
import sys

from tools import config, paths, tracking_server
from tools.failure import interrupt_on_sigterm, run_program


@dataclasses.dataclass(frozen=True, kw_only=True)
class UiConfig:
    """Which store to show, and where."""

    root: pathlib.Path | None = None
    """The folder that holds mlflow.db (default: runs/ in the workspace)."""
    port: int = 5000
    """A free port of this machine; the pages are at http://127.0.0.1:PORT and nowhere else."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> int | None:
    flags = config.parse_flags(UiConfig, argv, program="//reports:ui")
    root = paths.user_path(flags.root) if flags.root else paths.default_root()
    tracking_server.check(root=root, port=flags.port)
    interrupt_on_sigterm()
    print("starting MLflow ...", file=sys.stderr, flush=True)
    try:
        with tracking_server.serving(root=root, port=flags.port) as server:
            print(f"MLflow on {root / 'mlflow.db'}: http://127.0.0.1:{flags.port} (Ctrl-C ends it)", flush=True)
            return server.wait()
    except KeyboardInterrupt:
        print("MLflow has ended")
        return 0
