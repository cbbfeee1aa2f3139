"""Draws a page of what is inside a shard set: tasks of each family, and how their properties are distributed.

Command: `bazel run //priors:gallery -- DIR|PRESET [--kind regression] [--tasks-per-family N] [--out FILE]`

With a preset it makes a small set of that prior first, under runs/. The page is one file; it is put into MLflow too, in
the experiment "priors", with the set's digest, seed and configuration, and the figures of each family.
"""

import collections
import dataclasses
import difflib
import importlib
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import tyro

from priors.families import Family
from priors.generation import checked_seed, ensure_shards, shard_folder
from priors.group import TaskGroup
from priors.mixture import VERSION
from priors.presets import PRESETS
from priors.properties import FamilySummary, SetSummary, TaskTable, summarise, tabulate
from priors.property_text import WITHOUT_SIGNAL, TextTable, parameter_table, realised_table, size_table
from priors.recipe import ShardConfig
from priors.shards import ShardSet
from priors.specimens import MOST_OF_A_CLASS, draw_planes, most_telling, noted
from priors.task import ColumnKind, Task, TaskKind
from reports.drawing import Picture
from reports.gallery_figures import PropertyPanel, percent, properties_picture, shares_picture
from reports.gallery_page import FamilySection, Gallery, Grid, gallery_text
from reports.task_figures import Table, planes_picture, table_picture
from tools import config, files, paths, progress, stores
from tools.failure import ExitCode, Failure, run_program
from tools.tracking import Tracker, checked_uri

_EXPERIMENT = "priors"
_MAX_BYTES = 5_000_000
_MAX_TABLES = 36  # of all families together: about 2 MB
_NUM_PLANES = 4  # shown of each family
_CHOICE = 16  # planes of which the overview shows one
_GROUP_SIZE, _GROUPS_PER_PART = 16, 8  # of sets made for the page: many shapes in few tasks


