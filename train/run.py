"""A run's folder: its name, config, lock, stage times and summary (layout in docs/design.md)."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from model import checkpoint
from priors.task import TaskKind
from tools import config as configs
from tools import files, paths, progress
from tools.failure import ExitCode, Failure
from train.events import EVENTS, TEXT, EventLog, RunEvent
from train.job import TrainingJob
from train.model_job import model_job
from train.presets import NEUTRAL, PretrainConfig
from train.state import differences

FORMAT_VERSION = 1
_CONFIG = "config.json"
_SHOWN_CHANGES = 8
_STAGE_ENDS = (RunEvent.STAGE_ENDED, RunEvent.STAGE_INTERRUPTED, RunEvent.STAGE_FAILED)


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
    def events(self) -> EventLog:
        """What happened."""
        return EventLog(self.path / EVENTS)

    @property
    def has_begun(self) -> bool:
        """Whether any stage was entered."""
        return (self.path / EVENTS).exists()

    def config_json(self) -> Any:
        """The config as JSON values."""
        return configs.to_json(self.config)

    def check_resumable(self) -> None:
        """Checks that there is a run to go on with, where that is asked for.

        Raises:
            Failure: NOT_FOUND, naming the run, and those that there are instead.
        """
        if not self.config.resume or (self.path / _CONFIG).exists():
            return
        known = sorted(path.parent.name for path in self.root.glob(f"*/{_CONFIG}"))
        there = f"there are {', '.join(known[-5:])}" if known else "that root holds none"
        mend = f"give the --name of one ({there}), or leave out --resume to begin one"
        raise Failure(ExitCode.NOT_FOUND, f"--resume found no run at {self.path}: {mend}")

    def check_checkpoints(self) -> None:
        """Checks that no training of a run that is to be gone on with would begin anew for want of a whole checkpoint.

        Raises:
            Failure: CHECKPOINT_CORRUPT where checkpoints lie and all are damaged, naming the newest; FORMAT_VERSION.
        """
        for kind in TaskKind if self.config.resume else ():
            root = self.job(kind).checkpoints
            folders = checkpoint.step_folders(root)
            if folders and checkpoint.newest_verified(root) is None:
                mend = "restore one, or leave out --resume to train anew"
                text = f"--resume found no whole checkpoint in {root} (the newest is {folders[-1].name}): {mend}"
                raise Failure(ExitCode.CHECKPOINT_CORRUPT, text)

    def write_config(self) -> None:
        """Records the config, or checks that the run which is there has the same.

        Where it had another one and that is accepted, the summary of the run as it was is taken away: what no longer
        fits is made anew.

        Raises:
            Failure: CONFIG_MISMATCH, naming the fields that differ and the flag that accepts them, or, where a model is
                trained to its end and none does, another mend.
        """
        path = self.path / _CONFIG
        record = {
            "format_version": FORMAT_VERSION,
            "digest": configs.digest(self.config.identity()),
            "config": self.config_json(),
        }
        found = _record_in(path)
        if found is not None and found.get("digest") == record["digest"]:
            return
        changes = _changes((found or {}).get("config"), record["config"])
        self._check_trained(changes)
        if found is not None:
            self._accept(changes)
        files.write_json(path, record)

    def _check_trained(self, changes: list[str]) -> None:
        """Refuses a config that is not the one of a training which is complete: its weights would pass for others."""
        same_data = not any(change.startswith(("data.", "seed:", f"{_CONFIG}:")) for change in changes)
        for kind in TaskKind:
            differing = self.job(kind).trained_otherwise(same_data=same_data)
            if differing:
                mend = "give another --name, or more steps, to train with what is new"
                text = f"{self.kind_path(kind)} is trained to its end with another config ({_shown(differing)}): {mend}"
                raise Failure(ExitCode.CONFIG_MISMATCH, text)

    def job(self, kind: TaskKind) -> TrainingJob:
        """The training of one of the two models."""
        return model_job(self.config, kind, shards_root=self.root, folder=self.kind_path(kind))

    def _accept(self, changes: list[str]) -> None:
        shown = _shown(changes)
        if not self.config.accept_changes:
            mend = "give --accept-changes to go on with what is new, or choose another --name"
            raise Failure(ExitCode.CONFIG_MISMATCH, f"{self.path} holds a run of another config ({shown}): {mend}")
        self.summary_path.unlink(missing_ok=True)
        self.events.write(RunEvent.CHANGES_ACCEPTED, changes=changes, **{TEXT: shown})

    def changed_fields(self) -> dict[str, str]:
        """Dotted name to "old → new" of every field that was changed, with leave, since the run began."""
        own = [event for event in self.events.read() if event["event"] == RunEvent.CHANGES_ACCEPTED]
        changes = [text for event in own if "kind" not in event for text in event["changes"]]  # not what a model says
        return dict(text.split(": ", 1) for text in changes)

    @contextlib.contextmanager
    def sitting(self) -> Iterator[None]:
        """Records that a process begins the run, or goes on with it, and how that ends."""
        begins = RunEvent.RUN_RESUMED if self.has_begun else RunEvent.RUN_STARTED
        self.events.write(begins, host=socket.gethostname(), pid=os.getpid())
        try:
            yield
        except BaseException as error:
            named = "interrupted" if _was_asked_for(error) else type(error).__name__
            text = error.message if isinstance(error, Failure) else named
            self.events.write(RunEvent.RUN_STOPPED, **{TEXT: text})
            raise

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces a stage on standard error; records its start, and how it ends, in events.jsonl."""
        progress.say(f"== {name}")
        self._event(RunEvent.STAGE_STARTED, stage=name, seconds=0.0)
        start, ending = time.perf_counter(), RunEvent.STAGE_ENDED
        try:
            yield
        except BaseException as error:
            ending = RunEvent.STAGE_INTERRUPTED if _was_asked_for(error) else RunEvent.STAGE_FAILED
            raise
        finally:
            self._event(ending, stage=name, seconds=time.perf_counter() - start)

    def _event(self, event: RunEvent, *, stage: str, seconds: float) -> None:
        self.events.write(event, stage=stage, seconds=round(seconds, 3))

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage, summed over the sittings of a run; a sitting ended by SIGKILL is not known."""
        total: dict[str, float] = {}
        for event in self.events.read():
            if event["event"] in _STAGE_ENDS and "stage" in event:
                total[event["stage"]] = round(total.get(event["stage"], 0.0) + event["seconds"], 3)
        return total


def _was_asked_for(error: BaseException) -> bool:
    """Whether somebody wanted the work to stop; anything else is a failure of it."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, Failure) and error.code is ExitCode.INTERRUPTED)


