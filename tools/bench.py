"""Measures what users wait for, beside another package in the same run: one table, and the same as JSON.

    bazel run //tools:bench -- priors [--json FILE] [--quick] [--sections rates processes] [--device cuda]
    bazel run //tools:bench -- train [--json FILE] [--quick] [--presets tiny] [--shapes 150x20]
    bazel run //tools:bench -- ray [--json FILE] [--quick]
    bazel run //tools:bench -- time-to-target --tables DIR [--steps 200 400 800] [--json FILE] [--picture FILE]

`priors`: how fast tasks are drawn, on one core, beside the prior of tabicl; what the time goes to; how processes scale;
how fast shards are verified; and how long training waits for tasks. `train`: how many tasks a second the training step
of a preset takes, beside a two-way transformer and tabicl's network. `ray`: what Ray and a second worker cost.
`time-to-target`: seconds from the start of `//train:pretrain` until `tiny` (or `small`: `time-to-target-small`) ranks
real tables better than baselines do. Bazel installs tabicl on its first use (or `--peer-python PYTHON` names an
interpreter that has it).
"""

from collections.abc import Callable, Sequence
from typing import Any

import rich.console

from bench import prior_rates, ray_cost, step_rates
from bench.machine_facts import machine_facts
from bench.rows import BenchRow, bench_table
from bench.target_report import publish
from bench.time_to_target import TimeToTargetConfig, measure_time_to_target, time_to_target, time_to_target_small
from tools import config as configs
from tools import files, paths, ray_session
from tools.failure import run_program

_BENCHES: dict[str, Callable[[], Any]] = {
    "priors": prior_rates.priors,
    "train": step_rates.train,
    "ray": ray_cost.ray,
    "time-to-target": time_to_target,
    "time-to-target-small": time_to_target_small,
}
_SUBJECTS: dict[str, Any] = {"priors": prior_rates, "train": step_rates, "ray": ray_cost}


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    name, config = configs.parse_preset(_BENCHES, argv, program="bazel run //tools:bench --", noun="subject")
    ray_session.export_settings()
    if config.json is not None:
        paths.writable_file(config.json, flag="--json")
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=130)
    if isinstance(config, TimeToTargetConfig):
        publish(measure_time_to_target(config), config, console=console)
        return
    subject = _SUBJECTS[name]
    rows = subject.measure(config, save=lambda rows: _save(config, rows, peer=subject.PEER))
    console.print(bench_table(rows, title=subject.TITLE, peer=subject.PEER))


def _save(config: Any, rows: Sequence[BenchRow], *, peer: str) -> None:
    """Writes what is known so far: a bench that is stopped leaves the sections that it finished."""
    if config.json is not None:
        record = {"machine": machine_facts(), "config": configs.to_json(config), "peer": peer}
        files.write_json(paths.user_path(config.json), {**record, "rows": [row.record() for row in rows]})
