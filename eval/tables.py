"""Real tables: scikit-learn's own, folders of CSV files, their checks, and the cut into context and query rows.

A folder of tables holds `manifest.json`, a list of objects, and the files that they name:

    [{"name": "heart", "task": "cls", "file": "data/heart.csv.gz", "cat": ["sex"], "group": "core", "sha256": "..."}]

`task` is `cls` or `reg`; `cat` lists the columns of categories (default none); `group` and `sha256` (of the CSV, before
any compression) are optional, other keys are ignored. A file is a CSV, or a gzipped one named `.gz`, with a header and
the answers in the column `target`; an empty cell is a missing value and nothing else is. No two columns share a name,
and every row has a cell for each. Columns outside `cat` are numbers (booleans become 0 and 1). Levels and class ids are
not taken from here: `split` takes them from context rows.
"""

import csv
import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import zlib
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets, model_selection

from priors.task import ColumnKind, Episode, Task, TaskKind
from tools import paths
from tools.failure import ExitCode, Failure

MANIFEST = "manifest.json"
TARGET = "target"
SYNTHETIC = "synthetic"
"""The name under which held-out synthetic tasks are scored; no real table may have it."""

_TASKS = {"cls": TaskKind.CLASSIFICATION, "reg": TaskKind.REGRESSION}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A real table before it is cut.

    Args:
        name: as it appears in results.
        kind: classification or regression.
        frame: R rows, C columns; missing values as pandas sees them.
        target: [R] class labels of any type (text included), or numbers.
        kinds: [C] values of `ColumnKind`; categories and ordinals may hold text, numbers may not.
        group: a label for averages, such as "core"; may be empty.
    """

    name: str
    kind: TaskKind
    frame: pd.DataFrame
    target: np.ndarray
    kinds: np.ndarray
    group: str = ""


def load_sklearn_tables(kind: TaskKind) -> list[Table]:
    """The tables that scikit-learn ships: four of classification, one of regression. All columns are numbers."""
    loaders = {
        TaskKind.CLASSIFICATION: {
            "breast_cancer": datasets.load_breast_cancer,
            "iris": datasets.load_iris,
            "wine": datasets.load_wine,
            "digits": datasets.load_digits,
        },
        TaskKind.REGRESSION: {"diabetes": datasets.load_diabetes},
    }
    tables = []
    for name, load in loaders[kind].items():
        frame, target = load(return_X_y=True, as_frame=True)
        kinds = np.full(frame.shape[1], ColumnKind.NUMBER, np.int8)
        tables.append(Table(name=name, kind=kind, frame=frame, target=target.to_numpy(), kinds=kinds, group="sklearn"))
    return tables


def load_folder(folder: pathlib.Path, *, kind: TaskKind | None = None, group: str | None = None) -> list[Table]:
    """Loads and checks every table of a folder, in the manifest's order.

    Args:
        folder: holds `manifest.json` (see the module docstring).
        kind: only tables of this kind; None for both.
        group: only tables of this group; None for all.

    Raises:
        Failure: NOT_FOUND (folder, manifest, file), TABLE_FILE (manifest or file that cannot be read or do not agree),
            BAD_NAME, and what `check_table` raises. One bad table refuses the folder: no part of it is scored.
    """
    entries = _read_manifest(folder)
    names = [entry["name"] for entry in entries]
    for name in names:
        paths.checked_name(name, what=f"table in {folder / MANIFEST}")
        if names.count(name) > 1 or name == SYNTHETIC:
            why = "reserved for held-out tasks" if name == SYNTHETIC else "given twice"
            raise Failure(ExitCode.BAD_NAME, f"table name {name!r} in {folder / MANIFEST} is {why}: rename the table")
    of_kind = [entry for entry in entries if kind in (None, _TASKS[entry["task"]])]
    tables = [_read_table(folder, entry) for entry in of_kind if group in (None, entry.get("group"))]
    for table in tables:
        check_table(table)
    return tables


def _read_manifest(folder: pathlib.Path) -> list[dict[str, Any]]:
    path = folder / MANIFEST
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        what = f"--tables {folder} holds no {MANIFEST} that can be opened ({error.strerror})"
        mend = "give a folder that holds one, with the tables that it lists"
        raise Failure(ExitCode.NOT_FOUND, f"{what}: {mend}") from error
    except ValueError as error:
        raise Failure(ExitCode.TABLE_FILE, f"table manifest {path} is not JSON ({error}): mend it there") from error
    if not isinstance(entries, list):
        raise Failure(ExitCode.TABLE_FILE, f"table manifest {path} is not a list: write one object for each table")
    for position, entry in enumerate(entries):
        _check_entry(entry, where=f"entry {position} of table manifest {path}")
    return entries


def _check_entry(entry: Any, *, where: str) -> None:
    if not isinstance(entry, dict):
        raise Failure(ExitCode.TABLE_FILE, f"{where} is not an object: write name, task and file of one table")
    for key in ("name", "task", "file"):
        if not isinstance(entry.get(key), str):
            raise Failure(ExitCode.TABLE_FILE, f"{where} has {key} {entry.get(key)!r}: give a string")
    if entry["task"] not in _TASKS:
        raise Failure(ExitCode.TABLE_FILE, f"{where} has task {entry['task']!r}: choose cls or reg")
    categories = entry.get("cat", [])
    if not isinstance(categories, list) or not all(isinstance(name, str) for name in categories):
        raise Failure(ExitCode.TABLE_FILE, f"{where} has cat {categories!r}: give a list of column names")


def _read_table(folder: pathlib.Path, entry: dict[str, Any]) -> Table:
    path, kind, categories = folder / entry["file"], _TASKS[entry["task"]], entry.get("cat", [])
    if not path.resolve().is_relative_to(folder.resolve()):
        raise Failure(ExitCode.TABLE_FILE, f"table {entry['name']} has file {entry['file']!r}: keep it inside {folder}")
    if not path.is_file():
        mend = f"restore it, or drop the table from {MANIFEST}"
        raise Failure(ExitCode.NOT_FOUND, f"file {path} of table {entry['name']} is missing: {mend}")
    text = {name: "str" for name in categories}
    if kind is TaskKind.CLASSIFICATION:
        text[TARGET] = "str"
    try:
        body = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if entry.get("sha256") not in (None, hashlib.sha256(body).hexdigest()):
            raise ValueError(f"its sha256 is not the one in {MANIFEST}")
        _check_cells(body, path=path)
        frame = pd.read_csv(
            io.BytesIO(body), dtype=text, keep_default_na=False, na_values=[""], low_memory=False, index_col=False
        )
    except pd.errors.EmptyDataError as error:
        raise Failure(ExitCode.TABLE_EMPTY, f"table {entry['name']} ({path}) is an empty file: add rows") from error
    except (ValueError, OSError, EOFError, zlib.error, csv.Error) as error:
        mend = f"restore it, or mend {folder / MANIFEST}"
        raise Failure(ExitCode.TABLE_FILE, f"file {path} cannot be read as a table ({error}): {mend}") from error
    for name in (TARGET, *categories):
        if name not in frame:
            raise Failure(ExitCode.TABLE_FILE, f"file {path} has no column {name!r}: name the columns as they are")
    target = frame.pop(TARGET).to_numpy()
    kinds = [ColumnKind.CATEGORY if name in categories else ColumnKind.NUMBER for name in frame]
    group = str(entry.get("group", ""))
    return Table(name=entry["name"], kind=kind, frame=frame, target=target, kinds=np.array(kinds, np.int8), group=group)


def _check_cells(body: bytes, *, path: pathlib.Path) -> None:
    """Refuses what pandas mends in silence: a second column of a name (renamed), rows of other lengths (cut, filled).

    Raises:
        Failure: TABLE_FILE, with the line and the column.
        ValueError: not UTF-8.
    """
    reader = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""))
    rows = (row for row in reader if len(row) > 1 or "".join(row).strip())  # pandas skips blank lines, too
    header = next(rows, [])
    for position, name in enumerate(header):
        first = header.index(name)
        if first < position:
            found = f"columns {first + 1} and {position + 1} are both named {name!r}"
            mend = "rename or delete one (a copy of the answers must go)"
            raise Failure(ExitCode.TABLE_FILE, f"line {reader.line_num} of file {path}: {found}: {mend}")
    for row in rows:
        if len(row) != len(header):
            last = min(len(row), len(header))
            found = f"{len(row)} cells for {len(header)} columns, the last common column is {header[last - 1]!r}"
            mend = "give every column one cell (an empty one is a missing value; quote a cell that holds a comma)"
            raise Failure(ExitCode.TABLE_FILE, f"line {reader.line_num} of file {path} has {found}: {mend}")


def check_table(table: Table) -> None:
    """Refuses a table that cannot be scored.

    Raises:
        Failure: TABLE_EMPTY (no column, or fewer than 4 rows), TABLE_TEXT_COLUMN (text in a number column, naming the
            first such value), TABLE_EMPTY_COLUMN, TABLE_LABELS (a missing label; a regression label that is no finite
            number), TABLE_ONE_CLASS (fewer than two classes of two rows or more).
    """
    rows, columns = table.frame.shape
    if rows < 4 or columns == 0:
        found = f"{rows} rows and {columns} features"
        raise Failure(ExitCode.TABLE_EMPTY, f"table {table.name} has {found}: at least 4 and 1 are needed")
    for position, name in enumerate(table.frame):
        is_number = table.kinds[position] == ColumnKind.NUMBER
        values = _numbers(table, position) if is_number else table.frame.iloc[:, position]
        if pd.isna(values).all():
            raise Failure(ExitCode.TABLE_EMPTY_COLUMN, f"column {name!r} of table {table.name} has no value: drop it")
    labels = _labels(table)
    if table.kind is TaskKind.CLASSIFICATION:
        classes, sizes = np.unique(labels, return_counts=True)
        if (sizes > 1).sum() < 2:
            found = ", ".join(f"{label!s} in {size} rows" for label, size in zip(classes[:3], sizes, strict=False))
            mend = "at least two classes of two rows are needed"
            raise Failure(ExitCode.TABLE_ONE_CLASS, f"table {table.name} has only class {found}: {mend}")


def check_limits(table: Table, *, max_classes: int, max_features: int) -> None:
    """Refuses a table that a model cannot take.

    Raises:
        Failure: OVER_LIMIT, with the table's count and the model's limit.
    """
    counts = {"features": (table.frame.shape[1], max_features)}
    if table.kind is TaskKind.CLASSIFICATION:
        counts["classes"] = (len(np.unique(_labels(table))), max_classes)
    for what, (found, limit) in counts.items():
        if found > limit:
            why = f"{found} {what}, the model takes {limit}: drop or merge {what}, or use a model with a higher limit"
            raise Failure(ExitCode.OVER_LIMIT, f"table {table.name} has {why}")


def split(table: Table, *, seed: int, max_context: int = 1000, max_query: int = 1000) -> Episode:
    """Cuts a table in two halves, stratified by class, and each half down to a maximum, stratified too.

    Levels and classes come from the context rows alone: a level that only a query has gets the code `level_counts`, one
    past the known ones; query rows whose class the context lacks are left out and counted in
    `task.parameters["dropped_queries"]`. A class with a single row cannot be stratified and may fall on either side.

    Returns:
        An episode of family "real"; context rows first.

    Raises:
        Failure: what `check_table` raises; TABLE_ONE_CLASS if the context got a single class.
    """
    check_table(table)
    labels = _labels(table)
    strata = labels if table.kind is TaskKind.CLASSIFICATION else np.zeros(len(labels))
    context, query = _halve(np.arange(len(labels)), strata, size=len(labels) // 2, seed=seed)
    context = _cap(context, strata, size=max_context, seed=seed)
    query = _cap(query, strata, size=max_query, seed=seed)
    parameters: dict[str, Any] = {"table": table.name, "dropped_queries": 0}
    num_classes = 0
    if table.kind is TaskKind.CLASSIFICATION:
        classes = np.unique(labels[context])
        if len(classes) < 2:
            message = f"context of table {table.name}, seed {seed}, has one class: add rows of the others"
            raise Failure(ExitCode.TABLE_ONE_CLASS, message)
        known = np.isin(labels[query], classes)
        parameters |= {"dropped_queries": int((~known).sum()), "classes": [str(name) for name in classes]}
        query, num_classes = query[known], len(classes)
        labels = np.searchsorted(classes, labels)
    rows = np.concatenate([context, query])
    x, level_counts = _features(table, rows=rows, num_context=len(context))
    task = Task(
        x=x,
        y=labels[rows].astype(np.float32),
        column_kinds=np.asarray(table.kinds, np.int8),
        level_counts=level_counts,
        kind=table.kind,
        num_classes=num_classes,
        family="real",
        seed=seed,
        parameters=parameters,
    )
    return Episode(task=task, num_context=len(context))


def _halve(rows: np.ndarray, strata: np.ndarray, *, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A stratified random part of `size` rows, and the rest."""
    _, codes, sizes = np.unique(strata[rows], return_inverse=True, return_counts=True)
    codes = np.where(sizes[codes] < 2, sizes.argmax(), codes)  # a lone row joins the largest stratum
    num_strata = len(np.unique(codes))
    stratify = codes if 1 < num_strata <= min(size, len(rows) - size) else None
    return tuple(model_selection.train_test_split(rows, train_size=size, random_state=seed, stratify=stratify))


