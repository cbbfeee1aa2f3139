"""A run's folder: its name, config, lock, stage times and summary (layout in docs/design.md)."""

import contextlib
import dataclasses
import json
import pathlib
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
        """Written last; a run with a summary is finished."""
        return self.path / "summary.json"

    def kind_path(self, kind: TaskKind) -> pathlib.Path:
        """The folder of one of the two models."""
        return self.path / kind.value

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, or None."""
        return json.loads(self.summary_path.read_bytes()) if self.summary_path.exists() else None

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
            found = json.loads(path.read_bytes()).get("digest")
            if found != record["digest"]:
                mend = "choose another --name, or delete that folder"
                there, here = str(found)[:12], record["digest"][:12]
                text = f"{self.path} holds a run of config {there}, not {here}: {mend}"
                raise Failure(ExitCode.CONFIG_MISMATCH, text)
            return
        files.write_json(path, record)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces a stage on standard error and records its start and end in events.jsonl."""
        progress.say(f"== {name}")
        self._event(name, "start", 0.0)
        start = time.perf_counter()
        yield
        self._event(name, "end", time.perf_counter() - start)

    def _event(self, stage: str, event: str, seconds: float) -> None:
        with (self.path / "events.jsonl").open("a") as file:
            file.write(json.dumps({"stage": stage, "event": event, "seconds": round(seconds, 3)}) + "\n")

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage, summed over the sittings of a run that was resumed."""
        total: dict[str, float] = {}
        for line in (self.path / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "end":
                total[event["stage"]] = round(total.get(event["stage"], 0.0) + event["seconds"], 3)
        return total


def open_run(preset: str, config: PretrainConfig) -> RunFolder:
    """Names the run and makes its folder.

    Raises:
        Failure: BAD_NAME, NOT_WRITABLE.
    """
    root = paths.user_path(config.root) if config.root is not None else paths.default_root()
    name = config.name if config.name is not None else f"{preset}-{configs.digest(config.identity())[:8]}"
    paths.checked_name(name, what="--name")
    paths.writable_folder(root, flag="--root")
    run = RunFolder(root=root, name=name, config=config)
    run.path.mkdir(exist_ok=True)
    return run
