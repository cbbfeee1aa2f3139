"""The report of a run: one HTML file that needs nothing else, neither network nor script (K3)."""

import dataclasses
import importlib.resources
import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from reports import alignment, exhibits, figures, regret, standings
from reports.drawing import Picture
from reports.run_folder import KindFiles, Run, read_run
from reports.standings import HEADLINES, Cell, Metric
from reports.symmetry import Symmetry, symmetry_of
from reports.verdict import AuditRow, audit_rows
from tools import files

PAGE = "report.html"
FIGURES = "figures"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """One metric over all tables.

    Args:
        metric: what the numbers are.
        rows: table name to its cells by model.
        pictures: panels of the first tables; none for a metric that is no headline.
        num_hidden: tables that have no panel.
    """

    metric: Metric
    rows: Mapping[str, Mapping[str, Cell]]
    pictures: Sequence[Picture]
    num_hidden: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindSection:
    """Everything the page shows of one model."""

    part: KindFiles
    audits: Sequence[AuditRow]
    subject: Mapping[str, Any]
    models: Sequence[str]
    tables: Sequence[ScoreTable]
    sentences: Sequence[str]
    training: Sequence[Picture]
    masks: Sequence[Picture]
    readings: Sequence[Picture]
    symmetry: Symmetry | None
    skill: Sequence[Picture]
    skill_sentences: Sequence[str]
    cost: Sequence[Picture]
    tiles: Sequence[standings.Tile]
    facts: Sequence[alignment.Fact]
    num_seeds: int
    throughput: str

    def pictures(self) -> list[Picture]:
        """All of them."""
        drawn = [picture for table in self.tables for picture in table.pictures]
        return [*self.training, *self.masks, *self.readings, *self.skill, *self.cost, *drawn]


def render(folder: pathlib.Path) -> pathlib.Path:
    """Writes `report.html` and `figures/*.svg` into a run folder, whole or half-done.

    Returns:
        The page's path. It is written last, so a page always belongs to the figures beside it.

    Raises:
        Failure: NOT_WRITABLE or DISK_FULL.
    """
    run = read_run(folder)
    sections = [_section(part, run) for part in run.kinds]
    cost = [figures.seconds_picture(run.seconds, name="seconds")] if run.seconds else []
    pictures = [*cost, *(picture for section in sections for picture in section.pictures())]
    text = page_text(run, sections=sections, cost=cost)
    for picture in pictures:
        files.write_bytes(folder / FIGURES / f"{picture.name}.svg", picture.standalone().encode())
    kept = {f"{picture.name}.svg" for picture in pictures}
    for path in (folder / FIGURES).glob("*.svg"):
        if path.name not in kept:
            path.unlink()
    files.write_bytes(folder / PAGE, text.encode())
    return folder / PAGE


def page_text(run: Run, *, sections: Sequence[KindSection], cost: Sequence[Picture]) -> str:
    """The page as one string; every text of the run is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "label": standings.label_of,
        "spread": _spread,
        "count": _count,
        "figure": _figure,
        "size": _size,
    }
    return environment.get_template("page.html.jinja").render(
        run=run,
        sections=sections,
        cost=cost,
        config=json.dumps(run.config, indent=2, ensure_ascii=False) if run.config is not None else None,
    )


def _template(name: str) -> str:
    return (importlib.resources.files("reports") / name).read_text(encoding="utf-8")


def _section(part: KindFiles, run: Run) -> KindSection:
    ordinary, regrets = regret.split(part.scores)
    part = dataclasses.replace(part, scores=ordinary)
    metrics = standings.metrics_of(part.scores)
    headlines = HEADLINES[part.kind]
    ordered = sorted(metrics, key=lambda metric: (headlines + (metric.key,)).index(metric.key))
    views = part.views or {}
    seeds = [len(entry["per_seed"]) for table in part.scores.values() for by in table.values() for entry in by.values()]
    audit = part.audit or {}
    return KindSection(
        part=part,
        audits=audit_rows(audit),
        subject=audit.get("subject") or {},
        models=standings.models_of(part.scores),
        tables=[_score_table(part, metric, is_headline=metric.key in headlines) for metric in ordered],
        sentences=[
            standings.verdict_sentence(part.scores, metric=metric) for metric in ordered if metric.key in headlines
        ],
        training=exhibits.training_pictures(part),
        masks=exhibits.mask_pictures(views, kind=part.kind),
        readings=exhibits.reading_pictures(views, kind=part.kind),
        symmetry=symmetry_of(views, kind=part.kind),
        skill=regret.regret_pictures(regrets, kind=part.kind),
        skill_sentences=regret.sentences(regrets, config=run.config),
        cost=[*exhibits.throughput_pictures(part), *exhibits.growth_pictures(views, kind=part.kind)],
        tiles=standings.tiles(part.scores, headlines=[standings.metric_of(key) for key in headlines]),
        facts=alignment.aligned_facts(part.kind, run.config),
        num_seeds=max(seeds, default=0),
        throughput=_throughput(part.curves),
    )


def _score_table(part: KindFiles, metric: Metric, *, is_headline: bool) -> ScoreTable:
    rows = {table: standings.table_row(part.scores, table=table, metric=metric) for table in part.scores}
    rows = {table: cells for table, cells in rows.items() if cells}
    drawn = list(rows)[: exhibits.MAX_DRAWN_TABLES] if is_headline else []
    pictures = exhibits.score_pictures(part, metric=metric, tables=drawn)
    return ScoreTable(metric=metric, rows=rows, pictures=pictures, num_hidden=len(rows) - len(pictures))


def _spread(value: float) -> str:
    return "" if math.isnan(value) else f"± {standings.number(value)}"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "not recorded"


def _figure(value: Any) -> str:
    """A figure of an audit: counts as they are, small numbers with their exponent."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _size(value: float) -> str:
    """Two digits, small numbers with their exponent; an exact 0 is 0."""
    return f"{value:.2g}"


def _throughput(curves: Mapping[str, figures.Curve]) -> str:
    """Tasks per second: the median over the records of the training loop."""
    curve = curves.get("train/tasks_per_second")
    return f"{statistics.median(curve.values):,.1f}" if curve else "not recorded"
