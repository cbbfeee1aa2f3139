"""A run's folder: its name, config, lock, stage times and summary (layout in docs/design.md)."""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

from priors.task import TaskKind
from tools import config as configs
from tools import files, paths, progress
from tools.failure import ExitCode, Failure
from train.presets import PretrainConfig

FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFolder:
    """`<root>/<name>`.

    Args:
        root: the folder of all runs.
        name: of this one.
        config: complete.
    """

    root: pathlib.Path
    name: str
    config: PretrainConfig

    @property
    def path(self) -> pathlib.Path:
        """The folder itself."""
        return self.root / self.name

    @property
    def summary_path(self) -> pathlib.Path:
        """The scores; a summary that says "complete" is the last thing that a run writes."""
        return self.path / "summary.json"

    def kind_path(self, kind: TaskKind) -> pathlib.Path:
        """The folder of one of the two models."""
        return self.path / kind.value

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, or None."""
        try:
            found = json.loads(self.summary_path.read_bytes())
        except (OSError, ValueError):
            return None
        return found if found.get("complete") is True else None

    @property
    def has_begun(self) -> bool:
        """Whether any stage was entered."""
        return (self.path / "events.jsonl").exists()

    def config_json(self) -> Any:
        """The config as JSON values."""
        return configs.to_json(self.config)

    def tables_folder(self) -> pathlib.Path:
        """The folder of further tables, as the user meant it."""
        return paths.user_path(self.config.tables)

    def write_config(self) -> None:
        """Records the config, or checks that the run which is there has the same.

        Raises:
            Failure: CONFIG_MISMATCH.
        """
        path = self.path / "config.json"
        record = {
            "format_version": FORMAT_VERSION,
            "digest": configs.digest(self.config.identity()),
            "config": self.config_json(),
        }
        if path.exists():
            found = _digest_in(path)
            if found != record["digest"]:
                mend = "choose another --name, or delete that folder"
                there, here = found[:12], record["digest"][:12]
                text = f"{self.path} holds a run of config {there}, not {here}: {mend}"
                raise Failure(ExitCode.CONFIG_MISMATCH, text)
            return
        files.write_json(path, record)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces a stage on standard error; records its start and its end, or interruption, in events.jsonl."""
        progress.say(f"== {name}")
        self._event(name, "start", 0.0)
        start, ending = time.perf_counter(), "interrupted"
        try:
            yield
            ending = "end"
        finally:
            self._event(name, ending, time.perf_counter() - start)

    def _event(self, stage: str, event: str, seconds: float) -> None:
        record = {"stage": stage, "event": event, "seconds": round(seconds, 3)}
        files.append_json_line(self.path / "events.jsonl", record)

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage, summed over the sittings of a run; a sitting ended by SIGKILL is not known."""
        total: dict[str, float] = {}
        for event in files.read_json_lines(self.path / "events.jsonl"):
            if event.get("event") != "start" and "seconds" in event:
                total[event["stage"]] = round(total.get(event["stage"], 0.0) + event["seconds"], 3)
        return total


def _digest_in(path: pathlib.Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return "that cannot be read"


def name_run(preset: str, config: PretrainConfig) -> RunFolder:
    """Names the run; nothing is written.

    Raises:
        Failure: BAD_NAME.
    """
    root = paths.user_path(config.root) if config.root is not None else paths.default_root()
    name = config.name if config.name is not None else f"{preset}-{configs.digest(config.identity())[:8]}"
    return RunFolder(root=root, name=paths.checked_name(name, what="--name"), config=config)


@contextlib.contextmanager
def claimed(run: RunFolder) -> Iterator[None]:
    """Makes the run's folder and holds it. A folder made here in which no stage was entered is taken away again.

    Raises:
        Failure: NOT_WRITABLE, RUN_BUSY, CONFIG_MISMATCH.
    """
    paths.writable_folder(run.root, flag="--root")
    is_new = not run.path.exists()
    paths.writable_folder(run.path, flag="--name")
    try:
        with files.FolderLock(run.path):
            run.write_config()
            yield
    finally:
        if is_new and not run.has_begun:
            shutil.rmtree(run.path, ignore_errors=True)
