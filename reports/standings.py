"""Who is better, by how much, and whether the seeds agree: the numbers of a score table and the sentence above it."""

import dataclasses
import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

OURS = "veritab"
SYNTHETIC = "synthetic"
MAX_NAMED_LOSSES = 4
MODEL_LABELS = {
    "veritab": "veritab",
    "majority": "majority / mean",
    "knn": "kNN",
    "linear": "linear",
    "random_forest": "random forest",
    "kernel": "kernel regression",
    "untrained": "untrained network",
}

Scores = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""table → model → metric → {"mean": float, "per_seed": [float or None]}, as `eval.results.scores_tree` makes it."""


class Direction(enum.Enum):
    """Which values of a metric are good."""

    HIGHER = "higher is better"
    LOWER = "lower is better"
    NEAR_90 = "best near 0.9"
    NONE = "neither end is better by itself"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """How a metric is shown.

    Args:
        key: its name in files.
        label: its name on the page.
        direction: which values are good.
        meaning: one line for the reader.
    """

    key: str
    label: str
    direction: Direction
    meaning: str = ""

    def badness(self, value: float) -> float:
        """A number that is lower for better values; NaN where the metric knows no better."""
        signs = {Direction.HIGHER: -value, Direction.LOWER: value, Direction.NEAR_90: abs(value - 0.9)}
        return signs.get(self.direction, math.nan)


def _metric(key: str, label: str, *, direction: Direction, meaning: str) -> Metric:
    return Metric(key=key, label=label, direction=direction, meaning=meaning)


_UNITS = "in target units (synthetic: context standard deviations)"
METRICS = {
    metric.key: metric
    for metric in (
        _metric("nll", "NLL", direction=Direction.LOWER, meaning="−log p(answer), nats per query row"),
        _metric("auc_ovr", "AUC", direction=Direction.HIGHER, meaning="one class against the rest, macro mean"),
        _metric("auc_ovo", "AUC (one-vs-one)", direction=Direction.HIGHER, meaning="pairs of classes, macro mean"),
        _metric("accuracy", "Accuracy", direction=Direction.HIGHER, meaning="share of right top classes"),
        _metric("ece", "ECE", direction=Direction.LOWER, meaning="expected calibration error of the top class"),
        _metric("crps", "CRPS", direction=Direction.LOWER, meaning=f"whole forecast against the answer, {_UNITS}"),
        _metric("r2", "R²", direction=Direction.HIGHER, meaning="explained variance of the point forecast"),
        _metric("rmse", "RMSE", direction=Direction.LOWER, meaning=f"error of the point forecast, {_UNITS}"),
        _metric("mae", "MAE", direction=Direction.LOWER, meaning=f"absolute error of the median, {_UNITS}"),
        _metric("crossing_rate", "Crossing", direction=Direction.LOWER, meaning="neighbouring quantiles that cross"),
        _metric("coverage90", "Coverage", direction=Direction.NEAR_90, meaning="answers inside the 5–95 % interval"),
        _metric("width90", "Width", direction=Direction.NONE, meaning=f"mean width of that interval, {_UNITS}"),
        _metric("seconds", "Time", direction=Direction.LOWER, meaning="seconds to fit and predict, per episode"),
    )
}
HEADLINES = {"classification": ("nll", "auc_ovr"), "regression": ("crps", "r2")}


def metric_of(key: str) -> Metric:
    """The metric of that name; one that is not listed is shown without a best."""
    return METRICS.get(key, Metric(key=key, label=key, direction=Direction.NONE, meaning="as named in results.arrow"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of a score table.

    Args:
        mean: over seeds.
        spread: sample standard deviation over seeds; NaN with one seed.
        text: the mean as shown.
        is_best: shown in bold: no model is better at the digits shown.
    """

    mean: float
    spread: float
    text: str
    is_best: bool


def models_of(scores: Scores) -> list[str]:
    """Every model that has a score: ours, then the known baselines in their order, then the rest."""
    present = {model for by_model in scores.values() for model in by_model}
    known = [model for model in MODEL_LABELS if model in present]
    return known + sorted(present - set(known))


def metrics_of(scores: Scores) -> list[Metric]:
    """Every metric that has a score, in the order of the page."""
    present = {key for by_model in scores.values() for by_metric in by_model.values() for key in by_metric}
    known = [key for key in METRICS if key in present]
    return [metric_of(key) for key in known + sorted(present - set(known))]


def label_of(model: str) -> str:
    """A model's name for readers."""
    return MODEL_LABELS.get(model, model)


def seeds_of(scores: Scores, *, table: str, model: str, metric: str) -> list[float]:
    """The values of all seeds, NaN where undefined; empty where the model was not scored."""
    entry = scores.get(table, {}).get(model, {}).get(metric, {})
    return [math.nan if value is None else float(value) for value in entry.get("per_seed", [])]


def table_row(scores: Scores, *, table: str, metric: Metric) -> dict[str, Cell]:
    """The cells of one table by model; models without a finite score are left out."""
    values = {model: seeds_of(scores, table=table, model=model, metric=metric.key) for model in scores[table]}
    defined = {model: [value for value in seeds if math.isfinite(value)] for model, seeds in values.items()}
    finite = {model: seeds for model, seeds in defined.items() if seeds}
    badness = {model: metric.badness(round(statistics.fmean(seeds), 3)) for model, seeds in finite.items()}
    best = min(badness.values(), default=math.nan)
    return {
        model: Cell(
            mean=statistics.fmean(seeds),
            spread=statistics.stdev(seeds) if len(seeds) > 1 else math.nan,
            text=number(statistics.fmean(seeds)),
            is_best=badness[model] == best,
        )
        for model, seeds in finite.items()
    }


