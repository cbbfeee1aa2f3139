"""Measures how far a prior is from real tables, and what tells them apart.

    bazel run //priors:realism -- DIR --tables DIR [--peer FILE.npz ...] [--json FILE] [--out DIR] [--workers W]

It writes one page below `--root` and logs it, with the distances of all families as metrics, to MLflow.

DIR is a shard set, `--tables` a folder of tables (its format: `eval.tables`), and each FILE the tasks of another
package's prior, as `//eval:sample_peer_prior --out` writes them.
"""

import collections
import dataclasses
import json
import math
import os
import pathlib
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import rich.console
import rich.table
import tyro

from eval import tables
from priors import table_parts
from priors.realism_distance import RealParts
from priors.realism_measures import measure
from priors.realism_study import Sample, Study, TableHalf, floor, measured, plane, rows_of, weighing
from priors.shards import ShardSet
from priors.task import ColumnKind, Task, TaskKind
from reports.drawing import Picture
from reports.realism_figures import distance_picture, plane_picture, separation_picture
from reports.realism_page import realism_text
from tools import files, paths, progress, stores
from tools.config import digest, parse_flags
from tools.failure import BadInput, ExitCode, run_program
from tools.tracking import Tracker, checked_uri

_PROGRAM = "bazel run //priors:realism --"
_FEWEST_TABLES = 5
_FEWEST_TASKS = 10
_POOL = 25  # tasks read for each one that is used, so that sizes can be matched
_MAX_SEED = 2**32 - 1  # of a forest
_REAL = "real"
_EXPERIMENT, _PAGE, _RECORD = "priors", "realism.html", "realism.json"
_LOG_COLUMNS = 140
_MOST_ROWS = 2000  # of a real table, before parts are taken


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealismFlags:
    """Measures the distance between a prior and real tables, by meta-features that include P(y|x) landmarkers.

    Prints and writes, for the mixture, each family and other packages' priors: the proxy A-distance of a held-out
    domain classifier (0: not told apart, 2: always; beside it real tables against real tables), the share of real
    tables with a synthetic neighbour (½ is what real tables are to each other), and the meta-features that tell real
    from synthetic.
    """

    folder: tyro.conf.Positional[str]
    """Folder or URI of the shard set; its kind of task decides which tables are used."""
    tables: pathlib.Path
    """Folder of real tables with their manifest.json."""
    peer: tuple[pathlib.Path, ...] = ()
    """Files of tasks of other priors (classification); files named alike up to a hyphen are one prior."""
    half: tyro.conf.EnumChoicesFromValues[TableHalf] = TableHalf.ALL
    """Which tables are compared: all, or one of two fixed halves (by name): choose on one, report on the other."""
    num_tasks: int = 800
    """Synthetic tasks measured, evenly spread over the families, and as many of each other prior as of one family."""
    parts: int = 4
    """Parts taken of each real table."""
    workers: int = 1
    """Processes that measure; each uses one core."""
    seed: int = 0
    """Of parts, folds and forests."""
    json: pathlib.Path | None = None
    """Write everything measured here."""
    out: pathlib.Path | None = None
    """Folder for the pictures (SVG)."""
    root: pathlib.Path | None = None
    """The folder of run folders, where the page and mlflow.db lie (default: runs/ in the workspace)."""
    tracking_uri: str | None = None
    """An MLflow server or database (default: mlflow.db under --root)."""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    flags = _checked(parse_flags(RealismFlags, argv, program=_PROGRAM))
    root = paths.user_path(flags.root) if flags.root else paths.default_root()
    paths.writable_folder(root, flag="--root")
    shard_set = ShardSet.open(stores.user_location(flags.folder))
    pool = _pool(shard_set, flags)
    study = _study(flags, pool=pool, tasks_of=_real_tables(flags, kind=shard_set.kind))
    record: dict[str, Any] = {"shards": shard_set.digest, "kind": shard_set.kind.value, "half": flags.half.value}
    record |= {"tables": len(study.real.tables()), "parts": len(study.real.owners), "compared": study.size()}
    record |= {"seed": flags.seed, "rows": []}
    todo = list(rows_of(study))
    with progress.meter("compare", total=len(todo) + 2, unit="priors") as report:
        for name, tasks in todo:
            record["rows"].append(measured(study, name=name, tasks=tasks))
            report(len(record["rows"]), name)
        record["floor"] = floor(study)
        report(len(todo) + 1, "real against real")
        record["weights"] = weighing(study) if flags.half is TableHalf.ALL else None
        report(len(todo) + 2, "weights")
    record["plane"] = plane(study)
    _show(record)
    if flags.json is not None:
        files.write_json(paths.user_path(flags.json), record)
    distances, separations = _pictures(record)
    if flags.out is not None:
        for picture in (*distances, *separations):
            path = paths.user_path(flags.out) / f"{picture.name}.svg"
            files.write_bytes(path, picture.standalone().encode())
            print(path)
    run = root / f"realism-{digest(record)[:16]}"
    text = realism_text(record, distances=distances, separations=separations)
    files.write_bytes(run / _PAGE, text.encode())
    files.write_json(run / _RECORD, record)
    _log(record, run=run, place=str(shard_set.folder), uri=flags.tracking_uri)
    print(f"page: {run / _PAGE}")
    way = "bazel run //reports:ui" + (f" -- --root {root}" if flags.root else "")
    print(f"MLflow: {way if flags.tracking_uri is None else 'your store'}, experiment {_EXPERIMENT}, run {run.name}")


