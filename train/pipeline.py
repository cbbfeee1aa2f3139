"""The main job, stage by stage: shards, training, audits, scores, report, summary. Every stage can be resumed."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from eval import audits, baselines, comparison, regret, results, tables, views
from eval.icl_predictor import ICLPredictor
from eval.prediction_cost import GrowthConfig, growth
from eval.subject import Subject, subject_record
from eval.symmetry import symmetry
from model import checkpoint
from model.initialisation import initial_network
from model.network import Network
from priors.fresh_tasks import fresh_digest
from priors.generation import held_out_episodes
from priors.task import TaskKind
from tools import config as configs
from tools import files, paths, progress
from tools.tracking import Tracker
from train.cluster import Workers
from train.display import TrainingDisplay
from train.events import EVENTS, RunEvent
from train.job import TrainingJob, note_best
from train.model_job import make_shards
from train.presets import NEUTRAL
from train.room import check_disk
from train.run import FORMAT_VERSION, RunFolder
from train.workers import connected, run_jobs

EXPERIMENT = "veritab"
SCORING_SEED = 2  # of the held-out synthetic tasks that report; validation has another
_TREES_REAL, _TREES_SYNTHETIC = 300, 100


def run_pipeline(run: RunFolder, render: Callable[[pathlib.Path], pathlib.Path]) -> dict[str, Any]:
    """Does what is not done yet of a run that this process holds.

    Args:
        run: the run.
        render: draws the page of a run folder.

    Returns:
        The summary.
    """
    real = {kind: _tables(run, kind) for kind in TaskKind}  # first: a table that cannot be read stops nothing later
    jobs = {kind: _job(run, kind) for kind in TaskKind}
    check_disk(jobs.values())
    with contextlib.ExitStack() as stack:
        workers = None
        if not all(job.is_complete() for job in jobs.values()):
            sizes = {stage.batch_size for job in jobs.values() for stage in job.stages}
            workers = stack.enter_context(connected(run.config.cluster, batch_sizes=sizes, shared=run.path))
        with run.sitting(), _tracked(run) as tracker:
            _log_config(run, tracker)
            _make_models(run, jobs, workers=workers, tracker=tracker)
            stack.close()
            with run.stage("audit"):
                seconds = run.config.scoring.cost_seconds
                trained = {kind: _audited(job, cost_seconds=seconds) for kind, job in jobs.items()}
            with run.stage("score"):
                for kind, model in trained.items():
                    _score(run, model, real[kind])
            with run.stage("report"):
                files.write_json(run.summary_path, _summary(run, trained))
                render(run.path)
            summary = _summary(run, trained)
            files.write_json(run.summary_path, summary)
            run.events.write(RunEvent.RUN_ENDED)  # before the events are sent, which comes last
            _log_results(run, summary, tracker)
            return _completed(run, summary, undelivered=tracker.close("FINISHED"))


def deliver(run: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
    """Sends a finished run to the tracking store again, because the store was away when it ended."""
    with _tracked(run) as tracker:
        _log_config(run, tracker)
        for kind in TaskKind:
            tracker.replay(run.kind_path(kind) / "metrics.jsonl", prefix=f"{kind}/")
        _log_results(run, summary, tracker)
        return _completed(run, summary, undelivered=tracker.close("FINISHED"))


@contextlib.contextmanager
def _tracked(run: RunFolder) -> Iterator[Tracker]:
    """The run in the tracking store; whoever finishes it closes it, and what stops it before is recorded there."""
    tracker = Tracker.open(uri=run.config.tracking_uri, root=run.root, experiment=EXPERIMENT, run_name=run.name)
    try:
        yield tracker
    except BaseException as error:
        tracker.close("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise


def _log_config(run: RunFolder, tracker: Tracker) -> None:
    """Parameters cannot change in the store: what may, and what was changed with leave, becomes tags."""
    config = run.config_json()
    changed = {f"config.{field}": change for field, change in run.changed_fields().items()}
    manner = {f"config.{name}": config[name] for name in NEUTRAL}
    params = configs.flat({"config": {name: part for name, part in config.items() if name not in NEUTRAL}})
    tracker.log_params({name: value for name, value in params.items() if name not in changed})
    tracker.set_tags({name: str(value) for name, value in {**configs.flat(manner), **changed}.items()})


def _completed(run: RunFolder, summary: dict[str, Any], *, undelivered: int) -> dict[str, Any]:
    """Marks the run as finished: the last thing that is written."""
    done = summary | {"complete": True, "undelivered": undelivered}
    files.write_json(run.summary_path, done)
    return done


def _job(run: RunFolder, kind: TaskKind) -> TrainingJob:
    run.kind_path(kind).mkdir(exist_ok=True)
    return run.job(kind)


def _make_models(
    run: RunFolder, jobs: dict[TaskKind, TrainingJob], *, workers: Workers | None, tracker: Tracker
) -> None:
    """Shards, then training; `workers` is None where every model is trained."""
    with run.stage("generate"):
        for kind, job in jobs.items():
            for number, (stage, wanted) in enumerate(zip(job.stages, run.config.stages(kind), strict=True), start=1):
                name = f"{kind}-{number}" if job.later else kind.value
                drawn = fresh_digest(stage.fresh) if stage.fresh else None
                source = "drawn during training" if stage.fresh else stage.shards
                title = f"{name} shards"
                digest = drawn or make_shards(wanted, folder=stage.shards, seed=job.seed, title=title).digest
                tracker.log_dataset(name=f"prior-{name}", digest=digest, source=source)
    with run.stage("train"):
        if workers is not None:
            _train(jobs, workers, tracker)
    _replay(jobs, tracker)


def _train(jobs: dict[TaskKind, TrainingJob], workers: Workers, tracker: Tracker) -> None:
    progress.say(f"training on {workers}")
    display = TrainingDisplay(jobs)
    with progress.meter("train", total=display.total, unit="steps", done=display.done) as meter:

        def poll() -> None:
            display.refresh()
            meter(display.done, display.note(), display.seconds_left())
            _replay(jobs, tracker)

        try:
            run_jobs([job for job in jobs.values() if not job.is_complete()], workers, poll=poll)
        finally:
            display.refresh()


def _replay(jobs: dict[TaskKind, TrainingJob], tracker: Tracker) -> None:
    for kind, job in jobs.items():
        if job.metrics.exists():
            tracker.replay(job.metrics, prefix=f"{kind}/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with its verdict.

    Args:
        job: how it was trained.
        checkpoint: the chosen one.
        network: its network.
        status: what its scores may be called.
    """

    job: TrainingJob
    checkpoint: checkpoint.Checkpoint
    network: Network
    status: results.Status

    @property
    def kind(self) -> TaskKind:
        """What it predicts."""
        return TaskKind(self.job.network.kind.value)