@dataclasses.dataclass(frozen=True, kw_only=True)
class GalleryConfig:
    """What to draw, and where to put it."""

    source: Annotated[str, tyro.conf.Positional]
    """Folder or URI of a shard set, or a preset to make a small set from."""
    kind: tyro.conf.EnumChoicesFromValues[TaskKind | None] = None
    """With a preset: classification (if nothing is said) or regression."""
    only: tuple[str, ...] = ()
    """Show these families alone; with a preset, draw these alone."""
    tasks_per_family: int = 2
    """Tasks of the set that are drawn of each family."""
    num_tasks: int = 1024
    """With a preset: tasks of the set that is made."""
    seed: int = 0
    """With a preset: seed of that set."""
    out: pathlib.Path | None = None
    """The page (default: gallery-DIGEST/gallery.html under --root)."""
    root: pathlib.Path | None = None
    """The folder of run folders, where sets are made and mlflow.db lies (default: runs/ in the workspace)."""
    tracking_uri: str | None = None
    """An MLflow server or database (default: mlflow.db under --root)."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = config.parse_flags(GalleryConfig, argv, program="//priors:gallery")
    root = paths.user_path(flags.root) if flags.root else paths.default_root()
    _check(flags)
    paths.writable_folder(root, flag="--root")
    if flags.out:
        place = paths.user_path(flags.out)
        if place.is_dir():
            raise Failure(ExitCode.NOT_WRITABLE, f"--out {place} is a folder: give the name of a file in it")
        paths.writable_folder(place.parent, flag="--out")
    shard_set = _shard_set(flags, root=root)
    specimens: dict[str, list[Task]] = collections.defaultdict(list)
    table = tabulate(noted(_groups(shard_set), specimens=specimens, per_family=flags.tasks_per_family))
    found = _shown(summarise(table, shard_set=shard_set), flags)
    is_preset = flags.source in PRESETS and shard_set.folder != stores.user_location(flags.source)
    name = f"{flags.source}, {found.kind}" if is_preset else found.place.rstrip("/").rpartition("/")[2]
    data = gallery_text(_gallery(found, name=name, table=table, specimens=specimens)).encode()
    if len(data) > _MAX_BYTES:
        mend = "give fewer with --tasks-per-family, or fewer families with --only"
        raise Failure(ExitCode.OVER_LIMIT, f"the page has {len(data):,} bytes, more than {_MAX_BYTES:,}: {mend}")
    run = root / f"gallery-{found.digest[:16]}"
    page = paths.user_path(flags.out) if flags.out else run / "gallery.html"
    files.write_bytes(page, data)
    _log(found, page=page, run=run, uri=flags.tracking_uri)
    print(f"gallery: {page}")
    way = "bazel run //reports:ui" + (f" -- --root {root}" if flags.root else "")
    print(f"MLflow: {way if flags.tracking_uri is None else 'your store'}, experiment {_EXPERIMENT}, run {run.name}")


def _check(flags: GalleryConfig) -> None:
    """Refuses what nobody can mean, before anything is made."""
    for flag, value in {"--tasks-per-family": flags.tasks_per_family, "--num-tasks": flags.num_tasks}.items():
        if value < 1:
            raise Failure(ExitCode.BAD_FLAG, f"{flag} {value} is too small: give 1 or more")
    checked_seed(flags.seed)
    if flags.tracking_uri is not None:
        checked_uri(flags.tracking_uri)
    for name in flags.only:
        if name not in set(Family):
            near = difflib.get_close_matches(name, list(Family), n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise Failure(ExitCode.BAD_FLAG, f"--only {name} is no family: {hint}choose of {', '.join(Family)}")


def _shard_set(flags: GalleryConfig, *, root: pathlib.Path) -> ShardSet:
    """Opens the set, or makes one from a preset."""
    is_word = "/" not in flags.source and not paths.user_path(flags.source).exists()
    if is_word and flags.source in PRESETS:
        return _made(flags, root=root)
    if is_word:
        near = difflib.get_close_matches(flags.source, PRESETS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        what = f"{flags.source!r} is neither a folder nor a preset"
        raise Failure(ExitCode.UNKNOWN_PRESET, f"{what}: {hint}choose one of {', '.join(PRESETS)}, or give a folder")
    shard_set = ShardSet.open(stores.user_location(flags.source))
    if flags.kind is not None and flags.kind is not shard_set.kind:
        what = f"--kind {flags.kind} does not fit: {flags.source} holds {shard_set.kind} tasks"
        raise Failure(ExitCode.BAD_FLAG, f"{what}: leave it out, or give a preset")
    return shard_set


def _made(flags: GalleryConfig, *, root: pathlib.Path) -> ShardSet:
    preset = PRESETS[flags.source]().with_kind(flags.kind or TaskKind.CLASSIFICATION)
    prior = dataclasses.replace(preset.shards.prior, only=tuple(Family(name) for name in flags.only))
    shards = ShardConfig(prior=prior, group_size=_GROUP_SIZE, groups_per_part=_GROUPS_PER_PART)
    size = {"seed": flags.seed, "num_tasks": flags.num_tasks}
    out = shard_folder(root, shards, **size)
    with progress.meter("tasks", total=shards.rounded(flags.num_tasks), unit="tasks") as report:
        return ensure_shards(shards, out=out, report=report, **size)


def _groups(shard_set: ShardSet) -> Iterator[TaskGroup]:
    """All groups, in an order that shows specimens of the whole set; with a bar."""
    order = np.random.default_rng(0).permutation(len(shard_set.groups)).tolist()
    with progress.meter("read", total=len(order), unit="groups") as report:
        for done, index in enumerate(order):
            yield shard_set.group(index)
            report(done + 1)


def _shown(found: SetSummary, flags: GalleryConfig) -> SetSummary:
    """Only the families that were asked for; a page holds so many tables and no more."""
    held = {part.name: part for part in found.families}
    absent = [name for name in flags.only if name not in held]
    if absent:
        mend = f"choose of {', '.join(held)}"
        raise Failure(ExitCode.BAD_FLAG, f"--only {absent[0]}: the set holds no task of that family: {mend}")
    names = flags.only or tuple(held)
    if len(names) * flags.tasks_per_family > _MAX_TABLES:
        most = max(1, _MAX_TABLES // len(names))
        what = f"--tasks-per-family {flags.tasks_per_family} draws {len(names) * flags.tasks_per_family} tables"
        raise Failure(ExitCode.OVER_LIMIT, f"{what}, more than {_MAX_TABLES}: give {most}, or fewer families by --only")
    return dataclasses.replace(found, families=tuple(held[name] for name in names))


def _gallery(found: SetSummary, *, name: str, table: TaskTable, specimens: Mapping[str, Sequence[Task]]) -> Gallery:
    names = [part.name for part in found.families]
    planes, notes = _planes(found)
    sections = []
    with progress.meter("draw", total=len(names), unit="families") as report:
        for done, part in enumerate(found.families):
            sections.append(_section(part, number=done, planes=planes.get(part.name, ()), tasks=specimens[part.name]))
            report(done + 1)
    panels = _panels(table, names=names)
    return Gallery(
        name=name,
        lead=f"{found.whole.tasks:,} {found.kind} tasks of {len(names)} families, drawn with seed {found.seed}.",
        identity=f"digest {found.digest}, drawn from config {found.source}",
        tiles=_tiles(found),
        overview=_overview(planes) if planes else None,
        shares=shares_picture(
            {part.name: part.share for part in found.families},
            rejected={part.name: part.rejected_share for part in found.families},
            columns={part.name: part.columns for part in found.families},
        ),
        properties=[properties_picture(panels, families=names, name="properties")] if panels else [],
        families=sections,
        sizes=_grid(size_table(found)),
        realised=_grid(realised_table(found)),
        notes=notes,
        config=json.dumps(found.config, indent=2, ensure_ascii=False),
    )


def _planes(found: SetSummary) -> tuple[dict[str, list[Task]], list[str]]:
    """Tasks of two features of each family, and a note where none can be drawn."""
    version = found.config.get("version")
    try:
        fields = {key: value for key, value in found.config.items() if key != "version"}
        prior = config.from_json(ShardConfig, fields).prior
    except (TypeError, KeyError, ValueError):
        prior = None
    if prior is None or version != VERSION:
        why = f"the set was drawn by version {version} of the prior, and this is version {VERSION}"
        return {}, [f"Planes of two features are not drawn: {why}."]
    names = [part.name for part in found.families if part.tasks and part.name in set(Family)]
    with progress.meter("planes", total=len(names), unit="families") as report:
        out = {}
        for done, name in enumerate(names):
            out[name] = draw_planes(prior, family=name, seed=found.seed, count=_CHOICE)
            report(done + 1)
    return out, []


def _overview(planes: Mapping[str, Sequence[Task]]) -> Picture:
    """One plane of each family: the first whose target needs both features and whose classes can be seen, if any."""
    chosen = {name: most_telling(tasks) for name, tasks in planes.items()}
    has_classes = any(task.num_classes for task in chosen.values())
    wish = "needs both" + (f" and has no class above {percent(MOST_OF_A_CLASS)}" if has_classes else "")
    lead = (
        f"A task of two features of each family, of {_CHOICE} the first that {wish} if one does, made without "
        "blemishes or noise but the family's own."
    )
    return planes_picture([_table(task, title=name) for name, task in chosen.items()], name="overview", lead=lead)


def _section(part: FamilySummary, *, number: int, planes: Sequence[Task], tasks: Sequence[Task]) -> FamilySection:
    lead = f"{part.name}: tasks of two features, made without blemishes or noise but the family's own."
    panels = [_table(task, title=_plane_title(task)) for task in planes[:_NUM_PLANES]]
    pictures = [
        table_picture(_table(task, title=_title(task)), name=f"table-{number}-{index}", family=part.name)
        for index, task in enumerate(tasks)
    ]
    return FamilySection(
        name=part.name,
        caption=_caption(part.name),
        size=f"{part.tasks:,} tasks, {percent(part.share)} of the set.",
        planes=planes_picture(panels, name=f"planes-{number}", lead=lead) if panels else None,
        tables=pictures,
        parameters=_grid(parameter_table(part)),
    )


def _caption(family: str) -> str:
    """The first line of the docstring of the family's file."""
    if family not in set(Family):
        return ""
    return (importlib.import_module(f"priors.{family}").__doc__ or "").strip().split("\n")[0]