def _cap(rows: np.ndarray, strata: np.ndarray, *, size: int, seed: int) -> np.ndarray:
    return rows if len(rows) <= size else _halve(rows, strata, size=size, seed=seed)[0]


def _features(table: Table, *, rows: np.ndarray, num_context: int) -> tuple[np.ndarray, np.ndarray]:
    """x [R, C] float32 in the order of `rows`, and level counts [C] of the context (0 for numbers)."""
    x = np.empty((len(rows), table.frame.shape[1]), np.float64)
    level_counts = np.zeros(x.shape[1], np.int32)
    for position in range(x.shape[1]):
        if table.kinds[position] == ColumnKind.NUMBER:
            x[:, position] = _numbers(table, position)[rows]
            continue
        values = _sortable(table.frame.iloc[:, position].to_numpy()[rows])
        missing = pd.isna(table.frame.iloc[:, position]).to_numpy()[rows]
        levels = np.unique(values[:num_context][~missing[:num_context]])
        codes = pd.Index(levels).get_indexer(pd.Index(values))
        x[:, position] = np.where(missing, np.nan, np.where(codes < 0, len(levels), codes))
        level_counts[position] = len(levels)
    with np.errstate(over="ignore"):  # beyond float32 is ±inf, which is legal
        return x.astype(np.float32), level_counts


