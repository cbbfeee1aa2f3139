"""Draws tasks from the prior of another package, and says how long it took.

    bazel run //eval:sample_peer_prior -- tabicl --prior graph_scm --rows 256 --features 20 --num-tasks 64 --seed 0 \\
        --out tasks.npz [--filtered] [--json FILE]
    bazel run //eval:sample_peer_prior -- tabicl --serve

The npz file holds arrays `x_0` [R, C], `y_0` [R], `x_1`, …. With `--serve` it answers requests, a JSON object a line on
standard input, with the time that each took, until the input ends (`//tools:bench` asks it so).
"""

import contextlib
import dataclasses
import enum
import json
import os
import pathlib
import sys
from typing import Any

import torch
import tyro

from eval.peer_prior import PeerPriorConfig, PeerPriorName, PeerTasks, sample_peer_tasks
from tools import files, paths
from tools.config import from_json, parse_flags, to_json
from tools.failure import Failure, run_program

_PROGRAM = "//eval:sample_peer_prior"


class PeerWithPrior(enum.StrEnum):
    """A package of requirements-peers.in that ships its prior."""

    TABICL = "tabicl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplePeerPriorFlags:
    """Draws classification tasks from the prior of another package."""

    peer: tyro.conf.Positional[PeerWithPrior]
    """Which package."""
    prior: PeerPriorName = PeerPriorName.MIX_SCM
    """Which of its priors."""
    rows: int = 256
    """Rows of every task, context and query together."""
    features: int = 20
    """Columns of every task, before those of a single value are dropped."""
    filtered: bool = False
    """Draw tasks that extra trees cannot predict anew."""
    num_tasks: int = 64
    """How many."""
    seed: int = 0
    """Other seeds, other tasks."""
    out: pathlib.Path | None = None
    """Write the tasks here (npz)."""
    json: pathlib.Path | None = None
    """Write what was drawn, and the seconds that it took, here."""
    serve: bool = False
    """Answer requests on standard input instead."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = parse_flags(SamplePeerPriorFlags, argv, program=_PROGRAM)
    torch.set_num_threads(1)
    if flags.serve:
        _serve()
        return
    for name, path in (("--out", flags.out), ("--json", flags.json)):
        if path is not None:
            paths.writable_folder(paths.user_path(path).parent, flag=name)
    config = PeerPriorConfig(prior=flags.prior, rows=flags.rows, features=flags.features, filtered=flags.filtered)
    tasks = sample_peer_tasks(config, seed=flags.seed, count=flags.num_tasks)
    if flags.out is not None:
        tasks.save(paths.user_path(flags.out))
    record = {**to_json(config), "seed": flags.seed, **_cost(tasks)}
    if flags.json is not None:
        files.write_json(paths.user_path(flags.json), record)
    print(f"{len(tasks.x)} tasks of {flags.peer}'s {flags.prior}: {record['seconds_per_task'] * 1e3:.2f} ms a task")


def _serve() -> None:
    """A line {"config": {…}, "seed", "count", "core"} is answered by {"num_tasks", "seconds_per_task"} or {"error"}."""
    answers = sys.stdout
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # nothing that they print is taken for an answer
                answer = _answer(json.loads(line))
        except Failure as failure:
            answer = {"error": failure.message}
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            answer = {"error": f"the request cannot be answered ({error})"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    core = request.get("core")
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})
    config = from_json(PeerPriorConfig, request["config"])
    return _cost(sample_peer_tasks(config, seed=int(request["seed"]), count=int(request["count"])))


def _cost(tasks: PeerTasks) -> dict[str, Any]:
    return {"num_tasks": len(tasks.x), "seconds_per_task": tasks.seconds / len(tasks.x)}