def _checked(flags: RealismFlags) -> RealismFlags:
    for name, value, least in (
        ("--num-tasks", flags.num_tasks, _FEWEST_TASKS),
        ("--parts", flags.parts, 1),
        ("--workers", flags.workers, 1),
        ("--seed", flags.seed, 0),
    ):
        if value < least:
            raise BadInput(ExitCode.BAD_FLAG, f"{name} is {value}: give {least} or more")
    if flags.seed > _MAX_SEED:
        raise BadInput(ExitCode.BAD_FLAG, f"--seed is {flags.seed}: give 2^32−1 or less")
    cores = os.cpu_count() or 1
    if flags.workers > cores:
        what = f"--workers {flags.workers} is more than the {cores} cores of this machine"
        raise BadInput(ExitCode.TOO_FEW_RESOURCES, f"{what}: give {cores} or fewer")
    if flags.json is not None:
        paths.writable_folder(paths.user_path(flags.json).parent, flag="--json")
    if flags.out is not None:
        paths.writable_folder(paths.user_path(flags.out), flag="--out")
    if flags.tracking_uri is not None:
        checked_uri(flags.tracking_uri)
    return flags


def _pool(shard_set: ShardSet, flags: RealismFlags) -> list[Task]:
    """Tasks of randomly picked groups, enough for all families."""
    pool: list[Task] = []
    for index in np.random.default_rng([flags.seed, 10]).permutation(len(shard_set.groups)):
        pool += shard_set.group(int(index)).tasks()
        if len(pool) >= _POOL * flags.num_tasks:
            break
    return pool


def _real_tables(flags: RealismFlags, *, kind: TaskKind) -> list[Task]:
    """The tables of one kind and half, as tasks.

    Raises:
        BadInput: TABLE_EMPTY for too few of them; and what `eval.tables` raises.
    """
    folder = paths.user_path(flags.tables)
    found = [table for table in tables.load_folder(folder, kind=kind) if flags.half.holds(table.name)]
    if len(found) < _FEWEST_TABLES:
        counts = f"has {len(found)} tables of {kind} in half {flags.half}"
        raise BadInput(ExitCode.TABLE_EMPTY, f"--tables {folder} {counts}: give {_FEWEST_TABLES} or more")
    most = _MOST_ROWS // 2
    return [tables.split(table, seed=flags.seed, max_context=most, max_query=most).task for table in found]