def _numbers(table: Table, position: int) -> np.ndarray:
    """[R] float64 of a number column; Failure TABLE_TEXT_COLUMN names the first value that is none."""
    column = table.frame.iloc[:, position]
    dated = pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column)
    numbers = pd.to_numeric(column.astype("str") if dated else column, errors="coerce")
    text = (pd.isna(numbers) & ~pd.isna(column)).to_numpy()
    if text.any():
        value = column.iloc[int(text.argmax())]
        mend = "declare the column a category, or leave missing cells empty"
        raise Failure(
            ExitCode.TABLE_TEXT_COLUMN, f"column {column.name!r} of table {table.name} has text {value!s:.40}: {mend}"
        )
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _labels(table: Table) -> np.ndarray:
    """[R] sortable class labels, or float64 targets that fit float32; Failure TABLE_LABELS names the first bad one."""
    target = pd.Series(np.asarray(table.target))
    if table.kind is TaskKind.CLASSIFICATION:
        bad, labels = pd.isna(target).to_numpy(), _sortable(target.to_numpy())
        mend = "give every row a label or drop it"
    else:
        labels = pd.to_numeric(target, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        bad = ~(np.abs(labels) <= np.finfo(np.float32).max)
        mend = "regression needs a finite number in every row (for text labels set the task to classification)"
    if len(labels) != len(table.frame):
        counts = f"{len(labels)} labels: each of its {len(table.frame)} rows needs one"
        raise Failure(ExitCode.TABLE_LABELS, f"table {table.name} has {counts}")
    if bad.any():
        row = int(bad.argmax())
        value = "missing" if pd.isna(target.iloc[row]) else f"{target.iloc[row]!s:.40}"
        raise Failure(ExitCode.TABLE_LABELS, f"label of row {row + 1} of table {table.name} is {value}: {mend}")
    return labels


def _sortable(values: np.ndarray) -> np.ndarray:
    """Numbers and booleans as they are, everything else as text."""
    return values if values.dtype.kind in "iufb" else values.astype(str)
