"""Where a lab puts what it found, and which checkpoint it is about. Labs give figures, never verdicts."""

import pathlib
from collections.abc import Mapping
from typing import Any

from model.checkpoint import Checkpoint
from tools import files, paths

RECORD = "lab.json"


def lab_folder(out: pathlib.Path | None, *, name: str) -> pathlib.Path:
    """The folder of a lab's result: `out` as the user means it, else `runs/labs/NAME` in the workspace.

    Raises:
        Failure: NOT_WRITABLE, before anything is computed.
    """
    folder = paths.default_root() / "labs" / name if out is None else paths.user_path(out)
    return paths.writable_folder(folder, flag="--out")


def write_lab(folder: pathlib.Path, *, record: Mapping[str, Any], pictures: Mapping[str, str]) -> list[pathlib.Path]:
    """Writes `NAME.svg` for each of `pictures` (whole SVG documents), and `lab.json` last; each whole or not at all.

    Returns:
        The files, `lab.json` first.
    """
    drawn = [folder / f"{name}.svg" for name in pictures]
    for path, svg in zip(drawn, pictures.values(), strict=True):
        files.write_bytes(path, svg.encode())
    files.write_json(folder / RECORD, record)
    return [folder / RECORD, *drawn]


def source_record(checkpoint: Checkpoint) -> dict[str, Any]:
    """Names the checkpoint that a figure is about: its step, its kind and the sha256 of its weights."""
    kind = checkpoint.config.kind.value
    return {"kind": kind, "step": checkpoint.step, "weights_sha256": checkpoint.weights_sha256}
