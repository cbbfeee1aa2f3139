"""Reads a run folder, whole or half-done: what is missing or damaged is noted, never guessed and never fatal."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from eval import results
from reports.figures import Curve
from reports.standings import Scores
from reports.verdict import Verdict, judge
from tools import paths
from tools.failure import ExitCode, Failure

KINDS = ("classification", "regression")
Content = TypeVar("Content")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindFiles:
    """One model of a run.

    Args:
        kind: classification or regression.
        curves: metric name to its values over the steps, from metrics.jsonl.
        scores: table → model → metric → mean and seeds; empty without results.
        num_episodes: table to the number of episodes behind each seed's score.
        weights_sha256: of the scored weights, or None.
        audit: audit.json, or None.
        views: views.json, or None.
        verdict: whether the scores may be shown as verified.
        model: the model's part of summary.json; empty without one.
    """

    kind: str
    curves: Mapping[str, Curve]
    scores: Scores
    num_episodes: Mapping[str, int]
    weights_sha256: str | None
    audit: Mapping[str, Any] | None
    views: Mapping[str, Any] | None
    verdict: Verdict
    model: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder as read.

    Args:
        name: the folder's name.
        config: config.json, or None.
        seconds: wall-clock seconds by stage, in the order of the run.
        kinds: the models that have a folder.
        notes: what is missing or cannot be read, one line each.
    """

    name: str
    config: Any
    seconds: Mapping[str, float]
    kinds: tuple[KindFiles, ...]
    notes: tuple[str, ...]

    @property
    def is_verified(self) -> bool:
        """Whether there is a model and all are verified."""
        return bool(self.kinds) and all(part.verdict.is_verified for part in self.kinds)


def find_run(run: str, *, root: pathlib.Path) -> pathlib.Path:
    """The run folder that the user means: a path, or the name of a folder under `root`.

    Raises:
        Failure: BAD_NAME for a name that is neither; NOT_FOUND with what there is.
    """
    given = paths.user_path(run)
    folder = given if given.is_dir() else root / paths.checked_name(run, what="run")
    if folder.is_dir() and ((folder / "config.json").is_file() or any((folder / kind).is_dir() for kind in KINDS)):
        return folder
    known = sorted(path.parent.name for path in root.glob("*/config.json"))
    mend = f"choose one of {', '.join(known[-5:])}" if known else f"{root} holds none; name another folder with --root"
    raise Failure(ExitCode.NOT_FOUND, f"no run at {folder}: {mend}")


def read_run(folder: pathlib.Path) -> Run:
    """Reads all that a report shows."""
    notes: list[str] = []
    reader = _Reader(folder, notes)
    config, summary = reader.json("config.json"), reader.json("summary.json") or {}
    seconds = _event_seconds(reader)  # in the order of the run, which summary.json does not keep
    seconds |= summary.get("seconds", {})
    found = [kind for kind in KINDS if (folder / kind).is_dir()]
    if not found:
        notes.append("no model has been trained yet")
    models = summary.get("models", {})
    kinds = tuple(_read_kind(_Reader(folder / kind, notes), kind=kind, model=models.get(kind, {})) for kind in found)
    return Run(name=folder.name, config=config, seconds=seconds, kinds=kinds, notes=tuple(notes))


class _Reader:
    """Reads files of one folder; notes what is missing or damaged."""

    def __init__(self, folder: pathlib.Path, notes: list[str]) -> None:
        self._folder, self._notes = folder, notes

    def json(self, name: str) -> Any:
        """The content of a JSON file that holds an object, or None."""
        return self.read(name, lambda path: _object(json.loads(path.read_bytes())))

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of a JSONL file; a torn one is left out."""
        return self.read(name, lambda path: [row for line in path.read_text().split("\n") for row in _row(line)]) or []

    def read(self, name: str, parse: Callable[[pathlib.Path], Content]) -> Content | None:
        """What `parse` makes of the file, or None with a note."""
        path = self._folder / name
        shown = f"{path.parent.name}/{name}" if path.parent.name in KINDS else name
        if not path.is_file():
            self._notes.append(f"{shown} is missing")
            return None
        try:
            return parse(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, Failure) as error:
            self._notes.append(f"{shown} cannot be read ({error})")
            return None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("it holds no object")
    return value


def _row(line: str) -> list[dict[str, Any]]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [row] if isinstance(row, dict) else []


def _event_seconds(reader: _Reader) -> dict[str, float]:
    """Seconds by stage of a run that has not written its summary yet; a stage that was resumed counts all its parts."""
    seconds: dict[str, float] = {}
    for event in reader.lines("events.jsonl"):
        taken = event.get("seconds")
        if event.get("event") == "end" and isinstance(taken, int | float):
            stage = str(event.get("stage"))
            seconds[stage] = seconds.get(stage, 0.0) + taken
    return seconds


def _read_kind(reader: _Reader, *, kind: str, model: Mapping[str, Any]) -> KindFiles:
    found = reader.read("results.arrow", results.read_results)
    audit = reader.json("audit.json")
    rows = found.rows if found else []
    sha, stamp = (found.weights_sha256, found.status) if found else (None, None)
    return KindFiles(
        kind=kind,
        curves=_curves(reader.lines("metrics.jsonl")),
        scores=results.scores_tree(rows),
        num_episodes={row.table: row.num_episodes for row in rows},
        weights_sha256=sha or model.get("weights_sha256"),
        audit=audit,
        views=reader.json("views.json"),
        verdict=judge(audit=audit, weights_sha256=sha, stamp=stamp),
        model=model,
    )


def _curves(rows: list[dict[str, Any]]) -> dict[str, Curve]:
    """Every metric by ascending step; of a step that was recorded twice, after a resume, the last value."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        for key, value in row.items():
            if key != "step" and isinstance(value, (int, float)) and isinstance(row.get("step"), int):
                values.setdefault(key, {})[row["step"]] = float(value)
    return {key: _curve(by_step) for key, by_step in values.items()}


def _curve(by_step: Mapping[int, float]) -> Curve:
    steps = sorted(by_step)
    return Curve(steps=steps, values=[by_step[step] for step in steps])
