"""Fair comparisons: every predictor on the same episodes, paired, with intervals clustered by table (6.12).

The same context rows, query rows and answers go to every predictor; each gets its own copy of the evidence, so that
none can change what the next one reads, and no view leads back to the answers.
"""

import dataclasses
import enum
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eval import scores, tables
from eval.baselines import Predictor
from eval.results import ResultRow
from priors.task import Episode, Evidence, TaskKind
from tools import progress
from tools.failure import ExitCode, Failure

SEEDS = (0, 1, 2)
"""Splits of a real table, and sets of held-out episodes."""

Episodes = Mapping[str, Mapping[int, Sequence[Episode]]]
"""Table name → seed → the episodes whose scores are averaged into one row (one on real tables)."""


class Unit(enum.StrEnum):
    """What RMSE, CRPS and interval widths are counted in."""

    TARGET = "target"  # the target's own units: real tables
    CONTEXT_DEVIATION = "context-deviation"  # the context targets' standard deviation: synthetic tasks of any scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Real tables ready to be compared, and those left out with the reason."""

    episodes: dict[str, dict[int, list[Episode]]]
    skipped: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedInterval:
    """A mean difference between two models, and its bootstrap interval over tables.

    Args:
        mean: mean over tables of (mean over seeds of model a − model b).
        low: lower end; NaN with fewer than two tables.
        high: upper end.
        num_tables: tables with a defined difference.
    """

    mean: float
    low: float
    high: float
    num_tables: int


def select(
    candidates: Iterable[tables.Table], *, max_classes: int, max_features: int, seeds: Sequence[int] = SEEDS
) -> Selection:
    """Splits tables at every seed; those over a model's limit, or named like an earlier one, are skipped and named."""
    episodes: dict[str, dict[int, list[Episode]]] = {}
    skipped: dict[str, str] = {}
    for table in candidates:
        if table.name in episodes:
            skipped[f"{table.name} ({table.group or 'second'})"] = f"another table is named {table.name}"
            continue
        try:
            tables.check_limits(table, max_classes=max_classes, max_features=max_features)
        except Failure as failure:
            skipped[table.name] = failure.message
            continue
        episodes[table.name] = {seed: [tables.split(table, seed=seed)] for seed in seeds}
    return Selection(episodes=episodes, skipped=skipped)


def episode_sets(episodes: Sequence[Episode], *, num_sets: int = len(SEEDS)) -> dict[str, dict[int, list[Episode]]]:
    """Held-out synthetic episodes as disjoint sets of (almost) equal size: the seeds of the table `synthetic`."""
    if len(episodes) < num_sets:
        raise ValueError(f"{len(episodes)} episodes cannot fill {num_sets} sets")
    return {tables.SYNTHETIC: {number: list(episodes[number::num_sets]) for number in range(num_sets)}}


def compare(
    episodes: Episodes, predictors: Sequence[Predictor], *, unit: Unit = Unit.TARGET, title: str = "score"
) -> list[ResultRow]:
    """Scores every predictor on every episode, with a progress display.

    A row's value is the mean over the episodes of one table and seed. Query rows whose class the context lacks can be
    answered by nobody: they are left out for every model.

    Args:
        episodes: all of one kind.
        predictors: with distinct names.
        unit: `Unit.CONTEXT_DEVIATION` for synthetic tasks.
        title: of the progress display.

    Returns:
        One row for each table, seed, predictor and metric. `seconds` is the wall time of one episode, fit included.

    Raises:
        Failure: DIVERGED, naming the model and the table, if its answer is no distribution (NaN, wrong shape or sum): a
            model must not gain by leaving out what it cannot answer.
    """
    names = [predictor.name for predictor in predictors]
    if len(set(names)) < len(names):
        raise ValueError(f"two predictors have one name: {names}")
    rows: list[ResultRow] = []
    cells = [(table, seed, cell) for table, by_seed in episodes.items() for seed, cell in by_seed.items()]
    total, done = sum(len(cell) for _, _, cell in cells) * len(predictors), 0
    with progress.meter(title, total=total, unit="episodes") as meter:
        for table, seed, cell in cells:
            for predictor in predictors:
                found = []
                for episode in cell:
                    found.append(episode_scores(episode, predictor, unit=unit, table=table))
                    done += 1
                    meter(done, f"{table} {predictor.name}")
                rows += _rows(found, kind=cell[0].task.kind, table=table, model=predictor.name, seed=seed)
    return rows


