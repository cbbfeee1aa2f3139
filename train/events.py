"""What happened to a run, in order: one JSON line for each event in `runs/<name>/events.jsonl`."""

import pathlib
from typing import Any

from tools import files


class EventLog:
    """Appends to the file; readers take the order of lines, never a clock (T11).

    Args:
        path: of the file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def write(self, event: str, **facts: Any) -> None:
        """One line, {"event": event, **facts}, written at once."""
        files.append_json_line(self._path, {"event": event, **facts})
