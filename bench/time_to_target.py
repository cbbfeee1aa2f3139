"""Time to target: how many seconds of training pass until the mean AUC over real tables passes that of baselines.

Every run trains from nothing for one number of steps and keeps checkpoints along the way; afterwards each of them is
scored on the tables. Because a rate that falls at the end of a run lifts the score at its end, several lengths can be
tried, and what counts besides the first pass is the shortest run whose end passes. Beside it another model is trained
for the same seconds on the same tasks and cores; without that one ours may train on GPUs.

Split and scores are the field's: one 50/50 split (seed 0), at most 1,000 context and query rows each, AUC one-vs-one,
levels and classes from the context alone. A single split of a few dozen tables: differences of a few thousandths
between runs are noise, and the first of many looks to pass is a little flattered.
"""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import tyro

from bench.target_scores import Contestant, ContestantKind, Judges, TableChoice, TableScores, judges, target_tables
from bench.timed_run import Runner, TimedRun, seconds_since_start, timed_run
from bench.two_way_training import TwoWayPlan, train_two_way
from eval.two_way_transformer import TwoWayForm
from tools import paths, progress
from tools.failure import ExitCode, Failure
from train import presets
from train.feed import TaskSource
from train.presets import PretrainConfig

OURS = "veritab"
_PUBLISHED_TABLES = 34
_NO_END = 2**40  # the other stops by the clock; tasks begin anew when all have been seen
_BASELINES = ("knn", "linear", "random_forest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """Mean AUC to be passed; the published figures are those of 34 core classification tables."""

    knn: float = 0.812
    """k nearest neighbours."""
    linear: float = 0.858
    """Logistic regression."""
    random_forest: float = 0.868
    """300 trees."""

    def named(self) -> dict[str, float]:
        """The targets by name, the lowest first."""
        return dict(sorted(dataclasses.asdict(self).items(), key=lambda item: item[1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToTargetConfig:
    """Training under a stopwatch, scored on real tables."""

    tables: pathlib.Path | None = None
    """A folder of real tables (manifest.json beside the files); by default those that scikit-learn ships."""
    group: str | None = "core"
    """Only tables of this group of the folder."""
    steps: tuple[int, ...] = ()
    """Lengths to train, one run each; by default the preset's."""
    every: int = 48
    """Steps between two looks."""
    targets: TargetConfig = TargetConfig()
    """What is to be passed."""
    baselines: bool = False
    """Take the targets from our own baselines on the same splits instead (always so without --tables)."""
    two_way: tyro.conf.EnumChoicesFromValues[tuple[TwoWayForm, ...]] = (TwoWayForm.MODERN,)
    """Forms of the two-way transformer to train beside it, both on CPUs; none: leave the values out."""
    two_way_learning_rate: float = 1e-3
    """AdamW's peak."""
    estimators: int = 8
    """Orders that the answers of every network are averaged over."""
    runner: tyro.conf.EnumChoicesFromValues[Runner] = Runner.RAY
    """Who starts the training processes: ray, as in //train:pretrain, or bare processes."""
    folder: pathlib.Path | None = None
    """Keep shards and checkpoints in this new folder; by default they are deleted."""
    json: pathlib.Path | None = None
    """Write everything here."""
    picture: pathlib.Path | None = None
    """Draw the curves here (PNG)."""
    change: str = ""
    """What is new in this run: prints a line for a table of records."""
    pretrain: PretrainConfig
    """The main job: its classification model, prior, seed and cluster are used."""

    def __post_init__(self) -> None:
        """Refuses what cannot be run.

        Raises:
            Failure: BAD_FLAG, naming flag and value.
        """
        for flag, values in (("steps", self.steps), ("every", [self.every]), ("estimators", [self.estimators])):
            for value in values:
                if value < 1:
                    raise Failure(ExitCode.BAD_FLAG, f"--{flag} {value} is too small: give 1 or more")
        if not self.two_way_learning_rate > 0:
            given = self.two_way_learning_rate
            raise Failure(ExitCode.BAD_FLAG, f"--two-way-learning-rate {given} is too small: give more than 0")
        if self.two_way and self.pretrain.data.source is TaskSource.FRESH:
            mend = "give --two-way without values, or --pretrain.data.source shards"
            raise Failure(ExitCode.BAD_FLAG, f"--two-way {self.two_way[0]} needs the tasks in shards: {mend}")
        if self.two_way and self.runner is Runner.RAY and self.pretrain.cluster.gpus_per_worker != 0:
            flag, given = "--pretrain.cluster.gpus-per-worker", self.pretrain.cluster.gpus_per_worker
            mend = f"give {flag} 0, or --two-way without values"
            raise Failure(
                ExitCode.BAD_FLAG, f"--two-way {self.two_way[0]} trains on CPUs and {flag} is {given}: {mend}"
            )

    def lengths(self) -> tuple[int, ...]:
        """The numbers of steps to train, ascending."""
        return tuple(sorted(set(self.steps))) or (self.pretrain.classification.loop.num_steps,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetLook:
    """One model at one moment, scored.

    Args:
        model: `veritab`, or the form of the two-way transformer.
        num_steps: of our run to which it belongs.
        step: its own optimizer steps.
        tasks: it was trained on.
        seconds: since the start of the program.
        is_last: whether its training ended there.
        scores: on the tables.
    """

    model: str
    num_steps: int
    step: int
    tasks: int
    seconds: float
    is_last: bool
    scores: TableScores


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """What was found.

    Args:
        targets: mean AUC to be passed, by name, ascending.
        baselines: scores of our own baselines; empty where they were not asked for.
        looks: of all models, in order of runs and seconds.
        runs: the runs under the stopwatch.
        num_tables: that count.
        skipped: tables left out, and why.
    """

    targets: dict[str, float]
    baselines: dict[str, TableScores]
    looks: tuple[TargetLook, ...]
    runs: tuple[TimedRun, ...]
    num_tables: int
    skipped: dict[str, str]

    def models(self) -> list[str]:
        """Who was looked at, ours first."""
        return list(dict.fromkeys(look.model for look in self.looks))


def time_to_target() -> TimeToTargetConfig:
    """Seconds until `tiny`, on CPUs, passes kNN, linear and random forest on real tables."""
    return TimeToTargetConfig(pretrain=_on_cpus(presets.tiny()))


def time_to_target_small() -> TimeToTargetConfig:
    """The same of `small`: hours."""
    return TimeToTargetConfig(pretrain=_on_cpus(presets.small()), every=256)


def _on_cpus(config: PretrainConfig) -> PretrainConfig:
    return dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, gpus_per_worker=0))