def _audited(job: TrainingJob, *, cost_seconds: float) -> Trained:
    """Audits the checkpoint that validation chose, on the CPU, and draws what the report shows of it."""
    folder, kind = pathlib.Path(job.folder), TaskKind(job.network.kind.value)
    loaded = checkpoint.load_checkpoint(job.checkpoints / f"step-{note_best(job):08d}")
    progress.say(f"auditing the {kind} model of step {loaded.step:,}")
    network = loaded.network()
    verdict = audits.audit_network(network, weights_sha256=loaded.weights_sha256)
    files.write_json(folder / "audit.json", verdict)
    subject = subject_record(Subject(network=network), weights_sha256=loaded.weights_sha256)
    drawn = views.views(network, views.sample_episode(kind))
    drawn["symmetry"] = symmetry(network, kind)
    if cost_seconds > 0:
        drawn["growth"] = growth(network, config=GrowthConfig(repeats=3, budget_seconds=cost_seconds))
    files.write_json(folder / "views.json", drawn)
    status = results.status_of(verdict, subject)
    failed = ", ".join(audit["name"] for audit in verdict["audits"] if not audit["passed"])
    progress.say(f"{kind}: {status}" + (f" (failed: {failed})" if failed else ""))
    return Trained(job=job, checkpoint=loaded, network=network, status=status)


def _tables(run: RunFolder, kind: TaskKind) -> list[tables.Table]:
    """The real tables of one kind: what scikit-learn ships, and the folder that the user named."""
    found = tables.load_sklearn_tables(kind)
    if run.config.tables is not None:
        found += tables.load_folder(paths.user_path(run.config.tables), kind=kind)
    return found


