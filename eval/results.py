"""Result rows: the Arrow file, the nested tree of `summary.json`, and whether a score may be called verified (5.G).

The file is one Arrow IPC file without compression. Its columns are the fields of `ResultRow` and `status`; its metadata
are `format_version`, `weights_sha256`, `status` and `rows_sha256`, which finds damage that Arrow does not see.
Free of torch: reports read it.
"""

import dataclasses
import enum
import hashlib
import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tools import files
from tools.failure import ExitCode, Failure

FORMAT_VERSION = 1

SUBJECT_KEYS = ("weights_sha256", "config_sha256", "code_sha256", "path", "dtype", "scorer")
"""What names an audited subject; all of it has to agree."""

REQUIRED_AUDITS = (
    "leakage",
    "loader",
    "query_set",
    "query_permutation",
    "context_order",
    "mask_graph",
    "slices",
    "padding",
    "unknown_label",
    "history",
    "probabilities",
    "context_ablation",
    "paths",
    "certificate",
)
"""Without a pass of each of these, all there are, nothing is verified."""

UNAUDITED_MODELS = frozenset({"majority", "knn", "linear", "random_forest", "kernel"})
"""Baselines, which no audit concerns."""

AUDITED_MODEL = "veritab"
"""The model whose weights the audit judges; no other model's row is ever verified."""


class Status(enum.StrEnum):
    """What a score may be called."""

    VERIFIED = "verified"
    UNVERIFIED = "not-yet-verified"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One score.

    Args:
        kind: "classification" or "regression".
        table: a real table's name, or "synthetic".
        model: "veritab", "untrained" or a baseline's name.
        seed: of the split (real), or the number of the set of episodes (synthetic).
        metric: as `scores` names it, or "seconds".
        value: mean over the episodes in which the metric is defined; NaN if there is none.
        num_episodes: how many those are.
        num_undefined: how many were left out because the answers leave the metric undefined.
    """

    kind: str
    table: str
    model: str
    seed: int
    metric: str
    value: float
    num_episodes: int
    num_undefined: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """What a results file holds."""

    rows: list[ResultRow]
    weights_sha256: str
    status: Status


_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("num_episodes", pa.int64(), nullable=False),
        pa.field("num_undefined", pa.int64(), nullable=False),
        pa.field("status", pa.string()),  # null: no audit concerns this model
    ]
)


def row_status(row: ResultRow, status: Status) -> Status | None:
    """The status of one row of a file of `status`: the file's for the audited model, None for a baseline.

    Every other network (such as `untrained`) has weights that no audit judged: not yet verified.
    """
    if row.model in UNAUDITED_MODELS:
        return None
    return status if row.model == AUDITED_MODEL else Status.UNVERIFIED


def status_of(audit: Mapping[str, Any] | None, subject: Mapping[str, Any]) -> Status:
    """VERIFIED only if `audit` passed, holds a pass of every required audit, and is about exactly `subject`.

    Args:
        audit: the content of `audit.json`, or None where there is none. A malformed one verifies nothing.
        subject: the sha256 of weights, configuration and code, the attention path, dtype and scorer that scored.
    """
    if not isinstance(audit, Mapping) or audit.get("passed") is not True or audit.get("subject") != dict(subject):
        return Status.UNVERIFIED
    if not all(subject.get(key) for key in SUBJECT_KEYS):
        return Status.UNVERIFIED
    single = audit.get("audits")
    if not isinstance(single, Sequence) or not all(isinstance(item, Mapping) for item in single):
        return Status.UNVERIFIED
    passed = {item.get("name") for item in single if item.get("passed") is True}
    failed = any(item.get("passed") is not True for item in single)
    return Status.UNVERIFIED if failed or not passed.issuperset(REQUIRED_AUDITS) else Status.VERIFIED


def write_results(path: pathlib.Path, rows: Iterable[ResultRow], *, weights_sha256: str, status: Status) -> None:
    """Writes a results file, whole or not at all.

    Raises:
        Failure: DISK_FULL, NOT_WRITABLE.
    """
    records = [dataclasses.asdict(row) | {"status": row_status(row, status)} for row in rows]
    table = pa.Table.from_pylist(records, schema=_SCHEMA)
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "weights_sha256": weights_sha256,
        "status": Status(status).value,
        "rows_sha256": _rows_sha256(table, weights_sha256=weights_sha256, status=status),
    }
    table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    files.write_bytes(path, sink.getvalue().to_pybytes())


def read_results(path: pathlib.Path) -> Results:
    """Reads a results file and checks it.

    Raises:
        Failure: NOT_FOUND; FORMAT_VERSION; RESULTS_CORRUPT for a file that is none, or not what was written.
    """
    mend = "score again to make it anew"
    try:
        with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as reader:
            table = reader.read_all()
            table.validate(full=True)  # a damaged offset would crash the process
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    except FileNotFoundError as error:
        raise Failure(ExitCode.NOT_FOUND, f"results {path} do not exist: score the run first") from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise Failure(ExitCode.RESULTS_CORRUPT, f"results {path} are no results file ({error}): {mend}") from error
    version = metadata.get("format_version")
    if version not in (None, str(FORMAT_VERSION)):
        mend = f"this version reads {FORMAT_VERSION}; {mend}"
        raise Failure(ExitCode.FORMAT_VERSION, f"results {path} have format version {version}: {mend}")
    try:
        status = Status(metadata["status"])
        found = _rows_sha256(table, weights_sha256=metadata["weights_sha256"], status=status)
        rows = [ResultRow(**record) for record in table.drop_columns(["status"]).to_pylist()]
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise Failure(ExitCode.RESULTS_CORRUPT, f"results {path} lack {error}: {mend}") from error
    if found != metadata.get("rows_sha256"):
        raise Failure(ExitCode.RESULTS_CORRUPT, f"results {path} differ from their sha256 {found[:16]}: {mend}")
    return Results(rows=rows, weights_sha256=metadata["weights_sha256"], status=status)


def scores_tree(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Rows of one kind as `{table: {model: {metric: {"mean": x, "per_seed": [...]}}}}`, JSON values only.

    `per_seed` is ordered by seed. An undefined value is None and takes no part in the mean.

    Raises:
        ValueError: rows of two kinds, or a score given twice.
    """
    if len({row.kind for row in rows}) > 1:
        raise ValueError("rows of classification and regression in one tree")
    cells: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        by_seed = cells.setdefault((row.table, row.model, row.metric), {})
        if row.seed in by_seed:
            raise ValueError(f"{row.metric} of {row.model} on {row.table}, seed {row.seed}, is given twice")
        by_seed[row.seed] = row.value
    tree: dict[str, Any] = {}
    for (table, model, metric), by_seed in cells.items():
        per_seed = [None if math.isnan(by_seed[seed]) else float(by_seed[seed]) for seed in sorted(by_seed)]
        known = [value for value in per_seed if value is not None]
        mean = math.fsum(known) / len(known) if known else None
        tree.setdefault(table, {}).setdefault(model, {})[metric] = {"mean": mean, "per_seed": per_seed}
    return tree


def _rows_sha256(table: pa.Table, *, weights_sha256: str, status: Status) -> str:
    text = json.dumps([weights_sha256, status.value, table.to_pylist()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
