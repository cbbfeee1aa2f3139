"""Submits the main job to a Ray cluster and follows it: our source goes along, Ctrl-C stops the job gracefully.

bazel run //train:submit -- --address http://HEAD:8265 -- base --root /shared/runs
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import secrets
import shlex
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tools import config as configs
from tools import paths, progress, ray_session, source_archive
from tools.failure import BadInput, ExitCode, Failure, interrupt_on_sigterm, run_program
from train.presets import PRESETS, checked

_Answer = TypeVar("_Answer")

_PACKAGES = ("tools", "priors", "model", "eval", "train", "reports")
_PROGRAM = "bazel run //train:submit --"
_MODULE = "train.pretrain"
_STOP_SECONDS = 60  # what a job needs for its checkpoint and its end; Ray by itself kills after 3
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 1.0
_READY_SECONDS = 60.0  # how long a head that has just been started may take until it can run a job
_LOST_SECONDS = 30.0  # how long a dashboard is asked again that does not answer
_HELP = """usage: bazel run //train:submit -- [--FLAG VALUE ...] -- [PRESET] [--FLAG VALUE ...]

Runs `//train:pretrain` (its preset and flags stand behind the second --) as a Ray job on the cluster, on all of its
GPUs or cores, and shows what it says. It ends as the job does, with the job's exit code. Ctrl-C stops the job after a
checkpoint, a second Ctrl-C leaves it to itself; the same command goes on where it was stopped.

  --address URL    of the cluster's dashboard; by default http://127.0.0.1:8265 (a port forwarded from the head node)
  --python PATH    the Python of the nodes, with the packages of requirements.lock; by default python
  --detach         submit and leave

The job needs --root: a folder that all nodes share, as a whole path. A cluster with a token wants RAY_AUTH_MODE=token
and RAY_AUTH_TOKEN here too. What the preset takes: bazel run //train:pretrain -- PRESET --help
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubmitConfig:
    """Where the job runs."""

    address: str = "http://127.0.0.1:8265"
    """Of the cluster's dashboard."""
    python: str = "python"
    """The Python of the nodes."""
    detach: bool = False
    """Whether to leave once the job is submitted."""


def main() -> None:
    """Entry point."""
    run_program(_main)


def _main(argv: list[str]) -> int:
    own, job = _parted(argv)
    if not argv or own[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_HELP)
        return 0
    config = configs.parse_flags(SubmitConfig, own, program=_PROGRAM)
    words = _job_words(job)
    interrupt_on_sigterm()
    client = _client(config.address)
    with _token_taken(config.address, what="nothing was submitted"):
        name = _submitted(client, config, words)
    progress.say(f"submitted as {name}")
    follow = f"ray job logs --address {config.address} --follow {name}"
    if config.detach:
        print(f"to follow it: {follow}")
        return 0
    lost = f"job {name} may well run on (follow it: {follow})"
    with _token_taken(config.address, what=lost):
        return _followed(client, name, lost=f"{lost}, but nobody answers there")


def _parted(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own flags, and the words of the job behind `--`.

    Raises:
        BadInput: BAD_FLAG for a preset without a `--` before it, with the command line that was meant.
    """
    if "--" in argv:
        place = argv.index("--")
        return argv[:place], argv[place + 1 :]
    if preset := next((word for word in argv if word in PRESETS), None):
        place = argv.index(preset)
        meant = shlex.join([*argv[:place], "--", *argv[place:]])
        text = f"preset {preset} and the job's flags stand behind a -- of their own: {_PROGRAM} {meant}"
        raise BadInput(ExitCode.BAD_FLAG, text)
    return argv, []


def _job_words(job: list[str]) -> list[str]:
    """The job's command line, checked as the job itself would do it.

    Raises:
        Failure: what the job would refuse; BAD_FLAG for a path that means nothing on another machine.
    """
    words = job or ["tiny"]
    if not any(word.startswith("--cluster.address") for word in words):
        words = [*words, "--cluster.address", "auto"]
    _, config = configs.parse_preset(PRESETS, words, program=f"{_PROGRAM} --", default="tiny")
    checked(config)
    if config.root is None:
        raise BadInput(ExitCode.BAD_FLAG, "--root is missing: give a folder that all nodes of the cluster share")
    for flag, path in (("--root", config.root), ("--tables", config.tables)):
        if path is not None and not pathlib.Path(path).is_absolute():
            mend = "give the whole path, as the nodes of the cluster see it"
            raise BadInput(ExitCode.BAD_FLAG, f"{flag} {path} begins at a folder of this machine: {mend}")
    if config.name is not None:
        paths.checked_name(config.name, what="--name")
    return words


def _client(address: str) -> Any:
    """A `ray.job_submission.JobSubmissionClient`; ray is imported only here: --help and a refusal need it not.

    Raises:
        Failure: TOO_FEW_RESOURCES, within 10 seconds, where nothing answers; BAD_FLAG without a fitting token.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(ExitCode.BAD_FLAG, f"--address {address} is no URL: give http://HEAD:8265")
    mend = "start Ray on the head node (`ray start --head`), or forward its port 8265"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not ray_session.answers(f"{parts.hostname}:{port}", seconds=_ANSWER_SECONDS):
        raise Failure(ExitCode.TOO_FEW_RESOURCES, f"--address {address}: nothing answers there: {mend}")
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(name, None)  # Ray would prefer them to --address
    from ray.job_submission import JobSubmissionClient

    try:
        with _token_taken(address, what="nothing was submitted"):
            return JobSubmissionClient(address)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        cause = _cause(error)
        text = f"--address {address} is no Ray dashboard that takes jobs ({cause}): {mend}"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, text) from error


