"""The main job: from nothing to two audited, scored models and a report in MLflow.

bazel run //train:pretrain                                     # preset tiny, this machine
bazel run //train:pretrain -- base --cluster.address auto --root /shared/runs
"""

import signal
import sys
from types import FrameType

from tools import config as configs
from tools import files
from tools.failure import run_program
from train.presets import PRESETS, PretrainConfig
from train.run import RunFolder, open_run


def main() -> None:
    """Entry point."""
    run_program(_main)


def _main(argv: list[str]) -> int:
    preset, config = configs.parse_preset(PRESETS, argv, program="bazel run //train:pretrain --", default="tiny")
    signal.signal(signal.SIGTERM, _interrupt)
    run = open_run(preset, config)
    with files.FolderLock(run.path):
        run.write_config()
        summary = run.summary()
        if summary is not None:
            steps = {kind: model["step"] for kind, model in summary["models"].items()}
            print(f"run {run.name} is complete at step {max(steps.values())}: nothing to do")
        else:
            # Imported here because it brings ray, mlflow and scikit-learn: --help and a finished run need none of them.
            from reports.page import render
            from train.pipeline import run_pipeline

            summary = run_pipeline(run, render)
    _point_out(run, config, verified=summary["verified"])
    return 0


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _point_out(run: RunFolder, config: PretrainConfig, *, verified: bool) -> None:
    """Says where everything is."""
    rows = [
        ("verdict", "verified" if verified else "not-yet-verified: see the audits on the page"),
        ("report", run.path / "report.html"),
        ("summary", run.summary_path),
        ("checkpoints", run.path / "<kind>" / "checkpoints"),
        ("tracking", config.tracking_uri or f"{run.root / 'mlflow.db'}; to open it:"),
    ]
    for name, value in rows:
        print(f"{name:>12}  {value}")
    if config.tracking_uri is None:
        print(f"{'':>12}  bazel run //reports:ui -- --root {run.root}")
    sys.stdout.flush()