def _score(run: RunFolder, model: Trained, real: list[tables.Table]) -> None:
    """Scores the model beside baselines on held-out synthetic tasks and real tables; writes results.arrow."""
    torch.set_num_threads(1)  # sums do not depend on the number of cores, and small tables gain nothing from more
    scoring, limits = run.config.scoring, model.job.network
    untrained = initial_network(limits, seed=run.config.seed).eval()
    ours = [
        ICLPredictor(name=name, network=network, num_estimators=scoring.num_estimators)
        for name, network in (("veritab", model.network), ("untrained", untrained))
    ]
    count = scoring.num_seeds * scoring.num_synthetic_tasks
    held_out = held_out_episodes(model.job.prior, seed=SCORING_SEED, count=count)
    rows = comparison.compare(
        comparison.episode_sets(held_out, num_sets=scoring.num_seeds),
        [*ours, *baselines.all_baselines(num_trees=_TREES_SYNTHETIC)],
        unit=comparison.Unit.CONTEXT_DEVIATION,
        title=f"{model.kind} synthetic",
    )
    selection = comparison.select(
        real,
        max_classes=limits.icl.max_classes,
        max_features=limits.max_features,
        seeds=range(scoring.num_seeds),
    )
    for name, reason in selection.skipped.items():
        progress.say(f"skipped {name}: {reason}")
    rows += comparison.compare(
        selection.episodes, [*ours, *baselines.all_baselines(num_trees=_TREES_REAL)], title=f"{model.kind} tables"
    )
    rows += _regret_rows(model, num_tasks=scoring.num_regret_tasks)
    path = pathlib.Path(model.job.folder) / "results.arrow"
    results.write_results(path, rows, weights_sha256=model.checkpoint.weights_sha256, status=model.status)


def _regret_rows(model: Trained, *, num_tasks: int) -> list[results.ResultRow]:
    """Regret of the trained network on families with a known posterior; none for 0 tasks."""
    if not num_tasks:
        return []
    return regret.measure_regret(
        {"veritab": model.network},
        kind=model.kind,
        config=regret.RegretConfig(num_tasks=num_tasks),
        seed=SCORING_SEED,
        title=f"{model.kind} regret",
    )


def _summary(run: RunFolder, trained: dict[TaskKind, Trained]) -> dict[str, Any]:
    models = {}
    for kind, model in trained.items():
        rows = results.read_results(pathlib.Path(model.job.folder) / "results.arrow").rows
        regrets = results.scores_tree([row for row in rows if row.metric == regret.METRIC])
        models[kind.value] = {
            "weights_sha256": model.checkpoint.weights_sha256,
            "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
            "tasks_seen": model.job.tasks_at(model.checkpoint.step),
            "step": model.checkpoint.step,
            "num_steps": model.job.loop.num_steps,
            "status": model.status.value,
            "scores": results.scores_tree([row for row in rows if row.metric != regret.METRIC]),
            "regret": {
                table: {name: by_metric[regret.METRIC]["mean"] for name, by_metric in by_model.items()}
                for table, by_model in regrets.items()
            },
        }
    return {
        "format_version": FORMAT_VERSION,
        "name": run.name,
        "verified": all(model.status is results.Status.VERIFIED for model in trained.values()),
        "seconds": run.seconds(),
        "models": models,
    }


def _log_results(run: RunFolder, summary: dict[str, Any], tracker: Tracker) -> None:
    """Logs scores, page, figures and files."""
    progress.say("sending scores, page and files to the tracking store")
    for kind, model in summary["models"].items():
        scores = {
            f"{kind}/{table}/{name}/{metric}": cell["mean"]
            for table, by_model in model["scores"].items()
            for name, by_metric in by_model.items()
            for metric, cell in by_metric.items()
            if cell["mean"] is not None
        }
        scores |= {
            f"{kind}/{table.replace('@', '/')}/{name}/{regret.METRIC}": mean
            for table, by_model in model["regret"].items()
            for name, mean in by_model.items()
            if mean is not None
        }
        tracker.log_scores(scores, status=model["status"])
        tracker.set_tag(f"audit.{kind}", _verdict(run.path / kind / "audit.json"))
        for name in ("audit.json", "results.arrow", "metrics.jsonl"):
            tracker.log_file(run.path / kind / name, folder=kind)
    tracker.set_tag("verification", "verified" if summary["verified"] else results.Status.UNVERIFIED.value)
    for name in ("report.html", "config.json", "summary.json", EVENTS):
        tracker.log_file(run.path / name)
    tracker.log_artifacts(run.path / "figures", folder="figures")


def _verdict(path: pathlib.Path) -> str:
    """`passed`, or which audits failed."""
    failed = [audit["name"] for audit in json.loads(path.read_bytes())["audits"] if not audit["passed"]]
    return f"failed: {', '.join(failed)}" if failed else "passed"
