"""Compares the verdicts of the signal filter with those of extra trees, family by family.

    bazel run //priors:calibrate_filter -- [PRESET] --num-tasks N [--kind regression] [--seed S] [--out FILE.svg]

Extra trees decide whether a task holds signal where their out-of-bag predictions beat the constant with 95 %
confidence. Choose `--filter.threshold` on the tasks of one seed and report what it does on those of another.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import numpy as np
import rich.console
import rich.table
import torch
import tyro
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.metrics import roc_auc_score

from priors.draws import Draws, one_thread
from priors.families import Family
from priors.generation import checked_seed
from priors.group import TaskGroup
from priors.mixture import PriorConfig, checked, draw_shape, sample_group
from priors.presets import PRESETS, GenerateConfig
from priors.signal_filter import SignalFilterConfig, measure_signal
from priors.task import Task
from reports import drawing
from tools import config as configs
from tools import files, paths, progress
from tools.failure import BadInput, ExitCode, run_program

_GROUP = 8  # tasks of one shape
_TREES, _LEAST_LEAF, _RESAMPLES = 128, 4, 1000  # of the reference
_CONFIDENCE = 0.95
_LARGEST = 1e30  # what ±inf is for the reference, which knows finite numbers only
_PARITY = 0  # the index of the rule
_DOT = 13  # points²
_OFF = SignalFilterConfig(enabled=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """What is compared, and on how many tasks."""

    prior: Annotated[PriorConfig, tyro.conf.arg(name="")] = PriorConfig()
    """The prior; its families have equal shares here, whatever their weights."""
    num_tasks: int = 600
    """Tasks, spread evenly over the families; the reference takes 50 to 500 ms each."""
    seed: int = 0
    """Of tasks, trees and resamples."""
    out: pathlib.Path | None = None
    """Write a picture (SVG) here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """One task.

    Args:
        family: of the task; parity has a name of its own.
        strength: what the filter measures.
        control: the same when the answers are shuffled among the rows.
        confidence: share of resamples of the rows in which extra trees beat the constant.
    """

    family: str
    strength: float
    control: float
    confidence: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """Verdicts in short; a share of nothing is NaN.

    Args:
        tasks: their number.
        with_signal: share of them that hold signal, by the reference.
        passed: share of them that pass the filter.
        ranking: ROC AUC of the strength for the reference's verdict.
        false_rejections: share of those with signal that the filter rejects.
        false_acceptances: share of those without signal that it lets pass.
        control_rejected: share of tasks that it rejects when their answers are shuffled.
    """

    tasks: int
    with_signal: float
    passed: float
    ranking: float
    false_rejections: float
    false_acceptances: float
    control_rejected: float


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    presets = {name: _preset(make) for name, make in PRESETS.items()}
    flags: CalibrateConfig
    _, flags = configs.parse_preset(presets, argv, program="bazel run //priors:calibrate_filter --", default="tiny")
    checked(flags.prior)
    if all(family.exact for family in flags.prior.shares()):
        named = " ".join(flags.prior.only)
        raise BadInput(ExitCode.BAD_FLAG, f"--only {named} names no family that is filtered: name another")
    if flags.num_tasks < 1:
        raise BadInput(ExitCode.BAD_FLAG, f"--num-tasks {flags.num_tasks} is too small: give 1 or more")
    checked_seed(flags.seed)
    out = paths.user_path(flags.out) if flags.out else None
    if out:
        paths.writable_folder(out.parent, flag="--out")
    verdicts: list[Verdict] = []
    with one_thread(), progress.meter("tasks", total=flags.num_tasks, unit="tasks") as report:
        for verdict in judge(flags.prior, num_tasks=flags.num_tasks, seed=flags.seed):
            verdicts.append(verdict)
            report(len(verdicts), verdict.family)
    threshold = flags.prior.filter.threshold
    console = rich.console.Console()
    console = console if console.is_terminal else rich.console.Console(width=120)
    console.print(_table(verdicts, threshold=threshold))
    console.print(f"fewest verdicts differ from the reference's at --filter.threshold {best_threshold(verdicts):.2f}")
    if out:
        files.write_bytes(out, picture_of(verdicts, threshold=threshold).standalone().encode())
        console.print(f"written: {out}")


