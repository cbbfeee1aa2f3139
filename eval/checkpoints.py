"""Which checkpoints a user means by a path: a step folder, a run's folder of one kind, or a whole run."""

import json
import pathlib

from model.checkpoint import Checkpoint, load_checkpoint, step_folders
from model.label_injection import LabelKind
from tools.failure import ExitCode, Failure

BEST = "best.json"
"""Beside a run's `checkpoints` folder: {"step": N}, the step that validation chose."""


def find_checkpoints(path: pathlib.Path) -> list[Checkpoint]:
    """The checkpoint at `path`, or the best one of each kind that a run holds, verified and loaded.

    Args:
        path: a step folder; a folder of steps; a run's `classification` or `regression` folder; or a run folder. The
            best is the step that `best.json` names, else the newest.

    Raises:
        Failure: NOT_FOUND when there is none; CHECKPOINT_CORRUPT or FORMAT_VERSION, naming the file.
    """
    if path.is_file():
        mend = f"give the folder that holds it, {path.parent}, or a run folder"
        raise Failure(ExitCode.NOT_FOUND, f"checkpoint {path} is a file: {mend}")
    if not path.is_dir():
        raise Failure(ExitCode.NOT_FOUND, f"checkpoint {path} does not exist: give a step folder or a run folder")
    kinds = [path / kind.value for kind in LabelKind if (path / kind.value / "checkpoints").is_dir()]
    if kinds:
        return [load_checkpoint(_best(folder)) for folder in kinds]
    if (path / "checkpoints").is_dir():
        return [load_checkpoint(_best(path))]
    if step_folders(path):
        return [load_checkpoint(step_folders(path)[-1])]
    if not any((path / name).exists() for name in ("MANIFEST.json", "weights.safetensors", "config.json")):
        raise Failure(ExitCode.NOT_FOUND, f"{path} holds no checkpoint: give a step folder or a run folder")
    return [load_checkpoint(path)]


def _best(folder: pathlib.Path) -> pathlib.Path:
    steps = step_folders(folder / "checkpoints")
    if not steps:
        raise Failure(ExitCode.NOT_FOUND, f"{folder / 'checkpoints'} holds no step: train first, or give another run")
    file = folder / BEST
    if not file.exists():
        return steps[-1]
    try:
        name = f"step-{int(json.loads(file.read_bytes())['step']):08d}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(ExitCode.CHECKPOINT_CORRUPT, f'{file} is not {{"step": N}}: mend or delete it') from error
    if folder / "checkpoints" / name not in steps:
        mend = f"restore it or delete {file}"
        raise Failure(ExitCode.CHECKPOINT_CORRUPT, f"{file} names {name}, which is not there: {mend}")
    return folder / "checkpoints" / name