def _shown(changes: list[str]) -> str:
    return "; ".join(changes[:_SHOWN_CHANGES]) + ("; …" if len(changes) > _SHOWN_CHANGES else "")


def _record_in(path: pathlib.Path) -> dict[str, Any] | None:
    """What `config.json` holds: None where there is none, empty where it cannot be read."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _changes(before: Any, now: Mapping[str, Any]) -> list[str]:
    """ "field: old → new" of what differs between two configs, without what changes no result."""
    if not isinstance(before, Mapping):
        return [f"{_CONFIG}: unreadable → readable"]
    old, new = ({name: part for name, part in config.items() if name not in NEUTRAL} for config in (before, now))
    return differences(configs.flat(old), configs.flat(new))


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
        Failure: NOT_FOUND or CHECKPOINT_CORRUPT where there is nothing to resume; NOT_WRITABLE, RUN_BUSY,
            CONFIG_MISMATCH, FORMAT_VERSION.
    """
    run.check_resumable()
    paths.writable_folder(run.root, flag="--root")
    is_new = not run.path.exists()
    paths.writable_folder(run.path, flag="--name")
    with files.FolderLock(run.path):
        try:
            run.check_checkpoints()
            run.write_config()
            yield
        finally:
            if is_new and not run.has_begun:  # while it is held, and the lock with it: nobody else is in there yet
                shutil.rmtree(run.path, ignore_errors=True)