def _preset(make: Callable[[], GenerateConfig]) -> Callable[[], CalibrateConfig]:
    @functools.wraps(make)  # its docstring is the preset's help
    def calibrate() -> CalibrateConfig:
        return CalibrateConfig(prior=make().shards.prior)

    return calibrate


def judge(prior: PriorConfig, *, num_tasks: int, seed: int) -> Iterator[Verdict]:
    """Draws tasks without a filter, from all families that are filtered in turn, and judges each in both ways."""
    families = [family for family in prior.shares() if not family.exact]
    criterion = dataclasses.replace(prior.filter, enabled=True)
    for start in range(0, num_tasks, _GROUP):
        number = start // _GROUP
        only = dataclasses.replace(prior, only=(families[number % len(families)],), filter=_OFF)
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)
        shape = draw_shape(prior, seed=own_seed)
        count = min(_GROUP, num_tasks - start)
        group = sample_group(only, seed=own_seed, rows=shape.rows, features=shape.features, count=count)
        strength = strengths(group, criterion, seed=own_seed)
        control = strengths(shuffled(group, seed=own_seed), criterion, seed=own_seed)
        for index, task in enumerate(group.tasks()):
            yield Verdict(
                family=_name(task),
                strength=float(strength[index]),
                control=float(control[index]),
                confidence=confidence(task, seed=own_seed % 2**32),
            )


def _name(task: Task) -> str:
    is_parity = task.family == Family.RULES and task.parameters.get("rule") == _PARITY
    return f"{task.family}: parity" if is_parity else task.family


def strengths(group: TaskGroup, config: SignalFilterConfig, *, seed: int) -> np.ndarray:
    """[B] what the filter measures in each task."""
    signal = measure_signal(
        Draws(seed),
        config,
        x=torch.from_numpy(group.x).transpose(1, 2).contiguous(),
        y=torch.from_numpy(group.y),
        column_kinds=torch.from_numpy(group.column_kinds),
        num_classes=torch.from_numpy(group.num_classes),
    )
    return signal.strength.numpy()


def shuffled(group: TaskGroup, *, seed: int) -> TaskGroup:
    """The same tables with each task's answers in random order: nothing can be told."""
    return dataclasses.replace(group, y=np.random.default_rng(seed).permuted(group.y, axis=1))


def confidence(task: Task, *, seed: int) -> float:
    """Share of resamples of the rows in which extra trees' out-of-bag predictions beat the constant.

    Errors are squared: of class shares (Brier), or of the target; the constant is the mean of the other rows.
    """
    x = np.nan_to_num(task.x.astype(np.float64), nan=np.nan, posinf=_LARGEST, neginf=-_LARGEST)
    options = {"n_estimators": _TREES, "min_samples_leaf": _LEAST_LEAF, "random_state": seed}
    if task.num_classes:
        classes, labels = np.unique(task.y, return_inverse=True)
        answers = np.eye(len(classes))[labels]
        trees = ExtraTreesClassifier(bootstrap=True, oob_score=True, **options).fit(x, labels)
        predicted = trees.oob_decision_function_
    else:
        centred = task.y.astype(np.float64) - task.y.mean(dtype=np.float64)
        answers = (centred / (centred.std() or 1.0))[:, None]
        forest = ExtraTreesRegressor(bootstrap=True, oob_score=True, **options).fit(x, answers[:, 0])
        predicted = forest.oob_prediction_[:, None]
    rows = len(answers)
    constant = (answers.sum(0) - answers) / (rows - 1)
    gain = ((answers - constant) ** 2).sum(1) - ((answers - predicted) ** 2).sum(1)
    often = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), size=_RESAMPLES)
    return float((often @ gain > 0).mean())