def _study(flags: RealismFlags, *, pool: list[Task], tasks_of: list[Task]) -> Study:
    """Takes parts of equal sizes of everything and measures them."""
    families = collections.Counter(task.family for task in pool)
    enough = _FEWEST_TASKS * len(families)
    if flags.num_tasks < enough:
        what = f"--num-tasks {flags.num_tasks} over {len(families)} families is fewer than {_FEWEST_TASKS} of each"
        raise BadInput(ExitCode.BAD_FLAG, f"{what}: give {enough} or more")
    portion = math.ceil(flags.num_tasks / len(families))
    limits = table_parts.limits_of(pool)
    parts, owners = table_parts.real_parts(tasks_of, limits=limits, count=flags.parts, seed=flags.seed)
    sets = {_REAL: parts}
    for name in sorted(families):
        of_family = [task for task in pool if task.family == name]
        sets[name] = _matched(of_family, parts, count=portion, seed=flags.seed)
    for name, tasks in _peers(flags, kind=pool[0].kind):
        sets[name] = _matched(tasks, parts, count=portion, seed=flags.seed)
    for name in [name for name, tasks in sets.items() if len(tasks) < _FEWEST_TASKS]:
        progress.say(f"{name} has {len(sets.pop(name))} usable tasks and is left out: a larger DIR has more")
    if len(sets) < 2:
        place = stores.without_secrets(flags.folder)
        what = f"shard set {place} has fewer than {_FEWEST_TASKS} usable tasks of every family"
        raise BadInput(ExitCode.SHARD_MISSING, f"{what}: generate a larger set")
    every = [task for tasks in sets.values() for task in tasks]
    with progress.meter("measure", total=len(every), unit="tables") as report:
        vectors = iter(measure(every, seed=flags.seed, workers=flags.workers, report=report))
    values = {}
    for name, tasks in sets.items():
        found = [next(vectors) for _ in tasks]
        names = found[0].names
        values[name] = np.array([vector.values for vector in found])
    real = RealParts(values=values.pop(_REAL), owners=owners)
    samples = [Sample(name=name, values=part, share=families.get(name, 0) / len(pool)) for name, part in values.items()]
    table_names = tuple(task.parameters["table"] for task in tasks_of)
    return Study(real=real, table_names=table_names, feature_names=names, samples=tuple(samples), seed=flags.seed)


def _matched(tasks: list[Task], parts: list[Task], *, count: int, seed: int) -> list[Task]:
    """Parts of at most `count` tasks, of the sizes of the real parts in random order."""
    order = np.random.default_rng([seed, 11]).permutation(len(parts))
    sizes = [table_parts.size_of(parts[i]) for i in np.resize(order, count)]
    return table_parts.matching_parts(tasks, sizes=sizes, limits=table_parts.limits_of(parts), seed=seed)


def _peers(flags: RealismFlags, *, kind: TaskKind) -> Iterator[tuple[str, list[Task]]]:
    """Name and tasks of every other prior.

    Raises:
        BadInput: BAD_FLAG for a shard set of regression, NOT_FOUND, TABLE_FILE.
    """
    if flags.peer and kind is TaskKind.REGRESSION:
        raise BadInput(ExitCode.BAD_FLAG, f"--peer {flags.peer[0]} holds classification tasks, DIR {kind}: drop one")
    found: dict[str, list[Task]] = {}
    for path in (paths.user_path(path) for path in flags.peer):
        name = f"peer {path.stem.partition('-')[0]}"
        found.setdefault(name, []).extend(_read_peer(path, name=name))
    yield from found.items()