def _table(task: Task, *, title: str) -> Table:
    kinds = [ColumnKind(kind).name.lower() for kind in task.column_kinds.tolist()]
    return Table(x=task.x, y=task.y, kinds=kinds, is_class=task.kind is TaskKind.CLASSIFICATION, title=title)


def _plane_title(task: Task) -> str:
    words = [f"{task.num_classes} classes"] if task.num_classes else []
    if "relevant" in task.parameters:
        words.append(f"{min(task.parameters['relevant'], 2):.0f} of 2 relevant")
    return ", ".join(words) or "a task"


def _title(task: Task) -> str:
    """One line about a task."""
    known = {name: value for name, value in task.parameters.items() if isinstance(value, (int, float))}
    words = [f"{task.x.shape[0]} rows × {task.x.shape[1]} features"]
    words += [f"{task.num_classes} classes"] if task.num_classes else []
    words += [f"{known['relevant']:.0f} relevant"] if "relevant" in known else []
    shares = {"noise_share": "noise", "largest_class": "in the largest class", "missing": "missing"}
    words += [f"{percent(known[key])} {label}" for key, label in shares.items() if known.get(key)]
    return " · ".join([*words, f"seed {task.seed}, position {known.get('position', 0):.0f}"])


def _panels(table: TaskTable, *, names: Sequence[str]) -> list[PropertyPanel]:
    """The properties that families are compared by, those alone that are known of a task."""
    values = dict(table.values)
    if "relevant" in values:
        values["relevant_share"] = values["relevant"] / values["features"]
    by_name = {key: {name: column[table.families == name] for name in names} for key, column in values.items()}
    panels = {
        "noise_share": {"title": "Noise", "unit": "share, in tasks that have any", "has_zeros": True},
        "signal": {"title": "Signal", "unit": "standard errors that trees gain", "is_log": True},
        "relevant_share": {"title": "Relevant features", "unit": "share of the features"},
        "largest_class": {"title": "Imbalance", "unit": "share of the largest class"},
        "classes": {"title": "Classes", "unit": "classes"},
        "missing": {"title": "Missing cells", "unit": "share, in tasks that have any", "has_zeros": True},
        "features": {"title": "Features", "unit": "features", "is_log": True},
        "rows": {"title": "Rows", "unit": "rows", "is_log": True},
    }
    known = [key for key in panels if key in values and np.isfinite(values[key]).any()]
    return [PropertyPanel(values=by_name[key], **panels[key]) for key in known]