def agreement(verdicts: Sequence[Verdict], *, threshold: float) -> Agreement:
    """How the filter's verdicts at a threshold agree with the reference's."""
    strength = np.array([verdict.strength for verdict in verdicts])
    control = np.array([verdict.control for verdict in verdicts])
    signal = np.array([verdict.confidence >= _CONFIDENCE for verdict in verdicts])
    both = 0 < signal.sum() < len(signal)
    return Agreement(
        tasks=len(verdicts),
        with_signal=float(signal.mean()),
        passed=float((strength >= threshold).mean()),
        ranking=float(roc_auc_score(signal, strength)) if both else np.nan,
        false_rejections=float((strength < threshold)[signal].mean()) if signal.any() else np.nan,
        false_acceptances=float((strength >= threshold)[~signal].mean()) if not signal.all() else np.nan,
        control_rejected=float((control < threshold).mean()),
    )


def best_threshold(verdicts: Sequence[Verdict]) -> float:
    """The threshold between two measured strengths at which the fewest verdicts differ from the reference's."""
    strength = np.array([verdict.strength for verdict in verdicts])
    order = strength.argsort()
    signal = np.array([verdict.confidence >= _CONFIDENCE for verdict in verdicts])[order]
    wrong = np.concatenate([[0], signal.cumsum()]) + np.concatenate([(~signal[::-1]).cumsum()[::-1], [0]])
    cut = int(wrong.argmin())
    ordered = strength[order]
    return float(ordered[[max(cut - 1, 0), min(cut, len(ordered) - 1)]].mean())


def _by_family(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    names = sorted({verdict.family for verdict in verdicts})
    return {name: [verdict for verdict in verdicts if verdict.family == name] for name in names}


def _table(verdicts: Sequence[Verdict], *, threshold: float) -> rich.table.Table:
    table = rich.table.Table(title=f"the filter at threshold {threshold:g} against extra trees")
    table.add_column("family")
    for head in (
        "tasks",
        "with signal",
        "pass",
        "ROC AUC",
        "false rejections",
        "false acceptances",
        "shuffled rejected",
    ):
        table.add_column(head, justify="right")
    for name, part in {**_by_family(verdicts), "all": verdicts}.items():
        found = agreement(part, threshold=threshold)
        values = list(dataclasses.astuple(found))
        table.add_row(name, str(values[0]), *("" if np.isnan(value) else f"{value:.3f}" for value in values[1:]))
    return table


@drawing.styled
def picture_of(verdicts: Sequence[Verdict], *, threshold: float) -> drawing.Picture:
    """Strength, three lanes of dots a family: with signal above, without in the middle, shuffled answers below."""
    parts = _by_family(verdicts)
    figure, axes = drawing.canvas(width=7.4, height=1.1 + 0.55 * len(parts))
    generator = np.random.default_rng(0)
    for row, part in enumerate(parts.values()):
        kinds = {
            "signal": ([v.strength for v in part if v.confidence >= _CONFIDENCE], drawing.SECOND),
            "no signal": ([v.strength for v in part if v.confidence < _CONFIDENCE], drawing.OURS),
            "the same tasks, answers shuffled": ([v.control for v in part], drawing.OTHERS),
        }
        for lane, (name, (values, colour)) in enumerate(kinds.items()):
            height = row + 0.28 * (lane - 1) + generator.uniform(-0.07, 0.07, len(values))
            dots = {"color": colour, "s": _DOT, "alpha": 0.7, "linewidths": 0}
            axes.scatter(values, height, label=name if row == 0 else None, **dots)
    axes.axvline(threshold, color=drawing.INK, linewidth=0.9, label=f"threshold {threshold:g}")
    axes.set_xscale("symlog", linthresh=3.0)
    axes.set_xticks([-10, -3, 0, 3, 10, 30, 100], ["−10", "−3", "0", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set_yticks(range(len(parts)), list(parts))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside lower center", ncols=4)
    drawing.label(axes, title="What extra trees say, and the filter's strength", x="strength", y="")
    found = agreement(verdicts, threshold=threshold)
    alt = f"{found.tasks} tasks, ROC AUC {found.ranking:.3f}; line: the threshold {threshold:g}."
    caption = "Blue: extra trees beat the constant. Orange: they do not. Grey: the same tasks, answers shuffled."
    return drawing.picture(figure, name="filter", caption=caption, alt=alt)
