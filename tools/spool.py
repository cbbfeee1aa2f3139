"""Reads a growing `metrics.jsonl`: the spool from which metrics reach a tracking store, whenever it answers (K1)."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator


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
        prefix: put before every key.
    """

    def __init__(self, path: pathlib.Path, *, prefix: str = "") -> None:
        self._path, self._prefix = path, prefix
        self._offset = 0
        self._seen: set[tuple[str, int]] = set()
        self.points: list[Point] = []

    def read(self) -> None:
        """Appends what was written since the last call. A (key, step) that comes again, after a resume, is left out."""
        for row in self._new_rows():
            step = row.get("step")
            if not isinstance(step, int):
                continue
            for key, value in row.items():
                is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if key != "step" and is_number and (key, step) not in self._seen:
                    self._seen.add((key, step))
                    self.points.append(Point(key=self._prefix + key, step=step, value=float(value)))

    def _new_rows(self) -> Iterator[dict[str, object]]:
        """Whole lines only: the last one may still be on its way to the disk."""
        if not self._path.exists():
            return
        if self._path.stat().st_size < self._offset:  # cut back by a resume
            self._offset = 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # torn by a crash
                continue
            if isinstance(row, dict):
                yield row

    def pending(self) -> int:
        """How many points wait."""
        self.read()
        return len(self.points)
