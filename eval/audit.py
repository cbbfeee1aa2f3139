"""Audits checkpoints: is every prediction free of query labels and of other queries?

    bazel run //eval:audit -- CHECKPOINT [--path reference] [--json FILE] [--mutant NAME]
    bazel run //eval:audit -- --list-mutants
    bazel run //eval:audit -- --peer tabicl

CHECKPOINT is a step folder, or a run folder (the best checkpoint of each kind). The exit status is 0 only if every
audit passes. With `--mutant` the network is broken on purpose first: the audits must then fail.
"""

import dataclasses
import pathlib
from typing import Any

import rich.console
import rich.table
import tyro

from eval.audits import audit_subject
from eval.checkpoints import find_checkpoints
from eval.mutants import MUTANTS, known_mutant, mutated
from eval.peer_launch import PeerName, audit_peer
from eval.subject import Subject, rerandomise, weights_digest, zero_tensors
from model.checkpoint import Checkpoint
from model.icl_transformer import AttentionPath
from priors.task import TaskKind
from tools import files, paths
from tools.config import parse_flags
from tools.failure import ExitCode, Failure, run_program

_PROGRAM = "//eval:audit"
_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditFlags:
    """Audits checkpoints; exit status 0 only if every audit passes."""

    checkpoint: tyro.conf.Positional[pathlib.Path | None] = None
    """A step folder, or a run folder: its best checkpoint of each kind."""
    path: AttentionPath = AttentionPath.FAST
    """The attention path that is judged; scores are made with the fast one."""
    mutant: str | None = None
    """Break the network in this way first: the audits must fail."""
    list_mutants: bool = False
    """Show every mutant and leave."""
    peer: PeerName | None = None
    """Audit this package of other people from outside instead; its packages are installed on the first use."""
    json: pathlib.Path | None = None
    """Write the verdict here: audit.json of one checkpoint, or an object with one per kind."""


def _main(argv: list[str]) -> int:
    flags, console = parse_flags(AuditFlags, argv, program=_PROGRAM), _console()
    if flags.list_mutants:
        console.print(_mutant_table())
        return 0
    if flags.peer is not None:
        return audit_peer(flags.peer, json=flags.json)
    if flags.checkpoint is None:
        raise Failure(ExitCode.BAD_FLAG, f"CHECKPOINT is missing: {_PROGRAM} -- RUN_OR_STEP_FOLDER")
    if flags.path is AttentionPath.CACHED:
        mend = "the audit `paths` holds it to the fast one: give reference or fast"
        raise Failure(ExitCode.BAD_FLAG, f"--path cached is not judged by itself, {mend}")
    if flags.json is not None:
        paths.writable_folder(paths.user_path(flags.json).parent, flag="--json")
    mutant = None if flags.mutant is None else known_mutant(flags.mutant)
    found = find_checkpoints(paths.user_path(flags.checkpoint))
    if mutant is not None:
        found = [one for one in found if TaskKind(one.config.kind.value) in mutant.kinds] or found
    verdicts: dict[str, dict[str, Any]] = {}
    for checkpoint in found:
        verdict = _verdict(checkpoint, flags, console=console)
        console.print(_verdict_table(checkpoint, flags, verdict=verdict))
        verdicts[checkpoint.config.kind.value] = verdict
    passed = all(verdict["passed"] for verdict in verdicts.values())
    if flags.json is not None:
        one = next(iter(verdicts.values()))
        files.write_json(paths.user_path(flags.json), one if len(verdicts) == 1 else verdicts)
    console.print("every audit passed" if passed else "not legal: at least one audit failed")
    return int(ExitCode.OK if passed else ExitCode.AUDIT_FAILED)


def _verdict(checkpoint: Checkpoint, flags: AuditFlags, *, console: rich.console.Console) -> dict[str, Any]:
    network, sha256 = checkpoint.network(), checkpoint.weights_sha256
    zeros = zero_tensors(network)
    if zeros:
        network = rerandomise(network, seed=_SEED)
        sha256 = weights_digest(network)
        console.print(
            f"{checkpoint.folder.name} is untrained: {len(zeros)} tensors are all zero and were drawn anew, since a "
            "network that ignores its own mask passes anything. The verdict is on its wiring, not on these weights."
        )
    subject = Subject(network=network, path=flags.path)
    if flags.mutant is not None:
        subject = mutated(flags.mutant, subject)
    verdict = audit_subject(subject, weights_sha256=sha256, seed=_SEED)
    return verdict if flags.mutant is None else {**verdict, "mutant": flags.mutant}


def _verdict_table(checkpoint: Checkpoint, flags: AuditFlags, *, verdict: dict[str, Any]) -> rich.table.Table:
    subject = verdict["subject"]
    broken = "" if flags.mutant is None else f", broken by {flags.mutant}"
    table = rich.table.Table(
        title=f"{checkpoint.config.kind} {checkpoint.folder.name}{broken} ({subject['path']}, {subject['dtype']})"
    )
    table.add_column("audit", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("stage", no_wrap=True)
    table.add_column("what was found", ratio=1)
    for audit in verdict["audits"]:
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in audit["figures"].items())
        word = "[green]pass[/green]" if audit["passed"] else "[red]FAIL[/red]"
        found = f"{audit['message']}\n[dim]{figures}[/dim]"
        table.add_row(audit["name"], word, audit["stage"] or "", found, end_section=True)
    return table


def _mutant_table() -> rich.table.Table:
    table = rich.table.Table()
    for heading in ("mutant", "caught by", "stage named"):
        table.add_column(heading, no_wrap=True)
    table.add_column("mistake", ratio=1)
    for mutant in MUTANTS.values():
        only = "" if len(mutant.kinds) > 1 else f" ({mutant.kinds[0]} only)"
        table.add_row(mutant.name, mutant.audit, mutant.stage.value, mutant.summary + only)
    return table


def _console() -> rich.console.Console:
    """The terminal's width, or 120 columns where the output goes to a file."""
    console = rich.console.Console()
    return console if console.is_terminal else rich.console.Console(width=120)


def main() -> None:
    """Runs the program."""
    run_program(_main)