def number(value: float) -> str:
    """Three decimals, fewer for large numbers."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """Ours against the best baseline on one table.

    Args:
        table: where.
        rival: the best baseline.
        gap: how much better ours is; negative when the rival is better.
        num_seeds: pairs behind it.
        is_clear: whether the gap exceeds the spread of the paired differences over seeds; False with one seed.
    """

    table: str
    rival: str
    gap: float
    num_seeds: int
    is_clear: bool


def standings(scores: Scores, *, metric: Metric) -> list[Standing]:
    """Ours against the best baseline, table by table; the untrained network counts as one."""
    out = []
    for table in scores:
        cells = table_row(scores, table=table, metric=metric)
        rivals = {model: metric.badness(cell.mean) for model, cell in cells.items() if model != OURS}
        if OURS not in cells or not rivals or all(math.isnan(value) for value in rivals.values()):
            continue
        rival = min(rivals, key=lambda model: rivals[model])
        mine = seeds_of(scores, table=table, model=OURS, metric=metric.key)
        theirs = seeds_of(scores, table=table, model=rival, metric=metric.key)
        pairs = [(a, b) for a, b in zip(mine, theirs, strict=False) if math.isfinite(a + b)]
        gaps = [metric.badness(b) - metric.badness(a) for a, b in pairs]
        spread = statistics.stdev(gaps) if len(gaps) > 1 else math.inf
        gap = rivals[rival] - metric.badness(cells[OURS].mean)
        is_clear = abs(gap) > spread
        out.append(Standing(table=table, rival=rival, gap=gap, num_seeds=len(gaps), is_clear=is_clear))
    return out


def verdict_sentence(scores: Scores, *, metric: Metric) -> str:
    """Says where ours is best and where it is not, with the gap; computed, never written by hand."""
    found = standings(scores, metric=metric)
    if not found:
        return f"{metric.label}: no table has a score of veritab beside one of a baseline."
    losses = sorted((standing for standing in found if standing.gap <= 0), key=lambda standing: standing.gap)
    wins = len(found) - len(losses)
    head = f"{metric.label}: veritab is better than every baseline on {_count(wins, len(found))}."
    if max(standing.num_seeds for standing in found) < 2:
        head += " One seed only: the spread is not known."
    if not losses:
        return head
    named = [_loss(standing) for standing in losses[:MAX_NAMED_LOSSES]]
    if len(losses) > MAX_NAMED_LOSSES:
        named.append(f"and on {len(losses) - MAX_NAMED_LOSSES} more by less")
    return f"{head} {_capitalised('; '.join(named))}."


def _count(part: int, whole: int) -> str:
    if whole == 1:
        return "the one table" if part else "none of one table"
    if part == whole == 2:
        return "both tables"
    if part in (0, whole):
        return f"all {whole} tables" if part else f"none of {whole} tables"
    return f"{part} of {whole} tables"


def _loss(standing: Standing) -> str:
    size = -standing.gap
    if size == 0:
        return f"on {standing.table}, {label_of(standing.rival)} is as good"
    amount = "less than .001" if size < 0.0005 else number(size).removeprefix("0")
    is_doubtful = standing.num_seeds > 1 and not standing.is_clear
    doubt = ", which is within the spread over seeds" if is_doubtful else ""
    return f"on {standing.table}, {label_of(standing.rival)} is better by {amount}{doubt}"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]




@dataclasses.dataclass(frozen=True, kw_only=True)
class Tile:
    """A headline number.

    Args:
        value: ours, as text.
        label: what it is, and the best baseline's value.
    """

    value: str
    label: str


def tiles(scores: Scores, *, headlines: Sequence[Metric]) -> list[Tile]:
    """The first headline metric on the synthetic tasks, the second as a mean over the real tables."""
    real = [table for table in scores if table != SYNTHETIC]
    found = [(headlines[0], [SYNTHETIC], "on synthetic tasks")] if SYNTHETIC in scores else []
    if real:
        found.append((headlines[1], real, f"mean over {len(real)} real tables" if len(real) > 1 else f"on {real[0]}"))
    out = []
    for metric, tables, where in found:
        means = _means(scores, metric=metric, tables=tables)
        if OURS in means and len(means) > 1:
            rival = min((model for model in means if model != OURS), key=lambda model: metric.badness(means[model]))
            label = f"{metric.label} {where}; best baseline: {label_of(rival)} {number(means[rival])}"
            out.append(Tile(value=number(means[OURS]), label=label))
    return out


def _means(scores: Scores, *, metric: Metric, tables: Sequence[str]) -> dict[str, float]:
    """The mean over tables of the models that have a finite score on all of them."""
    rows = [table_row(scores, table=table, metric=metric) for table in tables]
    common = set.intersection(*(set(row) for row in rows))
    return {model: statistics.fmean(row[model].mean for row in rows) for model in models_of(scores) if model in common}
