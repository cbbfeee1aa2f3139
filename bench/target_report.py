"""What time to target found, for people and programs: tables for a terminal, JSON, a picture, a line of records."""

import dataclasses
import datetime
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console
import rich.table
from matplotlib.figure import Figure

from bench.machine_facts import machine_facts
from bench.target_scores import TableScores
from bench.time_to_target import OURS, TargetLook, TimeToTarget, TimeToTargetConfig, first_pass, shortest_run
from tools import config as configs
from tools import files, paths

_LABEL_HEIGHT = 0.02
_COLOURS = ("#0b6e99", "#c2571a", "#6b8e23", "#7a4b94")


def publish(found: TimeToTarget, config: TimeToTargetConfig, *, console: rich.console.Console) -> None:
    """Shows everything on the console, and writes the files that were asked for.

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE.
    """
    for table in (target_table(found), curve_table(found), phase_table(found)):
        console.print(table)
    if config.change:
        console.print(record_row(found, change=config.change), soft_wrap=True, markup=False, highlight=False)
    if config.json is not None:
        files.write_json(paths.user_path(config.json), as_record(found, config))
    if config.picture is not None:
        draw(found, paths.user_path(config.picture))


def as_record(found: TimeToTarget, config: TimeToTargetConfig) -> dict[str, Any]:
    """Everything as JSON values, the machine among them."""
    return {
        "machine": machine_facts(),
        "config": configs.to_json(config),
        "tables": {"count": found.num_tables, "skipped": found.skipped},
        "baselines": {name: dataclasses.asdict(scores) for name, scores in found.baselines.items()},
        "targets": [
            {"name": name, "auc": target, "model": model, **_passing(found.looks, target, model=model)}
            for name, target in found.targets.items()
            for model in found.models()
        ],
        "runs": [
            {"num_steps": run.job.loop.num_steps, "workers": run.workers, "seconds": dict(run.seconds)}
            for run in found.runs
        ],
        "looks": [dataclasses.asdict(look) for look in found.looks],
    }


def _passing(looks: Sequence[TargetLook], target: float, *, model: str) -> dict[str, Any]:
    moments = {"first": first_pass(looks, target, model=model), "end": shortest_run(looks, target, model=model)}
    return {
        name: {key: getattr(look, key) for key in ("seconds", "tasks", "step", "num_steps")} if look else None
        for name, look in moments.items()
    }


def target_table(found: TimeToTarget) -> rich.table.Table:
    """Each target, and who passed it when."""
    title = f"Time to target: mean AUC (one-vs-one) over {found.num_tables} tables"
    table = rich.table.Table(title=title, title_justify="left")
    table.add_column("target")
    table.add_column("AUC above", justify="right")
    table.add_column("model")
    table.add_column("first look above", justify="right")
    table.add_column("shortest run that ends above", justify="right")
    for name, target in found.targets.items():
        for number, model in enumerate(found.models()):
            first, end = first_pass(found.looks, target, model=model), shortest_run(found.looks, target, model=model)
            heads = (name, f"{target:.4f}") if number == 0 else ("", "")
            table.add_row(*heads, model, _moment(first), _moment(end))
    return table


def _moment(look: TargetLook | None) -> str:
    return "not reached" if look is None else f"{look.seconds:.0f} s, {look.tasks:,} tasks"


def curve_table(found: TimeToTarget) -> rich.table.Table:
    """Every look, and the baselines where they were scored."""
    table = rich.table.Table(title="Looks (the last of each training in bold)", title_justify="left")
    table.add_column("model")
    for heading in ("run", "step", "tasks", "seconds", "AUC", "accuracy", "log-loss", "look takes"):
        table.add_column(heading, justify="right")
    for look in found.looks:
        when = (f"{look.num_steps}", f"{look.step}", f"{look.tasks:,}", f"{look.seconds:.0f} s")
        table.add_row(look.model, *when, *_score_cells(look.scores), style="bold" if look.is_last else "")
    for name, scores in found.baselines.items():
        table.add_row(name, "", "", "", "", *_score_cells(scores), style="dim")
    return table


def _score_cells(scores: TableScores) -> Iterator[str]:
    yield from (f"{value:.4f}" for value in (scores.auc, scores.accuracy, scores.nll))
    yield f"{scores.seconds:.1f} s"


def phase_table(found: TimeToTarget) -> rich.table.Table:
    """Where our seconds went, run by run; the last column is no part of them."""
    table = rich.table.Table(title="Seconds of each run", title_justify="left")
    names = {
        "program": "program starts",
        "shards": "shards",
        "workers": "workers start",
        "steps": "steps",
        "left_out": "left out: validation, checkpoints",
    }
    for heading in ("run", *names.values()):
        table.add_column(heading, justify="right")
    for run in found.runs:
        table.add_row(f"{run.job.loop.num_steps} steps", *(f"{run.seconds[name]:.1f}" for name in names))
    return table


def record_row(found: TimeToTarget, *, change: str) -> str:
    """A line of a Markdown table: date, change, then seconds and tasks until each target, the lowest first."""
    cells = [datetime.datetime.now(datetime.UTC).date().isoformat(), change]
    for target in found.targets.values():
        look = first_pass(found.looks, target)
        cells += ["not reached", ""] if look is None else [f"{look.seconds:.0f}", f"{look.tasks:,}"]
    return f"| {' | '.join(cells)} |"


def draw(found: TimeToTarget, path: pathlib.Path) -> None:
    """Mean AUC over seconds, a line for each training, the targets across; log-loss below.

    Raises:
        Failure: DISK_FULL or NOT_WRITABLE.
    """
    figure = Figure(figsize=(8, 7), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for number, model in enumerate(found.models()):
        for position, run in enumerate(found.runs):
            steps = run.job.loop.num_steps
            looks = [look for look in found.looks if (look.model, look.num_steps) == (model, steps)]
            seconds = [look.seconds for look in looks]
            style = {"color": _COLOURS[number % len(_COLOURS)], "marker": "o", "markersize": 3.5, "linewidth": 1.4}
            label = (f"{model}" if model == OURS else f"{model}, AdamW") if position == 0 else None
            upper.plot(seconds, [look.scores.auc for look in looks], label=label, **style)
            lower.plot(seconds, [look.scores.nll for look in looks], **style)
    above = math.inf
    for name, target in reversed(found.targets.items()):
        upper.axhline(target, color="#777777", linewidth=0.8, linestyle="--")
        drop = -9 if above - target < _LABEL_HEIGHT else 2  # below its line where one lies close above
        place = {"xy": (0, target), "xycoords": ("axes fraction", "data"), "xytext": (4, drop)}
        upper.annotate(f"{name.replace('_', ' ')} {target:.3f}", **place, textcoords="offset points", fontsize=8)
        above = target
    upper.set_ylabel(f"mean AUC one-vs-one, {found.num_tables} tables")
    lower.set_ylabel("mean log-loss (nats)")
    lower.set_xlabel("seconds since the start of the program")
    lower.set_xlim(left=0)
    upper.legend(loc="lower right", frameon=False)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    paths.writable_folder(path.parent, flag="--picture")
    figure.savefig(path, dpi=150, format="png")