def first_pass(looks: Sequence[TargetLook], target: float, *, model: str = OURS) -> TargetLook | None:
    """The look with the fewest seconds whose mean AUC is above `target`."""
    passed = [look for look in looks if look.model == model and look.scores.auc > target]
    return min(passed, key=lambda look: look.seconds, default=None)


def shortest_run(looks: Sequence[TargetLook], target: float, *, model: str = OURS) -> TargetLook | None:
    """The end of the shortest training that ends above `target`."""
    return first_pass([look for look in looks if look.is_last], target, model=model)


def measure_time_to_target(config: TimeToTargetConfig) -> TimeToTarget:
    """Trains, then scores.

    Raises:
        Failure: what `eval.tables` refuses, before anything is trained; what training refuses; BAD_FLAG for a folder
            that exists.
    """
    program = seconds_since_start()
    for flag, path in (("--json", config.json), ("--picture", config.picture)):
        if path is not None:
            paths.writable_file(path, flag=flag)
    choice = _choice(config)
    selection = target_tables(choice)
    for name, reason in selection.skipped.items():
        progress.say(f"skipped {name}: {reason}")
    if config.tables is not None and not config.baselines and len(selection.episodes) != _PUBLISHED_TABLES:
        found = f"the targets are figures of {_PUBLISHED_TABLES} tables and these are {len(selection.episodes)}"
        progress.say(f"{found}: add --baselines to measure targets of their own")
    with _folder(config) as folder:
        runs, entries = [], []
        for num_steps in config.lengths():
            place = folder / f"{num_steps}-steps"
            progress.say(f"== {num_steps} steps")
            run = timed_run(
                config.pretrain,
                num_steps=num_steps,
                every=config.every,
                folder=place,
                runner=config.runner,
                program=program,
            )
            runs.append(run)
            entries += _our_entries(run, config)
            for form in config.two_way:
                entries += _two_way_entries(run, config, form=form, folder=place / form.value)
        with judges(choice, workers=min(os.cpu_count() or 1, len(entries))) as pool:
            baselines = _baseline_scores(config, pool)
            scores = pool.scores([contestant for contestant, _ in entries], title="looks")
    targets = {name: found.auc for name, found in baselines.items()} if baselines else config.targets.named()
    return TimeToTarget(
        targets=dict(sorted(targets.items(), key=lambda item: item[1])),
        baselines=baselines,
        looks=tuple(TargetLook(**facts, scores=found) for (_, facts), found in zip(entries, scores, strict=True)),
        runs=tuple(runs),
        num_tables=len(selection.episodes),
        skipped=selection.skipped,
    )


