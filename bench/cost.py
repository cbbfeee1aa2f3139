"""What the presets small, base and large cost: tasks, FLOPs, GPU-hours, bytes, and what many GPUs lose.

    bazel run //bench:cost [-- --mfu 0.3] [--chip-tflops 312] [--times FILE] [--write] [--json FILE]

Tasks, FLOPs and bytes are computed from the presets. `--times` names what `tools/gpu_check.py --json` wrote on a GPU:
its step times feed the simulation of stragglers. Without it, the rate is assumed (`--mfu`) and the jitter is measured
on this machine's CPU, as the table's title then says. `--write` renews the tables of docs/cost.md.
"""

import dataclasses
import math
import os
import pathlib

import rich.console

from bench.cost_model import ModelCost, model_cost
from bench.cost_tables import Assumptions, CostTable, computed, renewed, straggler_table
from bench.stragglers import Link, StepTimes, measure_times, read_times
from priors.task import TaskKind
from tools import config as configs
from tools import files, paths, progress
from tools.failure import ExitCode, Failure, run_program

_PRESETS = ("small", "base", "large")
_DOCUMENT = pathlib.Path("docs/cost.md")
_ABOVE_ZERO = ("chip_tflops", "link_gigabytes", "mtbf_hours", "checkpoint_seconds")
_FROM_ZERO = ("link_microseconds", "step_milliseconds", "restart_seconds")
_MOST_GPUS = 16_384  # a number for each of them and each simulated step: a quarter of a GB at once
_MOST_TASKS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostConfig:
    """What is assumed, and where the tables go."""

    mfu: float = 0.4
    """Share of the chip's rate that training reaches."""
    chip_tflops: float = 989.0
    """Dense bf16 rate of a GPU in TFLOP/s: that published for the H100 SXM and the H200."""
    gpus: tuple[int, ...] = (8, 64, 512)
    """Numbers of GPUs in the tables on many of them."""
    tasks_per_gpu: int = 8
    """Tasks of a GPU in a batch that grows with their number."""
    link_gigabytes: float = 25.0
    """GB/s of each GPU to the others, in one direction (a network of 200 Gb/s)."""
    link_microseconds: float = 20.0
    """Latency of one exchange between two GPUs."""
    step_milliseconds: float = 5.0
    """Of a step without tasks, where no step times are given: launches and the optimizer."""
    mtbf_hours: float = 50_000.0
    """Hours of a GPU between two failures (419 in 54 days on 16,384 GPUs: Llama 3, 2024, section 3.3)."""
    checkpoint_seconds: float = 5.0
    """Seconds that training stands for a checkpoint."""
    restart_seconds: float = 120.0
    """Seconds from a failure until training goes on."""
    times: pathlib.Path | None = None
    """Step times: a file that tools/gpu_check.py --json wrote."""
    write: bool = False
    """Renew the tables of docs/cost.md."""
    json: pathlib.Path | None = None
    """Write the figures here."""

    def __post_init__(self) -> None:
        """Refuses numbers with which nothing can be reckoned.

        Raises:
            Failure: BAD_FLAG, naming flag and value.
        """
        if not 0 < self.mfu <= 1:
            raise Failure(ExitCode.BAD_FLAG, f"--mfu {self.mfu} is no share: give a number above 0, up to 1")
        for name in (*_ABOVE_ZERO, *_FROM_ZERO):
            value, mend = getattr(self, name), "a number above 0" if name in _ABOVE_ZERO else "0 or more"
            if not 0 <= value < math.inf or (value == 0 and name in _ABOVE_ZERO):
                flag = name.replace("_", "-")
                raise Failure(ExitCode.BAD_FLAG, f"--{flag} {value} is out of range: give {mend}")
        if not self.gpus:
            raise Failure(ExitCode.BAD_FLAG, "--gpus has no value: give one number of GPUs or more")
        for flag, value, most in (
            *(("gpus", number, _MOST_GPUS) for number in self.gpus),
            ("tasks-per-gpu", self.tasks_per_gpu, _MOST_TASKS),
        ):
            if not 1 <= value <= most:
                raise Failure(ExitCode.BAD_FLAG, f"--{flag} {value} is out of range: give 1 to {most}")

    def assumptions(self) -> Assumptions:
        """In SI units."""
        return Assumptions(
            mfu=self.mfu,
            chip_flops=self.chip_tflops * 1e12,
            gpus=self.gpus,
            tasks_per_gpu=self.tasks_per_gpu,
            link=Link(bytes_per_second=self.link_gigabytes * 1e9, latency_seconds=self.link_microseconds * 1e-6),
            mtbf_seconds=self.mtbf_hours * 3600,
            checkpoint_seconds=self.checkpoint_seconds,
            restart_seconds=self.restart_seconds,
        )


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    config = configs.parse_flags(CostConfig, argv, program="bazel run //bench:cost --")
    target = paths.writable_file(config.json, flag="--json") if config.json is not None else None
    document = _document() if config.write else None
    times = _times(config)
    progress.say("counting the networks' steps")
    costs = [model_cost(preset, kind) for preset in _PRESETS for kind in TaskKind]
    tables = list(computed(costs, config.assumptions()))
    classifiers = [cost for cost in costs if cost.kind is TaskKind.CLASSIFICATION]
    slow = straggler_table(classifiers, config.assumptions(), times=times)
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=150)
    for table in (*tables, slow):
        console.print(table.terminal())
    if document is not None:
        _write(document, tables, slow)
    if target is not None:
        files.write_json(target, _record(config, costs, times=times, stragglers=slow))


def _times(config: CostConfig) -> StepTimes:
    """Those that are given, or the assumed rate with the jitter of this machine."""
    if config.times is not None:
        return read_times(paths.user_path(config.times))
    progress.say("measuring the jitter of steps on this CPU")
    found = measure_times("")
    load = os.getloadavg()[0]
    label = (
        f"rate assumed ({config.mfu:.0%} of {config.chip_tflops:g} TFLOP/s, {config.step_milliseconds:g} ms a step "
        f"beside), jitter measured on a CPU ({os.cpu_count()} cores, load {load:.1f})"
    )
    return dataclasses.replace(
        found,
        label=label,
        flops_per_second=config.mfu * config.chip_tflops * 1e12,
        overhead_seconds=config.step_milliseconds * 1e-3,
    )


def _document() -> pathlib.Path:
    path = paths.workspace() / _DOCUMENT
    if not path.is_file():
        raise Failure(ExitCode.NOT_FOUND, f"--write: {path} is not there: run this in the repository")
    return path


def _write(path: pathlib.Path, tables: list[CostTable], stragglers: CostTable) -> None:
    text = renewed(path.read_text(), name="computed tables", tables=tables)
    files.write_bytes(path, renewed(text, name="simulated table", tables=[stragglers]).encode())


def _record(
    config: CostConfig, costs: list[ModelCost], *, times: StepTimes, stragglers: CostTable
) -> dict[str, object]:
    rows = [dict(zip(stragglers.headings, row, strict=True)) for row in stragglers.rows]
    jitter = {"label": times.label, "jitter": times.jitter}
    return {"config": configs.to_json(config), "costs": configs.to_json(costs), "times": jitter, "stragglers": rows}
