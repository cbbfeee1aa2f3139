"""The main job: from nothing to two audited, scored models and a report in MLflow.

bazel run //train:pretrain                                     # preset tiny, this machine
bazel run //train:pretrain -- base --cluster.address auto --root /shared/runs
"""

import sys
from typing import Any

from tools import config as configs
from tools import ray_session
from tools.failure import interrupt_on_sigterm, run_program
from train.presets import PRESETS, checked
from train.run import RunFolder, claimed, name_run

_EPILOGUE = """What most people set:
  --name NAME               of the run; by default the preset and the config's digest
  --root DIR                for runs and shards; by default runs/ in the workspace
  --seed N                  of everything that is drawn
  --tables DIR              further real tables to score on
  --tracking-uri URI        an MLflow server or database; by default mlflow.db under the root
  --cluster.address auto    the Ray cluster that this machine belongs to; by default this machine alone
  --cluster.num-workers N   by default one for each GPU, or for each core
  --resume                  refuse to begin a run: go on with the one of that --name
  --accept-changes          go on although config or data are others than before; what differs is recorded
The same command goes on where a run was stopped."""


def main() -> None:
    """Entry point."""
    run_program(_main)


def _main(argv: list[str]) -> int:
    program = "bazel run //train:pretrain --"
    preset, config = configs.parse_preset(PRESETS, argv, program=program, default="tiny", epilogue=_EPILOGUE)
    interrupt_on_sigterm()
    run = name_run(preset, checked(config))
    with claimed(run):
        summary = run.summary()
        if summary is None or summary["undelivered"]:
            summary = _work(run, summary)
        else:
            steps = max(model["num_steps"] for model in summary["models"].values())
            print(f"run {run.name} is complete at step {steps}: nothing to do")
    _point_out(run, verified=summary["verified"])
    return 0


def _work(run: RunFolder, summary: dict[str, Any] | None) -> dict[str, Any]:
    """Imports here what brings ray, mlflow and scikit-learn: --help and a finished run need none of them."""
    ray_session.export_settings()
    from reports.page import render
    from train.pipeline import deliver, run_pipeline

    return run_pipeline(run, render) if summary is None else deliver(run, summary)


def _point_out(run: RunFolder, *, verified: bool) -> None:
    """Says where everything is."""
    rows = [
        ("verdict", "verified" if verified else "not-yet-verified: see the audits on the page"),
        ("report", run.path / "report.html"),
        ("summary", run.summary_path),
        ("checkpoints", run.path / "<kind>" / "checkpoints"),
        ("tracking", run.config.tracking_uri or f"{run.root / 'mlflow.db'}; to open it:"),
    ]
    for name, value in rows:
        print(f"{name:>12}  {value}")
    if run.config.tracking_uri is None:
        print(f"{'':>12}  bazel run //reports:ui -- --root {run.root}")
    sys.stdout.flush()