@contextlib.contextmanager
def _token_taken(address: str, *, what: str) -> Iterator[None]:
    """Says, where the cluster refuses our token, what has become of the job by then.

    Raises:
        Failure: BAD_FLAG.
    """
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        mend = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on the cluster"
        raise Failure(ExitCode.BAD_FLAG, f"--address {address} wants another token, and {what}: {mend}") from error


def _submitted(client: Any, config: SubmitConfig, words: list[str]) -> str:
    """Uploads our source, unless the cluster has it, and submits the job; returns its name."""
    archive = source_archive.packed(_PACKAGES)
    uri = archive.uri()
    lost = f"nothing was submitted: --address {config.address} does not take our source"
    if not _asked(lambda: client._package_exists(uri), lost=lost):
        with tempfile.NamedTemporaryFile(suffix=".zip") as file:
            file.write(archive.content)
            file.flush()
            sent = functools.partial(client._upload_package, uri, file.name, include_gitignore=False, is_file=True)
            _asked(sent, lost=lost)
    program = f"from {_MODULE} import main; main()"
    command = [config.python, "-P", "-c", program, *words]  # -P: whatever lies where Ray was started is not ours
    settings = {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS)}
    job = {"entrypoint": f"exec {shlex.join(command)}", "runtime_env": {"py_modules": [uri], "env_vars": settings}}
    name = f"veritab-{secrets.token_hex(8)}"  # given by us, so that a second try is no second job
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            return client.submit_job(submission_id=name, **job)
        except (RuntimeError, OSError) as error:
            cause = _cause(error)
            if f"{name} already exists" in cause:
                return name  # it was taken, but the answer was lost
            waits = isinstance(error, OSError) or "No available agent" in cause  # the head has just been started
            if not waits or time.monotonic() > deadline:
                mend = f"look at `ray status` on its head, and for {name} in `ray job list`"
                text = f"--address {config.address} did not take job {name} ({cause}): {mend}"
                raise Failure(ExitCode.TOO_FEW_RESOURCES, text) from error
            time.sleep(_POLL_SECONDS)


def _asked(ask: Callable[[], _Answer], *, lost: str) -> _Answer:
    """What the dashboard answers, asked again for a while where it does not.

    Raises:
        Failure: TOO_FEW_RESOURCES, which begins with `lost`.
    """
    deadline = time.monotonic() + _LOST_SECONDS
    while True:
        try:
            return ask()
        except (RuntimeError, OSError) as error:  # what Ray and requests raise
            if time.monotonic() > deadline:
                text = f"{lost} ({_cause(error)}): is the port still forwarded?"
                raise Failure(ExitCode.TOO_FEW_RESOURCES, text) from error
            time.sleep(_POLL_SECONDS)


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _followed(client: Any, name: str, *, lost: str) -> int:
    """Shows what the job says until it ends; passes an interrupt on.

    Args:
        client: of the cluster.
        name: of the job.
        lost: what is said where the dashboard is lost for good.

    Raises:
        Failure: the job's own last words and exit code; INTERRUPTED after a stop; TOO_FEW_RESOURCES where the
            dashboard is lost for good.
        KeyboardInterrupt: the second one.
    """
    shown, stopping, told = 0, False, False
    while True:
        try:
            if stopping and not told:
                told = _asked(lambda: client.stop_job(name), lost=lost) is not None
            status = _asked(lambda: client.get_job_status(name), lost=lost)
            text = _asked(lambda: client.get_job_logs(name), lost=lost)
            sys.stderr.write(text[shown:])
            sys.stderr.flush()
            shown = len(text)
            if status.is_terminal():
                return _ending(_asked(lambda: client.get_job_info(name), lost=lost), name, text=text)
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            if stopping:
                progress.say(f"job {name} is left to itself")
                raise
            stopping = True
            progress.say(f"stopping job {name} after a checkpoint (once more: leave it to itself)")


def _ending(info: Any, name: str, *, text: str) -> int:
    """The job's exit code, or its refusal."""
    if info.status.value == "SUCCEEDED":
        return 0
    if info.status.value == "STOPPED":
        raise Failure(ExitCode.INTERRUPTED, f"job {name} was stopped: the same command goes on")
    code = info.driver_exit_code if info.driver_exit_code in set(ExitCode) else ExitCode.WORKER_FAILED
    lines = [line for line in text.splitlines() if line.startswith("error: ")] or [info.message or "it said nothing"]
    raise Failure(ExitCode(code), f"job {name} failed: {lines[-1].removeprefix('error: ')}")