def _tiles(found: SetSummary) -> dict[str, str]:
    rows, features = (found.whole.spreads[name] for name in ("rows", "features"))
    share = found.whole.rejected_share
    tiles = {
        "tasks": f"{found.whole.tasks:,}",
        "families": str(len(found.families)),
        "rows, 5–95 %": f"{rows.low:.0f}–{rows.high:.0f}",
        "features, 5–95 %": f"{features.low:.0f}–{features.high:.0f}",
        "bytes a task": f"{found.bytes_per_task:,.0f}",
        "MB in all": f"{found.bytes / 1e6:,.1f}",
    }
    tiles |= {} if share is None else {"rejected by the filter": percent(share)}
    return tiles | ({WITHOUT_SIGNAL: f"{found.whole.without_signal:,}"} if found.whole.without_signal else {})


def _grid(text: TextTable) -> Grid:
    return Grid(columns=text.columns, rows=text.rows)


def _log(found: SetSummary, *, page: pathlib.Path, run: pathlib.Path, uri: str | None) -> None:
    """Puts the page, the figures and the set's identity into the tracking store."""
    files.write_json(run / "properties.json", found.to_json())
    point = {"step": 0, **_metrics(found)}
    files.write_bytes(run / "metrics.jsonl", (json.dumps(point) + "\n").encode())
    tracker = Tracker.open(uri=uri, root=run.parent, experiment=_EXPERIMENT, run_name=run.name)
    tracker.log_params({"config": found.config, "seed": found.seed, "kind": found.kind})
    for key, value in {"digest": found.digest, "source": found.source, "place": found.place}.items():
        tracker.set_tag(f"shards.{key}", value)
    tracker.log_dataset(name=f"prior-{found.kind}", digest=found.digest, source=found.place, context="gallery")
    tracker.replay(run / "metrics.jsonl")
    tracker.log_file(page)
    tracker.log_file(run / "properties.json")
    tracker.close()


def _metrics(found: SetSummary) -> dict[str, float]:
    """Figures by family, as a tracking store holds them."""
    out: dict[str, float] = {}
    for part in (found.whole, *found.families):
        own = {"tasks": part.tasks, "share": part.share, "rejected_share": part.rejected_share}
        own |= {f"median/{name}": spread.median for name, spread in part.spreads.items()}
        out |= {f"{part.name}/{key}": value for key, value in own.items() if value is not None and math.isfinite(value)}
    return out
