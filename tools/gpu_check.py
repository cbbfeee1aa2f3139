"""What a GPU does with this repository, in six minutes: whether it computes right, how fast, and what it learns.

    python tools/gpu_check.py [--json FILE] [--seconds 340] [--sections network speed …] [--quick] [--device cuda]
    bazel run //tools:gpu_check -- --json FILE

It needs torch, numpy and pyarrow, and nothing else: no Bazel, no Ray, no MLflow. Each section has a share of the time
and stops early; one that fails is reported, and the others still run. The exit code is 1 where a check of correctness
fails or a section breaks, 2 and 4 for flags that cannot be used, and 16 where there is no such device.
"""

import argparse
import collections
import dataclasses
import datetime
import importlib
import json
import math
import pathlib
import platform
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> None:
    """Runs the program."""
    _make_importable()
    from tools.failure import run_program

    run_program(_main)


def _main(argv: list[str]) -> int:
    options = _checked(_parsed(argv))
    import torch

    from tools import files
    from tools.failure import ExitCode, Failure

    if options.device == "cuda" and not torch.cuda.is_available():
        what = "--device cuda: this machine has no GPU that torch can use"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, f"{what}; give --device cpu --quick")
    device = torch.device(options.device)
    given = {name: value for name, value in vars(options).items() if name != "json"}
    report: dict[str, Any] = {"machine": _machine(device), "options": given, "sections": {}}
    print(" · ".join(f"{key} {value}" for key, value in report["machine"].items()), flush=True)
    start = time.monotonic()
    for name in options.sections:
        left = options.seconds - (time.monotonic() - start)
        section = _SECTIONS[name]
        found = _run_section(section, device, seconds=left * section.share, is_quick=options.quick)
        report["sections"][name] = found
        report["seconds"] = time.monotonic() - start
        if options.json:
            files.write_bytes(options.json, (json.dumps(report, indent=1) + "\n").encode())
    _print_table(report)
    return _status(report)


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=pathlib.Path, help="write what was found here, after every section")
    parser.add_argument("--seconds", type=float, help="of the whole check (340; 45 with --quick)")
    parser.add_argument("--sections", nargs="+", choices=list(_SECTIONS), default=list(_SECTIONS), help="which parts")
    parser.add_argument("--quick", action="store_true", help="small networks and tables: whether the check itself runs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="what is checked")
    return parser.parse_args(argv)


def _checked(options: argparse.Namespace) -> argparse.Namespace:
    """What was given, whole.

    Raises:
        Failure: BAD_FLAG for a time that is none; NOT_WRITABLE for a file that could not be written at the end.
    """
    from tools import paths
    from tools.failure import ExitCode, Failure

    if options.seconds is None:
        options.seconds = 45.0 if options.quick else 340.0
    if not 0 < options.seconds < math.inf:
        raise Failure(ExitCode.BAD_FLAG, f"--seconds {options.seconds:g} is no time: give a number above 0")
    if options.json is not None:
        options.json = paths.writable_file(options.json, flag="--json")
    return options


def _make_importable() -> None:
    """Puts the repository on the path, and something in the place of tyro where it is not installed."""
    if str(_ROOT) not in sys.path:
        sys.path.insert(0, str(_ROOT))
    try:
        importlib.import_module("tyro")
    except ImportError:
        _stand_in_for_tyro()


class _Plain:
    """Stands for a marker of tyro's: what is marked stays as it is."""

    def __getitem__(self, item: Any) -> Any:
        return item


def _stand_in_for_tyro() -> None:
    """Configs name tyro to say how their flags look; no flag is read from them here."""
    package, conf = types.ModuleType("tyro"), types.ModuleType("tyro.conf")
    conf.EnumChoicesFromValues = conf.Positional = _Plain()  # type: ignore[attr-defined]
    conf.arg = lambda **options: tuple(sorted(options.items()))  # type: ignore[attr-defined]
    package.conf = conf  # type: ignore[attr-defined]
    sys.modules.update({"tyro": package, "tyro.conf": conf})


def _correctness() -> types.ModuleType:
    from bench import device_correctness

    return device_correctness


def _speed() -> types.ModuleType:
    from bench import device_speed

    return device_speed


def _learning() -> types.ModuleType:
    from bench import device_trial

    return device_trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Section:
    """A part of the check.

    Args:
        title: above its findings.
        share: of the time that is left when it begins.
        module: brings what it runs.
        run: takes that module, the device, the budget and whether it is quick; yields findings.
        is_check: whether it must find something.
    """

    title: str
    share: float
    module: Callable[[], types.ModuleType]
    run: Callable[[Any, Any, Any, bool], Iterator[Any]]
    is_check: bool = False


def _training(speed: Any, device: Any, budget: Any, is_quick: bool) -> Iterator[Any]:  # style: as every section
    from bench.findings import Finding

    plan = _plan(speed, is_quick)
    measured, published = speed.gemm_rate(device, plan), speed.published_peak(device)
    yield Finding(name=f"bf16 product of {plan.gemm}² matrices", value=measured / 1e12, unit="TFLOP/s")
    if published:
        yield Finding(name="published dense bf16 peak", value=published / 1e12, unit="TFLOP/s")
    yield from speed.training_speed(device, budget, plan=plan, rate=published or measured)


def _plan(speed: Any, is_quick: bool) -> Any:
    return speed.QUICK if is_quick else speed.SpeedPlan()


_SECTIONS = {
    "network": _Section(
        title="Against the CPU in fp32: predictions, losses, gradients (relative errors)",
        share=0.18,
        module=_correctness,
        run=lambda module, device, budget, is_quick: module.check_network(device, budget),
        is_check=True,
    ),
    "steps": _Section(
        title="Against the CPU in fp32: weights after some steps (relative errors)",
        share=0.12,
        module=_correctness,
        run=lambda module, device, budget, is_quick: module.check_steps(device, budget),
        is_check=True,
    ),
    "prior": _Section(
        title="Tasks drawn on the device against tasks drawn on the CPU (distances of means)",
        share=0.10,
        module=_correctness,
        run=lambda module, device, budget, is_quick: module.check_prior(device, budget, count=64 if is_quick else 512),
        is_check=True,
    ),
    "speed": _Section(title="Training", share=0.45, module=_speed, run=_training),
    "drawing": _Section(
        title="Drawing tasks",
        share=0.12,
        module=_speed,
        run=lambda module, device, budget, is_quick: module.drawing_speed(device, budget, plan=_plan(module, is_quick)),
    ),
    "feeding": _Section(
        title="Training on batches from host memory",
        share=0.2,
        module=_speed,
        run=lambda module, device, budget, is_quick: module.feeding_speed(device, budget, plan=_plan(module, is_quick)),
    ),
    "trial": _Section(
        title="A timed pretraining",
        share=0.9,
        module=_learning,
        run=lambda module, device, budget, is_quick: module.run_trial(
            module.quick_trial() if is_quick else module.base_trial(), device, budget=budget
        ),
    ),
}


def _run_section(section: _Section, device: Any, *, seconds: float, is_quick: bool) -> dict[str, Any]:
    """Findings of a section, as JSON values, and what broke it."""
    from bench.findings import TimeBudget

    print(f"\n{section.title} ({max(seconds, 0):.0f} s)", flush=True)
    found, error = [], None
    start = time.monotonic()
    try:
        module = section.module()
        budget = TimeBudget(seconds)  # what is imported does not count
        for finding in section.run(module, device, budget, is_quick):
            found.append(finding.record())
            print(f"  {_line(found[-1])}", flush=True)
    except Exception as broken:  # whatever breaks one section, the others still run
        error = f"{type(broken).__name__}: {' '.join(str(broken).split())[:300]}"
        print(f"  broke: {error}", flush=True)
        traceback.print_exc()
    took = time.monotonic() - start
    return {"findings": found, "error": error, "seconds": took, "cut_short": took > seconds}


def _line(finding: dict[str, Any]) -> str:
    facts = finding["facts"]
    text = f"{finding['name']}: {finding['value']:,.4g} {finding['unit']}".rstrip()
    if finding["bound"] is not None:
        text += f" (at most {finding['bound']:g}: {'ok' if finding['passed'] else 'FAILED'})"
    if "mfu" in facts:
        text += f", MFU {facts['mfu']:.1%}, {facts['flops_per_task'] / 1e9:.2f} GFLOP a task"
    if facts.get("peak_bytes"):
        text += f", {facts['peak_bytes'] / 1e9:.1f} GB"
    return text + (", out of memory" if facts.get("out_of_memory") else "")


def _print_table(report: dict[str, Any]) -> None:
    """What was found, a line for each section, and the fastest training of each network."""
    print(f"\n{'section':<10}{'findings':>9}{'failed':>8}{'seconds':>9}")
    for name, section in report["sections"].items():
        failed = sum(finding["passed"] is False for finding in section["findings"])
        remark = "  broke" if section["error"] else "  cut short" if section["cut_short"] else ""
        print(f"{name:<10}{len(section['findings']):>9}{failed:>8}{section['seconds']:>9.1f}{remark}")
    best: dict[tuple[Any, ...], dict[str, Any]] = collections.defaultdict(lambda: {"value": 0.0})
    for finding in report["sections"].get("speed", {}).get("findings", []):
        facts = finding["facts"]
        if "mfu" in facts:
            key = tuple(facts[part] for part in ("preset", "kind", "rows", "features"))
            best[key] = max(best[key], finding, key=lambda one: one["value"])
    for finding in best.values():
        print(f"fastest: {_line(finding)}")


def _status(report: dict[str, Any]) -> int:
    """1 where a check failed or a section broke; what is only slow is no failure."""
    sections = report["sections"]
    failed = [finding for section in sections.values() for finding in section["findings"] if finding["passed"] is False]
    broken = [name for name, section in sections.items() if section["error"]]
    empty = [name for name, section in sections.items() if _SECTIONS[name].is_check and not section["findings"]]
    return 1 if failed or broken or empty else 0


def _machine(device: Any) -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "none"
    return {
        "gpu": gpu,
        "cuda": torch.version.cuda or "none",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
    }


# style: it is run as a script, where there is no Bazel
if __name__ == "__main__":
    main()
