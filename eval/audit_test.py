"""The program `//eval:audit`, run as users run it: exit status, what it prints, what it writes."""

import dataclasses
import json
import pathlib

import pytest

from eval.mutants import MUTANTS
from eval.program_session import Result, run_commands
from eval.small_network import rerandomised_network, small_network
from model.checkpoint import load_checkpoint, save_checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode

_PROMISED = ("causal_mask", "query_reads_query", "label_at_query", "normalise_with_query")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Session:
    """Checkpoints, where verdicts were written, and the result of every command line by name."""

    run: pathlib.Path
    untrained: pathlib.Path
    written: pathlib.Path
    results: dict[str, Result]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> _Session:
    """All command lines of this file, run in one process."""
    run, written = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("written")
    for kind in TaskKind:
        save_checkpoint(run / kind.value / "checkpoints", step=3, network=rerandomised_network(kind))
    other = tmp_path_factory.mktemp("other")
    untrained = save_checkpoint(other, step=0, network=small_network(TaskKind.CLASSIFICATION))
    damaged = save_checkpoint(other, step=1, network=small_network(TaskKind.REGRESSION))
    (damaged / "weights.safetensors").write_bytes(b"")
    step = run / "regression" / "checkpoints" / "step-00000003"
    commands: dict[str, list[object]] = {
        "run": [run, "--json", written / "run.json"],
        "step": [step, "--json", written / "step.json"],
        **{name: [run, "--mutant", name] for name in _PROMISED},
        "list": ["--list-mutants"],
        "untrained": [untrained, "--json", written / "untrained.json"],
        "broken untrained": [untrained, "--mutant", "causal_mask"],
        "absent": [run / "absent"],
        "damaged": [damaged],
        "not writable": [step, "--json", step / "config.json" / "x"],
        "no checkpoint": [],
        "file": [damaged / "weights.safetensors"],
        "unknown mutant": [run, "--mutant", "causal_msak"],
        "mutant nearest to a far word": [run / "absent", "--mutant", "cache"],
        "unknown flag": [run, "--colour", "red"],
        "mutant of the other kind": [step, "--mutant", "p_as_logits"],
        "peer": ["--peer", "tabicl"],
        "cached path": [step, "--path", "cached"],
    }
    results = run_commands("eval.audit", commands)
    return _Session(run=run, untrained=untrained, written=written, results=results)


def test_a_legal_run_exits_0_and_writes_its_verdicts(session: _Session) -> None:
    """5.G: one audit.json for one checkpoint, one per kind for a run."""
    both, one = session.results["run"], session.results["step"]
    assert (both.status, one.status) == (0, 0), both.err + one.err
    assert "every audit passed" in both.out and "leakage" in both.out
    verdicts = json.loads((session.written / "run.json").read_bytes())
    assert set(verdicts) == {"classification", "regression"} and all(v["passed"] for v in verdicts.values())
    verdict = json.loads((session.written / "step.json").read_bytes())
    assert verdict == verdicts["regression"]
    step = session.run / "regression" / "checkpoints" / "step-00000003"
    assert verdict["subject"]["weights_sha256"] == load_checkpoint(step).weights_sha256


@pytest.mark.parametrize("name", _PROMISED)
def test_each_promised_mutant_exits_1_and_names_audit_and_stage(name: str, session: _Session) -> None:
    """5.E, 5.F: on the checkpoints of a run."""
    result = session.results[name]
    assert result.status == ExitCode.AUDIT_FAILED, result.err
    rows = [line for line in result.out.splitlines() if "FAIL" in line]
    assert any(MUTANTS[name].audit in row and MUTANTS[name].stage in row for row in rows), result.out
    assert f"broken by {name}" in result.out and "at least one audit failed" in result.out


def test_the_mutants_are_listed_by_their_whole_names(session: _Session) -> None:
    """5.E: names can be copied from the list."""
    listed = session.results["list"]
    assert listed.status == 0
    assert all(name in listed.out for name in MUTANTS)


def test_an_untrained_checkpoint_is_judged_by_its_wiring_and_never_verified(session: _Session) -> None:
    """5.G: its zero weights are re-drawn, so the verdict names other weights."""
    clean, broken = session.results["untrained"], session.results["broken untrained"]
    assert (clean.status, broken.status) == (0, 1)
    assert "untrained" in clean.out
    verdict = json.loads((session.written / "untrained.json").read_bytes())
    assert verdict["subject"]["weights_sha256"] != load_checkpoint(session.untrained).weights_sha256


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("absent", ExitCode.NOT_FOUND, ("absent", "give a step folder")),
        ("damaged", ExitCode.CHECKPOINT_CORRUPT, ("weights.safetensors", "restore")),
        ("not writable", ExitCode.NOT_WRITABLE, ("--json", "config.json")),
        ("no checkpoint", ExitCode.BAD_FLAG, ("CHECKPOINT is missing",)),
        ("unknown mutant", ExitCode.BAD_FLAG, ("causal_msak", "did you mean causal_mask")),
        ("file", ExitCode.NOT_FOUND, ("weights.safetensors is a file", "give the folder that holds it")),
        ("mutant nearest to a far word", ExitCode.BAD_FLAG, ("'cache'", "did you mean stale_label_in_cache")),
        ("unknown flag", ExitCode.BAD_FLAG, ("--colour",)),
        ("mutant of the other kind", ExitCode.BAD_FLAG, ("p_as_logits", "give a classification checkpoint")),
        ("peer", ExitCode.NOT_FOUND, ("--peer tabicl", "tools/bazelw run //eval:audit_peers -- tabicl")),
        ("cached path", ExitCode.BAD_FLAG, ("--path cached", "reference or fast")),
    ],
)
def test_bad_input_is_one_line_with_its_own_status(
    name: str, code: ExitCode, words: tuple[str, ...], session: _Session
) -> None:
    """Each names thing, value and mend."""
    result = session.results[name]
    assert result.status == code, result
    assert result.err.startswith("error: ") and result.err.count("\n") == 1, result.err
    assert all(word in result.err for word in words), result.err