def _read_peer(path: pathlib.Path, *, name: str) -> Iterator[Task]:
    if not path.is_file():
        raise BadInput(
            ExitCode.NOT_FOUND, f"--peer {path} does not exist: write it with //eval:sample_peer_prior --out"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            pairs = [(arrays[f"x_{i}"], arrays[f"y_{i}"]) for i in range(len(arrays.files) // 2)]
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        mend = "write it anew with //eval:sample_peer_prior --out"
        raise BadInput(ExitCode.TABLE_FILE, f"--peer {path} is no file of tasks ({error}): {mend}") from error
    for x, y in pairs:
        classes, codes = np.unique(y, return_inverse=True)
        yield Task(
            x=x.astype(np.float32),
            y=codes.astype(np.float32),
            column_kinds=np.full(x.shape[1], ColumnKind.NUMBER, np.int8),
            level_counts=np.zeros(x.shape[1], np.int32),
            kind=TaskKind.CLASSIFICATION,
            num_classes=len(classes),
            family=name,
        )


def _show(record: dict[str, Any]) -> None:
    console = rich.console.Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS, highlight=False)
    parts = f"{record['parts']} parts, {record['compared']} at a time"
    table = rich.table.Table(title=f"{record['kind']}: {record['tables']} tables ({record['half']}), {parts}")
    for heading in ("prior", "tasks", "distance", "95 %", "coverage", "95 %"):
        table.add_column(heading, justify="left" if heading == "prior" else "right")
    for row in record["rows"]:
        table.add_row(row["name"], str(row["tasks"]), *_cells(row["distance"]), *_cells(row["coverage"]))
    table.add_row("real against real", "", *_cells(record["floor"]), "0.50", "")
    console.print(table)
    for row in record["rows"]:
        if "groups" in row:
            by_group = ", ".join(f"{group} {found['value']:.2f}" for group, found in row["groups"].items())
            console.print(f"{row['name']}, distance by each group of meta-features alone: {by_group}")
    for part in record["rows"][0].get("separations", ())[:12]:
        word, share = ("more", part["above"]) if part["above"] > 0.5 else ("less", 1 - part["above"])
        quantiles = f"median {part['real'][1]:.3g} against {part['synthetic'][1]:.3g}"
        line = f"  real tables have {word} {part['name']}: in {share:.2f} of pairs, {quantiles}"
        console.print(line)
    if record["weights"]:
        _show_weights(console, record["weights"])


def _cells(estimate: dict[str, float]) -> tuple[str, str]:
    return f"{estimate['value']:.2f}", f"{estimate['low']:.2f} … {estimate['high']:.2f}"


def _show_weights(console: rich.console.Console, found: dict[str, Any]) -> None:
    table = rich.table.Table(title="Weights nearest to one half of the tables, judged on the other half")
    for heading in ("weights", *found["families"], "MMD² (choosing)", "MMD² (other)", "distance", "coverage"):
        table.add_column(heading, justify="right")
    for title in ("present", "nearest"):
        part = found[title]
        shares = [f"{part['shares'][name]:.2f}" for name in found["families"]]
        gaps = [f"{part[key]:.4f}" for key in ("choosing_discrepancy", "reporting_discrepancy")]
        table.add_row(title, *shares, *gaps, *(f"{part[key]['value']:.2f}" for key in ("distance", "coverage")))
    console.print(table)


def _pictures(record: dict[str, Any]) -> tuple[list[Picture], list[Picture]]:
    """Where the priors lie, and what tells them from real tables."""
    kind = record["kind"]
    distances = [
        distance_picture(record["rows"], name=f"{kind}-distance", floor=record["floor"]),
        plane_picture(record["plane"], name=f"{kind}-plane"),
    ]
    separations = []
    for row in record["rows"]:
        if "separations" in row:
            name = f"{kind}-{row['name'].replace(' ', '-')}-separations"
            separations.append(separation_picture(row["separations"], name=name, prior=row["name"]))
    return distances, separations


def _log(record: dict[str, Any], *, run: pathlib.Path, place: str, uri: str | None) -> None:
    """Puts page, record and figures into the tracking store."""
    point = {"step": 0, **_metrics(record)}
    files.write_bytes(run / "metrics.jsonl", (json.dumps(point) + "\n").encode())
    tracker = Tracker.open(uri=uri, root=run.parent, experiment=_EXPERIMENT, run_name=run.name)
    tracker.log_params({key: record[key] for key in ("kind", "half", "tables", "parts", "compared", "seed")})
    tracker.set_tag("shards.digest", record["shards"])
    tracker.log_dataset(name=f"prior-{record['kind']}", digest=record["shards"], source=place, context="realism")
    tracker.replay(run / "metrics.jsonl")
    tracker.log_file(run / _PAGE)
    tracker.log_file(run / _RECORD)
    tracker.close()


def _metrics(record: dict[str, Any]) -> dict[str, float]:
    """Distance and coverage by prior, as a tracking store holds them."""
    out = {"real against real/distance": record["floor"]["value"]}
    for row in record["rows"]:
        for key in ("distance", "coverage"):
            estimate = row[key]
            out |= {f"{row['name']}/{key}": estimate["value"]}
            out |= {f"{row['name']}/{key} {end}": estimate[end] for end in ("low", "high")}
        out |= {f"{row['name']}/distance/{name}": found["value"] for name, found in row.get("groups", {}).items()}
    return out
