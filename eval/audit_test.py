"""The program `//eval:audit`, run as users run it: exit status, what it prints, what it writes."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from eval.mutants import MUTANTS
from eval.small_network import rerandomised_network, small_network
from model.checkpoint import load_checkpoint, save_checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode

_PROMISED = ("causal_mask", "query_reads_query", "label_at_query", "normalise_with_query")

# Runs the program once for every command line of a JSON list, in one process: starting one takes seconds.
_DRIVER = """
import contextlib, io, json, sys
from eval.audit import main
results = []
for argv in json.loads(sys.argv[1]):
    sys.argv[1:] = argv
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            status = None
        except SystemExit as stop:
            status = stop.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Result:
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run folder with one step of each kind."""
    folder = tmp_path_factory.mktemp("run")
    for kind in TaskKind:
        save_checkpoint(folder / kind.value / "checkpoints", step=3, network=rerandomised_network(kind))
    return folder


def _audit(*commands: list[object]) -> list[_Result]:
    lines = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run([sys.executable, "-c", _DRIVER, lines], capture_output=True, text=True, check=True)
    return [_Result(status=status, out=out, err=err) for status, out, err in json.loads(done.stdout)]


def test_a_legal_run_exits_0_and_writes_its_verdicts(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """5.G: one audit.json for one checkpoint, one per kind for a run."""
    step = run / "regression" / "checkpoints" / "step-00000003"
    both, one = _audit([run, "--json", tmp_path / "both.json"], [step, "--json", tmp_path / "one.json"])
    assert (both.status, one.status) == (0, 0), both.err + one.err
    assert "every audit passed" in both.out and "leakage" in both.out
    verdicts = json.loads((tmp_path / "both.json").read_bytes())
    assert set(verdicts) == {"classification", "regression"} and all(v["passed"] for v in verdicts.values())
    verdict = json.loads((tmp_path / "one.json").read_bytes())
    assert verdict == verdicts["regression"]
    assert verdict["subject"]["weights_sha256"] == load_checkpoint(step).weights_sha256


def test_each_promised_mutant_exits_1_and_names_audit_and_stage(run: pathlib.Path) -> None:
    """5.E, 5.F: on the checkpoints of a run."""
    for name, result in zip(_PROMISED, _audit(*([run, "--mutant", name] for name in _PROMISED)), strict=True):
        assert result.status == ExitCode.AUDIT_FAILED, result.err
        rows = [line for line in result.out.splitlines() if "FAIL" in line]
        assert any(MUTANTS[name].audit in row and MUTANTS[name].stage in row for row in rows), result.out
        assert f"broken by {name}" in result.out


def test_the_mutants_are_listed_by_their_whole_names() -> None:
    """5.E: names can be copied from the list."""
    (listed,) = _audit(["--list-mutants"])
    assert listed.status == 0
    assert all(name in listed.out for name in MUTANTS)


def test_an_untrained_checkpoint_is_judged_by_its_wiring_and_never_verified(tmp_path: pathlib.Path) -> None:
    """5.G: its zero weights are re-drawn, so the verdict names other weights."""
    step = save_checkpoint(tmp_path, step=0, network=small_network(TaskKind.CLASSIFICATION))
    clean, broken = _audit([step, "--json", tmp_path / "a.json"], [step, "--mutant", "causal_mask"])
    assert (clean.status, broken.status) == (0, 1)
    assert "untrained" in clean.out
    verdict = json.loads((tmp_path / "a.json").read_bytes())
    assert verdict["subject"]["weights_sha256"] != load_checkpoint(step).weights_sha256


def test_bad_input_is_one_line_with_its_own_status(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Each names thing, value and mend."""
    damaged = save_checkpoint(tmp_path, step=1, network=small_network(TaskKind.REGRESSION))
    (damaged / "weights.safetensors").write_bytes(b"")
    step = run / "regression" / "checkpoints" / "step-00000003"
    cases = {
        ExitCode.NOT_FOUND: ([tmp_path / "absent"], "absent"),
        ExitCode.CHECKPOINT_CORRUPT: ([damaged], "weights.safetensors"),
        ExitCode.NOT_WRITABLE: ([step, "--json", step / "config.json" / "x"], "x"),
    }
    unknown = ([run, "--mutant", "causal_msak"], "causal_mask"), ([run, "--colour", "red"], "--colour")
    flags = [([], "CHECKPOINT"), *unknown]
    wanted = [*((code, *case) for code, case in cases.items()), *((ExitCode.BAD_FLAG, *case) for case in flags)]
    wanted.append((ExitCode.BAD_FLAG, [step, "--mutant", "p_as_logits"], "classification"))
    for (code, command, word), result in zip(wanted, _audit(*(case[1] for case in wanted)), strict=True):
        assert result.status == code, (command, result)
        assert word in result.err and result.err.count("\n") == 1 and result.err.startswith("error: "), result.err