def average_over_tables(rows: Sequence[ResultRow], metric: str) -> dict[str, float]:
    """Mean over tables of each model's mean over seeds; only tables on which every model has the metric count."""
    means = _table_means(rows, metric)
    models = sorted({model for by_model in means.values() for model in by_model})
    complete = [by_model for by_model in means.values() if len(by_model) == len(models)]
    return {model: float(np.mean([by_model[model] for by_model in complete])) for model in models if complete}


def paired_interval(
    rows: Sequence[ResultRow],
    model_a: str,
    *,
    model_b: str,
    metric: str,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> PairedInterval:
    """Mean difference a − b over tables with a percentile bootstrap over tables, the clusters (Efron 1979).

    Seeds of one table share its rows, so they are averaged first and never counted as independent.
    """
    pairs = [(means.get(model_a), means.get(model_b)) for means in _table_means(rows, metric).values()]
    differences = np.array([a - b for a, b in pairs if a is not None and b is not None])
    if len(differences) < 2:
        mean = float(differences.mean()) if len(differences) else math.nan
        return PairedInterval(mean=mean, low=math.nan, high=math.nan, num_tables=len(differences))
    picks = np.random.default_rng(seed).integers(0, len(differences), (num_resamples, len(differences)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences[picks].mean(axis=1), [tail, 1 - tail])
    return PairedInterval(mean=float(differences.mean()), low=float(low), high=float(high), num_tables=len(differences))


def _table_means(rows: Sequence[ResultRow], metric: str) -> dict[tuple[str, str], dict[str, float]]:
    """(kind, table) → model → mean over seeds of the defined values."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        if row.metric == metric and not math.isnan(row.value):
            values.setdefault((row.kind, row.table), {}).setdefault(row.model, []).append(row.value)
    return {key: {model: float(np.mean(found)) for model, found in models.items()} for key, models in values.items()}


def episode_scores(episode: Episode, predictor: Predictor, *, unit: Unit, table: str) -> dict[str, float]:
    """Every score of one predictor on one episode, and the `seconds` that it took.

    Raises:
        Failure: DIVERGED, naming model and table, for an answer that is no distribution.
    """
    evidence, answers = _private(episode.evidence()), episode.answers()
    known = episode.evidence().y_context
    start = time.perf_counter()
    classifies = evidence.kind is TaskKind.CLASSIFICATION
    call: Callable[[Evidence], Any] = predictor.classify if classifies else predictor.forecast
    answer = call(evidence)
    seconds = time.perf_counter() - start
    try:
        if classifies:
            found = _classification(answer, answers, known=known, num_classes=evidence.num_classes)
        else:
            found = _regression(answer, answers, known=known, unit=unit)
    except ValueError as error:
        mend = "mend the model before comparing it"
        raise Failure(ExitCode.DIVERGED, f"answer of {predictor.name} on table {table}: {error}; {mend}") from error
    return found | {"seconds": seconds}


def _classification(
    answer: np.ndarray, answers: np.ndarray, *, known: np.ndarray, num_classes: int
) -> dict[str, float]:
    if answer.shape != (len(answers), num_classes):
        raise ValueError(f"probabilities {answer.shape} are not {(len(answers), num_classes)}")
    fair = np.isin(answers, known)
    if not fair.any():
        return dict.fromkeys(("auc_ovr", "auc_ovo", "accuracy", "nll", "ece"), math.nan)
    return scores.classification_scores(answer[fair], answers[fair])


def _regression(answer: scores.Forecast, answers: np.ndarray, *, known: np.ndarray, unit: Unit) -> dict[str, float]:
    if unit is Unit.TARGET:
        return scores.regression_scores(answer, answers)
    varies = np.ptp(known) > 0
    found = scores.regression_scores(answer, answers, scale=float(known.astype(np.float64).std()) if varies else 1.0)
    return found if varies else dict.fromkeys(found, math.nan)  # a constant context gives no unit


def _private(evidence: Evidence) -> Evidence:
    """A copy that shares no memory with the episode."""
    arrays = {
        field.name: value.copy()
        for field in dataclasses.fields(evidence)
        if isinstance(value := getattr(evidence, field.name), np.ndarray)
    }
    return dataclasses.replace(evidence, **arrays)


def _rows(
    found: Sequence[Mapping[str, float]], *, kind: TaskKind, table: str, model: str, seed: int
) -> list[ResultRow]:
    rows = []
    for metric in found[0]:
        values = np.array([one[metric] for one in found])
        defined = values[~np.isnan(values)]
        value = float(defined.mean()) if len(defined) else math.nan
        rows.append(
            ResultRow(
                kind=kind.value,
                table=table,
                model=model,
                seed=seed,
                metric=metric,
                value=value,
                num_episodes=len(defined),
                num_undefined=len(values) - len(defined),
            )
        )
    return rows
