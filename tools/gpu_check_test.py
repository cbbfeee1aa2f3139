"""Tests of the check of a GPU, here on the CPU: all of it runs, from anywhere, with torch, numpy and pyarrow alone."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from tools import gpu_check
from tools.failure import ExitCode

_ABSENT = ("mlflow", "pandas", "ray", "rich", "safetensors", "sklearn", "tyro")
_CODE = """
import runpy, sys
for name in {absent}:
    sys.modules[name] = None
runpy.run_path({program!r}, run_name="__main__")
"""


def _run(*argv: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    code = _CODE.format(absent=_ABSENT, program=str(pathlib.Path(gpu_check.__file__)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    site = [path for path in sys.path if path.endswith("site-packages") or "/site-packages/" in path]
    environment |= {"PYTHONPATH": os.pathsep.join(site), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_section_runs_on_a_cpu_without_packages_that_a_bare_machine_lacks(tmp_path: pathlib.Path) -> None:
    done = _run("--quick", "--device", "cpu", "--json", "new/found.json", "--seconds", "10", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    sections = json.loads((tmp_path / "new" / "found.json").read_text())["sections"]
    assert list(sections) == ["network", "steps", "prior", "speed", "drawing", "feeding", "trial"]
    assert not any(section["error"] for section in sections.values())
    for name in ("network", "steps", "prior"):
        assert sections[name]["findings"] and all(found["passed"] for found in sections[name]["findings"])
    trained = [found for found in sections["speed"]["findings"] if "mfu" in found["facts"]]
    assert trained and all(found["value"] > 0 and 0 < found["facts"]["mfu"] < 1 for found in trained)
    curve = [found["value"] for found in sections["trial"]["findings"]]
    assert len(curve) >= 2 and all(0 < value < 10 for value in curve)
    for section in sections.values():
        assert all(found["name"] in done.stdout for found in section["findings"])


def test_a_failed_check_a_broken_section_and_an_empty_check_are_failures() -> None:
    good = {"findings": [{"passed": True}, {"passed": None}], "error": None}
    assert gpu_check._status({"sections": {"network": good, "speed": {"findings": [], "error": None}}}) == 0
    assert gpu_check._status({"sections": {"steps": {"findings": [{"passed": False}], "error": None}}}) == 1
    assert gpu_check._status({"sections": {"network": good, "speed": {"findings": [], "error": "ValueError"}}}) == 1
    assert gpu_check._status({"sections": {"prior": {"findings": [], "error": None}}}) == 1


def test_a_section_that_breaks_is_reported_and_keeps_what_it_found() -> None:
    def broken(*unused: object) -> None:
        raise ValueError("no such kernel")

    section = gpu_check._Section(title="broken", share=1.0, module=lambda: json, run=broken)
    found = gpu_check._run_section(section, torch.device("cpu"), seconds=5.0, is_quick=True)
    assert found["error"] == "ValueError: no such kernel" and found["findings"] == []


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        *((["--seconds", value], ExitCode.BAD_FLAG, f"--seconds {value} is no time") for value in ("-5", "0", "nan")),
        (["--seconds", "inf"], ExitCode.BAD_FLAG, "--seconds inf is no time"),
        (["--json", "."], ExitCode.NOT_WRITABLE, "is a folder"),
        (["--json", "/proc/absent/found.json"], ExitCode.NOT_WRITABLE, "--json /proc/absent is not writable"),
    ],
)
def test_flags_that_cannot_be_used_are_refused_before_anything_is_measured(
    flags: list[str], code: ExitCode, words: str, tmp_path: pathlib.Path
) -> None:
    done = _run("--quick", "--device", "cpu", *flags, folder=tmp_path)
    assert done.returncode == code and done.stdout == ""
    assert words in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_what_it_can_do(tmp_path: pathlib.Path) -> None:
    done = _run(folder=tmp_path)
    assert done.returncode == ExitCode.TOO_FEW_RESOURCES and "--device cpu --quick" in done.stderr
