"""Tests of train/submit.py: what it refuses, and a real job on a real cluster, stopped by Ctrl-C."""

import collections
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest

from model import checkpoint
from tools.failure import ExitCode
from tools.files import read_json_lines
from tools.ray_nodes import cluster, processes_with
from train import submit
from train.submit import main
from train.toy_flags import toy_flags

_MARK = f"VERITAB_TEST={os.getpid()}"


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-c", "from train.submit import main; main()", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _job(root: pathlib.Path) -> list[str]:
    """A job that trains for ever on next to nothing."""
    return [*toy_flags(root, num_steps=1_000_000, checkpoint_every=100_000), "--cluster.num-workers", "1"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--address", "ftp://head", "--", "tiny", "--root", "/r"], ExitCode.BAD_FLAG, "ftp://head is no URL"),
        (["base"], ExitCode.BAD_FLAG, "behind a -- of their own: bazel run //train:submit -- -- base\n"),
        (
            ["--address", "http://h:1", "tiny", "--root", "/a b"],
            ExitCode.BAD_FLAG,
            "//train:submit -- --address http://h:1 -- tiny --root '/a b'\n",
        ),
        (["--", "tiny"], ExitCode.BAD_FLAG, "--root is missing"),
        (["--", "tiny", "--root", "runs"], ExitCode.BAD_FLAG, "--root runs begins at a folder of this machine"),
        (["--", "tniy", "--root", "/r"], ExitCode.UNKNOWN_PRESET, "did you mean tiny"),
        (["--adress", "x", "--", "tiny"], ExitCode.BAD_FLAG, "--address"),
        (
            ["--address", "http://127.0.0.1:1", "--", "tiny", "--root", "/r"],
            ExitCode.TOO_FEW_RESOURCES,
            "nothing answers",
        ),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(
    arguments: list[str],
    code: ExitCode,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _status(arguments, monkeypatch) == code
    said = capsys.readouterr().err
    assert words in said and said.startswith("error: ") and said.count("\n") == 1


def test_help_teaches_the_two_parts_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(["--help"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert "-- [--FLAG VALUE ...] -- [PRESET]" in said and "Ctrl-C" in said


def _status(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The program's exit status, in this process: it need not import everything anew."""
    monkeypatch.setattr(sys, "argv", ["submit", *arguments])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    return int(ended.value.code or 0)


class _Dashboard(http.server.BaseHTTPRequestHandler):
    """What Ray's dashboard says of jobs; the first answers to each kind of request are errors."""

    left: ClassVar[collections.Counter[str]] = collections.Counter()
    """Errors still to come, by method and the path's last part."""
    refuses: ClassVar[set[str]] = set()
    """Requests of which the token is refused, named as above."""
    taken: ClassVar[list[str]] = []
    """Names of submitted jobs."""

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        key = f"{self.command} {self.path.rstrip('/').rpartition('/')[2]}"
        status, said = 200, {"ray_version": "2.60.0"}
        if key == "POST jobs":
            name = body["submission_id"]
            status, said = (500, f"Job with submission_id {name} already exists.") if name in self.taken else (200, {})
            said = said or {"job_id": name, "submission_id": name}
            self.taken.append(name)
        elif key == "GET logs":
            said = {"logs": "said\n"}
        elif key.startswith("GET veritab"):
            said = {"type": "SUBMISSION", "status": "SUCCEEDED", "entrypoint": "x", "driver_exit_code": 0}
        if self.left[key] > 0:
            self.left[key] -= 1
            if key == "POST jobs":
                return  # taken, but the connection drops before the answer
            status = 500
        self.send_response(401 if key in self.refuses else status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    do_GET = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, *said: object) -> None:
        """Nothing."""


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.ThreadingHTTPServer]:
    monkeypatch.setattr(submit, "_POLL_SECONDS", 0.01)
    _Dashboard.left.clear()
    _Dashboard.refuses.clear()
    _Dashboard.taken.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_dashboard_that_fails_for_a_moment_is_asked_again_and_takes_one_job(
    dashboard: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _Dashboard.left.update({"POST jobs": 1, "GET logs": 2})
    address = f"http://127.0.0.1:{dashboard.server_port}"
    monkeypatch.setattr(submit, "_PACKAGES", ("reports",))  # a small archive
    assert _status(["--address", address, "--", "tiny", "--root", "/r"], monkeypatch) == 0
    assert len(set(_Dashboard.taken)) == 1 and "said" in capsys.readouterr().err


def test_a_dashboard_that_is_lost_is_one_line_that_names_the_job_and_how_to_follow_it(
    dashboard: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _Dashboard.left.update({"GET logs": 10**9})
    monkeypatch.setattr(submit, "_LOST_SECONDS", 0.1)
    address = f"http://127.0.0.1:{dashboard.server_port}"
    monkeypatch.setattr(submit, "_PACKAGES", ("reports",))
    assert _status(["--address", address, "--", "tiny", "--root", "/r"], monkeypatch) == ExitCode.TOO_FEW_RESOURCES
    last = capsys.readouterr().err.splitlines()[-1]
    (name,) = _Dashboard.taken
    assert last.startswith(f"error: job {name} may well run on")
    assert f"ray job logs --address {address} --follow {name}" in last


@pytest.mark.parametrize(
    ("request_name", "words"),
    [
        ("POST jobs", "and nothing was submitted: "),
        ("GET logs", "and job {0} may well run on (follow it: ray job logs --address {1} --follow {0}): "),
    ],
)
def test_a_token_that_is_refused_on_the_way_is_one_line_with_what_has_become_of_the_job(
    request_name: str,
    words: str,
    dashboard: http.server.ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The cluster was started anew with another one; it is not asked again."""
    _Dashboard.refuses.add(request_name)
    address = f"http://127.0.0.1:{dashboard.server_port}"
    monkeypatch.setattr(submit, "_PACKAGES", ("reports",))
    assert _status(["--address", address, "--", "tiny", "--root", "/r"], monkeypatch) == ExitCode.BAD_FLAG
    (name,) = _Dashboard.taken
    mend = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on the cluster"
    said = f"error: --address {address} wants another token, {words.format(name, address)}{mend}"
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_a_submitted_job_is_stopped_by_ctrl_c_after_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """T6 and T9 as a Ray job: `ray job stop` alone would kill after 3 s; the last step is in the checkpoint.

    Ray's token is asked for: without it the same command is refused.
    """
    folder, told = tmp_path / "small", tmp_path / "told"
    with cluster(dashboard=True) as nodes:
        nodes.start("head", cpus=1, environment=dict([_MARK.split("=")]))
        flags = ["--address", nodes.jobs_address, "--python", sys.executable, "--", *_job(tmp_path)]
        without = subprocess.run(_command(flags), capture_output=True, text=True, check=False, env=_environment())
        assert without.returncode == ExitCode.BAD_FLAG and "RAY_AUTH_TOKEN" in without.stderr
        environment = {**_environment(), **nodes.environment}
        environment.pop("RAY_ADDRESS")
        with told.open("wb") as log:
            process = subprocess.Popen(_command(flags), stderr=log, stdout=log, env=environment)
        metrics, deadline = folder / "classification" / "metrics.jsonl", time.monotonic() + 400
        while not (metrics.exists() and '"step": 5' in metrics.read_text()):
            assert process.poll() is None and time.monotonic() < deadline, told.read_text()
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == ExitCode.INTERRUPTED, told.read_text()
        newest = checkpoint.newest_verified(folder / "classification" / "checkpoints")
        steps = [record["step"] for record in read_json_lines(metrics) if "train/loss" in record]
        assert newest is not None and checkpoint.step_of(newest) == steps[-1] >= 5
        assert not (folder / "lock").exists() and not (folder / "stop").exists()
        assert "stopping after a checkpoint" in told.read_text() and "was stopped" in told.read_text()
    assert not processes_with(_MARK)
