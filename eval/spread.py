"""Spreads noise that is known over regression tasks, and compares what scalar, bar and quantile heads say (lab 6.C).

    bazel run //eval:spread -- [--trial.num-steps 500] [--trial.num-seeds 3] [--out FOLDER]

Trains small networks itself, no checkpoint is needed: about four minutes on one core with the defaults. Writes lab.json
and two pictures: x against interval for every head, and centre error, coverage and width with intervals over seeds.
"""

import dataclasses
import pathlib
from typing import Any

import rich.console
import rich.table
import torch

from eval import head_scores
from eval.audits import audit_subject
from eval.head_trial import Arm, SeedTrial, TrialConfig, check, evaluation_tasks, train_seed
from eval.lab_folder import lab_folder, write_lab
from eval.noisy_tasks import NoiseFamily
from eval.results import Status
from eval.subject import Subject, weights_digest
from model.regression_heads import RegressionHeadKind
from reports.lab_figures import interval_picture, trial_picture
from tools import config as configs
from tools import progress
from tools.config import parse_flags
from tools.failure import run_program

_PROGRAM = "bazel run //eval:spread --"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpreadFlags:
    """Compares scalar, bar and quantile heads on heteroscedastic tasks and on tasks with outliers: the truth is known.

    All heads of a seed get the same initial backbone, batches, steps, optimizer and evaluation tasks; a second arm
    trains heads alone on the same frozen hidden states. A point has no interval: its cells say none. Every network is
    audited; if one fails, all figures are not-yet-verified. A predictive distribution is not an epistemic belief.
    """

    trial: TrialConfig = TrialConfig()
    """What the figures depend on."""
    out: pathlib.Path | None = None
    """Folder for the result; by default runs/labs/spread in the workspace."""


def _main(argv: list[str]) -> int:
    flags = parse_flags(SpreadFlags, argv, program=_PROGRAM)
    config, console = flags.trial, rich.console.Console(width=150)
    check(config)
    folder = lab_folder(flags.out, name="spread")
    torch.set_num_threads(1)
    trials = _train(config)
    tasks = {family: evaluation_tasks(config, family) for family in NoiseFamily}
    table = head_scores.score_table(trials, tasks)
    yardsticks = {family.value: head_scores.context_mean_rmse(own) for family, own in tasks.items()}
    families = {f.value: head_scores.curves(trials[0], f, num_context=config.num_context) for f in NoiseFamily}
    failed = _failed_audits(trials)
    status = Status.UNVERIFIED if failed else Status.VERIFIED
    record = {
        "lab": "6.C heteroscedastic and outlier tasks",
        "status": status.value,
        "failed_audits": failed,
        "config": configs.to_json(config),
        "metrics": head_scores.METRICS,
        "scores": table,
        "context_mean_centre_rmse": yardsticks,
        "parameters": {k.value: _parameters(trials[0], k) for k in RegressionHeadKind},
        "step_seconds": {k.value: [trial.step_seconds[k] for trial in trials] for k in RegressionHeadKind},
        "curves": families,
    }
    drawn = [interval_picture(families, name="intervals"), trial_picture(table, name="heads", yardsticks=yardsticks)]
    for arm, by_family in table.items():
        console.print(_table(arm, by_family, status=status))
    for audit in failed:
        print("failed:", audit)
    print("Seconds of a training step, and parameters:", _costs(record))
    for path in write_lab(folder, record=record, pictures={one.name: one.standalone() for one in drawn}):
        print(path)
    return 0


def _train(config: TrialConfig) -> list[SeedTrial]:
    """Every seed, in turn."""
    trials: list[SeedTrial] = []
    per_seed = len(Arm) * config.num_steps
    with progress.meter("train", total=config.num_seeds * per_seed, unit="steps") as report:
        for seed in range(config.num_seeds):
            for found in train_seed(config, seed=seed):
                if isinstance(found, SeedTrial):
                    trials.append(found)
                else:
                    report(seed * per_seed + found, f"seed {seed}")
    return trials


def _failed_audits(trials: list[SeedTrial]) -> list[str]:
    """Every audit that a network of any arm fails, by name (seed 5.G)."""
    networks = {
        f"seed {trial.seed}, {arm}, {head}": network
        for trial in trials
        for arm, heads in trial.arms.items()
        for head, network in heads.items()
    }
    failed = []
    with progress.meter("audit", total=len(networks), unit="networks") as report:
        for done, (name, network) in enumerate(networks.items()):
            verdict = audit_subject(Subject(network=network), weights_sha256=weights_digest(network))
            failed += [f"{name}: {audit['name']}" for audit in verdict["audits"] if not audit["passed"]]
            report(done + 1)
    return failed


def _parameters(trial: SeedTrial, kind: RegressionHeadKind) -> int:
    return sum(weight.numel() for weight in trial.arms[Arm.WHOLE][kind].parameters())


def _costs(record: dict[str, Any]) -> str:
    heads = record["step_seconds"].items()
    return ", ".join(f"{kind} {sorted(s)[len(s) // 2]:.4f} s, {record['parameters'][kind]:,}" for kind, s in heads)


def _table(arm: str, by_family: dict[str, Any], *, status: Status) -> rich.table.Table:
    """Means over seeds with their intervals."""
    table = rich.table.Table(title=f"{arm} networks, {status.value}: mean over seeds (95 % t interval)")
    table.add_column("tasks")
    table.add_column("head")
    for metric in head_scores.METRICS:
        table.add_column(metric.replace("_", " "), justify="right")
    for family, by_head in by_family.items():
        for head, metrics in by_head.items():
            table.add_row(family, head, *(_cell(score) for score in metrics.values()))
    return table


def _cell(score: dict[str, Any]) -> str:
    if score["mean"] is None:
        return "none"
    reach = "" if score["low"] is None else f" ± {score['high'] - score['mean']:.3f}"
    return f"{score['mean']:.3f}{reach}"


def main() -> None:
    """Runs the program."""
    run_program(_main)
