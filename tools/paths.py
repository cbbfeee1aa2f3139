"""Where a path given by the user, or a name given to a run, really points (seed S4)."""

import os
import pathlib
import re

from tools.failure import ExitCode, Failure

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def user_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Resolves a path against the folder that the user stands in (`bazel run` changes the working directory)."""
    stands_in = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY") or os.getcwd())
    return (stands_in / pathlib.Path(path).expanduser()).resolve()


def workspace() -> pathlib.Path:
    """The repository root under `bazel run`; the current folder elsewhere."""
    return pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or os.getcwd()).resolve()


def default_root() -> pathlib.Path:
    """Where outputs go when no `--root` is given: `runs/` in the workspace."""
    return workspace() / "runs"


def checked_name(name: str, *, what: str) -> str:
    """Returns `name` if it is a legal name for a file of ours.

    Raises:
        Failure: BAD_NAME, for anything outside `[A-Za-z0-9._-]{1,128}` and for names of dots only.
    """
    if not _NAME.fullmatch(name) or not name.strip("."):
        raise Failure(ExitCode.BAD_NAME, f"{what} {name!r} is not a legal name: use 1 to 128 of A-Z a-z 0-9 . _ -")
    return name


def writable_file(path: str | os.PathLike[str], *, flag: str) -> pathlib.Path:
    """Where a file that the user names will lie: what cannot be written is refused before there is anything to write.

    Raises:
        Failure: NOT_WRITABLE, naming the flag and the place.
    """
    place = user_path(path)
    if place.is_dir():
        raise Failure(ExitCode.NOT_WRITABLE, f"{flag} {place} is a folder: give the name of a file")
    writable_folder(place.parent, flag=flag)
    return place


def writable_folder(path: pathlib.Path, *, flag: str) -> pathlib.Path:
    """Creates `path` if need be and proves that a file can be written in it.

    Raises:
        Failure: NOT_WRITABLE, naming the flag and the folder.
    """
    probe = path / f".writable-{os.getpid()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        mend = "give a folder that you may write to"
        raise Failure(ExitCode.NOT_WRITABLE, f"{flag} {path} is not writable ({error.strerror}): {mend}") from error
    return path
