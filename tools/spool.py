"""Reads growing files of JSON lines; `metrics.jsonl` is the spool from which metrics reach a tracking store (K1)."""

import dataclasses
import json
import os
import pathlib
from typing import Any, BinaryIO

MACHINE_PREFIX = "system/"
"""Metrics that a tracking store shows on a page of their own, if this stands before everything else."""


class Tail:
    """The objects of a file of JSON lines that were written since the last look.

    Args:
        path: of the file; it may not exist yet.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._offset, self._file = 0, 0
        self.restarts = 0
        """How often the file was found to be another one than before, and was read from its beginning again."""

    def skip(self) -> None:
        """Leaves out what is there now."""
        self.read()

    def read(self) -> list[dict[str, Any]]:
        """What is new. Whole lines only: the last one may still be on its way to the disk."""
        try:
            with self._path.open("rb") as file:
                data = self._new_bytes(file)
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        rows = []
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):  # torn by a crash, or nonsense
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows

    def _new_bytes(self, file: BinaryIO) -> bytes:
        status = os.fstat(file.fileno())
        if self._offset and (status.st_size < self._offset or status.st_ino != self._file):  # cut back by a resume
            self._offset = 0
            self.restarts += 1
        self._file = status.st_ino
        file.seek(self._offset)
        return file.read()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One value of one metric."""

    key: str
    step: int
    value: float


class Spool:
    """The points of a metrics file that still have to be sent.

    Args:
        path: one flat JSON object a line, each with an integer `step`; it may not exist yet.
        prefix: put before every key, behind `MACHINE_PREFIX` where a key has that.
    """

    def __init__(self, path: pathlib.Path, *, prefix: str = "") -> None:
        self._prefix, self._tail = prefix, Tail(path)
        self._seen: set[tuple[str, int]] = set()
        self.points: list[Point] = []

    def read(self) -> None:
        """Appends what was written since the last call. A (key, step) that comes again, after a resume, is left out."""
        for row in self._tail.read():
            step = row.get("step")
            if not isinstance(step, int):
                continue
            for key, value in row.items():
                is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if key != "step" and is_number and (key, step) not in self._seen:
                    self._seen.add((key, step))
                    self.points.append(Point(key=self._named(key), step=step, value=float(value)))

    def _named(self, key: str) -> str:
        if key.startswith(MACHINE_PREFIX):
            return f"{MACHINE_PREFIX}{self._prefix}{key.removeprefix(MACHINE_PREFIX)}"
        return self._prefix + key

    def pending(self) -> int:
        """How many points wait."""
        self.read()
        return len(self.points)
