"""Audits other people's in-context learners from outside: does a prediction depend on other queries?

    bazel run //eval:audit -- --peer tabicl [--json FILE]
    bazel run //eval:audit_peers -- tabicl [--json FILE] [--seed 1]

Networks are small and their weights random, since none can be had offline: findings are about wiring and preprocessing.
The exit status is 0 only if every variant passes every audit that has a verdict.
"""

import dataclasses
import pathlib
from typing import Any

import rich.console
import rich.table
import torch
import tyro

from eval.black_box import Verdict, audit_black_box
from eval.peer_launch import PeerName
from eval.peers import Peer, peer_variants
from tools import files, paths
from tools.config import parse_flags
from tools.failure import ExitCode, run_program

_PROGRAM = "//eval:audit_peers"
_COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.SIZE: "dim"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditPeersFlags:
    """Audits a package of other people; exit status 0 only if every audit passes."""

    peer: tyro.conf.Positional[PeerName]
    """Which package."""
    seed: int = 0
    """Draws weights, tables and changes."""
    json: pathlib.Path | None = None
    """Write all findings here."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(AuditPeersFlags, argv, program=_PROGRAM)
    if flags.json is not None:
        paths.writable_folder(paths.user_path(flags.json).parent, flag="--json")
    console, records = rich.console.Console(), []
    if not console.is_terminal:
        console = rich.console.Console(width=120)
    torch.set_num_threads(1)
    for peer in peer_variants(flags.peer.value, seed=flags.seed):
        record = _record(peer, seed=flags.seed)
        console.print(_table(record))
        records.append(record)
    if flags.json is not None:
        files.write_json(paths.user_path(flags.json), {"variants": records})
    passed = all(finding["verdict"] != Verdict.FAIL for record in records for finding in record["findings"])
    console.print("every audit passed" if passed else "at least one audit failed")
    return int(ExitCode.OK if passed else ExitCode.AUDIT_FAILED)


def _record(peer: Peer, *, seed: int) -> dict[str, Any]:
    """What is known of one variant, as it goes into the JSON."""
    findings = audit_black_box(peer.predict, num_classes=peer.num_classes, seed=seed)
    about = {name: getattr(peer, name) for name in ("package", "version", "variant", "weights")}
    return {**about, "findings": [dataclasses.asdict(finding) for finding in findings]}


def _table(record: dict[str, Any]) -> rich.table.Table:
    title = f"{record['package']} {record['version']}: {record['variant']}\n{record['weights']}"
    table = rich.table.Table(title=title, title_justify="left")
    for heading in ("audit", "verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what was found", ratio=1)
    for finding in record["findings"]:
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in finding["figures"].items())
        colour = _COLOURS[finding["verdict"]]
        word = finding["verdict"].upper() if finding["verdict"] == Verdict.FAIL else str(finding["verdict"])
        found = f"{finding['message']}\n[dim]{figures}[/dim]"
        table.add_row(finding["name"], f"[{colour}]{word}[/{colour}]", found, end_section=True)
    return table


def main() -> None:
    """Runs the program."""
    run_program(_main)