_Entry = tuple[Contestant, dict[str, object]]
"""Who is scored, and the fields of the look but for the scores."""


def _choice(config: TimeToTargetConfig) -> TableChoice:
    network = config.pretrain.classification.network
    return TableChoice(
        folder=paths.user_path(config.tables) if config.tables is not None else None,
        group=config.group,
        max_classes=network.icl.max_classes,
        max_features=network.max_features,
    )


@contextlib.contextmanager
def _folder(config: TimeToTargetConfig) -> Iterator[pathlib.Path]:
    """Where shards and checkpoints go."""
    if config.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            yield pathlib.Path(folder)
        return
    folder = paths.user_path(config.folder)
    if folder.exists():
        raise Failure(ExitCode.BAD_FLAG, f"--folder {folder} exists: name a new one, so that no old shards are used")
    paths.writable_folder(folder, flag="--folder")
    yield folder


def _our_entries(run: TimedRun, config: TimeToTargetConfig) -> list[_Entry]:
    kind, last = ContestantKind.CHECKPOINT, run.checkpoints[-1]
    return [
        (
            Contestant(kind=kind, source=kept.folder, num_estimators=config.estimators),
            {
                "model": OURS,
                "num_steps": run.job.loop.num_steps,
                "step": kept.step,
                "tasks": kept.tasks,
                "seconds": kept.seconds,
                "is_last": kept is last,
            },
        )
        for kept in run.checkpoints
    ]


def _two_way_entries(
    run: TimedRun, config: TimeToTargetConfig, *, form: TwoWayForm, folder: pathlib.Path
) -> list[_Entry]:
    """Trains the other until it has had as many seconds as ours; it starts no Ray, and trains in that time, too."""
    before = run.seconds["program"] + run.seconds["shards"]
    seconds = run.checkpoints[-1].seconds - before
    folder.mkdir()
    progress.say(f"the two-way transformer ({form}) on the same tasks for {seconds:.0f} s")
    looks = train_two_way(
        TwoWayPlan(
            form=form,
            learning_rate=config.two_way_learning_rate,
            schedule=run.job.loop.optimizer,
            feed=dataclasses.replace(run.job.feed_plan(), num_steps=_NO_END),
            seconds=seconds,
            num_looks=len(run.checkpoints),
            folder=str(folder),
            workers=run.workers,
            seed=run.job.seed,
        )
    )
    kind = ContestantKind.TWO_WAY
    return [
        (
            Contestant(kind=kind, source=look.path, num_estimators=config.estimators),
            {
                "model": f"two-way {form}",
                "num_steps": run.job.loop.num_steps,
                "step": look.step,
                "tasks": look.tasks,
                "seconds": before + look.seconds,
                "is_last": look is looks[-1],
            },
        )
        for look in looks
    ]


def _baseline_scores(config: TimeToTargetConfig, pool: Judges) -> dict[str, TableScores]:
    if not config.baselines and config.tables is not None:
        return {}
    asked = [Contestant(kind=ContestantKind.BASELINE, source=name) for name in _BASELINES]
    return dict(zip(_BASELINES, pool.scores(asked, title="baselines"), strict=True))
