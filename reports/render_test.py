"""The program `//reports:render`, run as users run it."""

import os
import pathlib
import subprocess
import sys

import pytest

from reports.sample_run import write_sample_run
from tools.failure import ExitCode


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("runs")
    write_sample_run(root / "tiny")
    return root


def _render(root: pathlib.Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "BUILD_WORKING_DIRECTORY": str(root)}
    command = [sys.executable, "-c", "from reports.render import main; main()", *argv]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_run_is_drawn_and_logged_to_its_own_store(root: pathlib.Path) -> None:
    """The page and its figures are in the run folder and in MLflow, in the run that the folder is tied to."""
    done = _render(root, "tiny")
    assert done.returncode == 0 and done.stdout.strip() == f"report: {root / 'tiny' / 'report.html'}", done.stderr
    (stored,) = (root / "artifacts").rglob("report.html")
    assert stored.read_bytes() == (root / "tiny" / "report.html").read_bytes()
    drawn = {path.name for path in (root / "tiny" / "figures").iterdir()}
    assert {path.name for path in (stored.parent / "figures").iterdir()} == drawn


def test_an_absent_tracking_server_does_not_keep_the_page_from_being_drawn(root: pathlib.Path) -> None:
    """K1: an outage is said in a line, and the work is done."""
    (root / "tiny" / "report.html").unlink(missing_ok=True)
    done = _render(root, "tiny", "--tracking-uri", "http://127.0.0.1:9")
    assert done.returncode == 0 and (root / "tiny" / "report.html").is_file()
    assert "does not answer" in done.stderr and "2 items were not delivered" in done.stderr


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("absent",), ExitCode.NOT_FOUND, "tiny"),
        (("tiny", "--tracking-uri", "files"), ExitCode.BAD_FLAG, "'files'"),
        (("tiny", "--colour", "red"), ExitCode.BAD_FLAG, "--colour"),
    ],
)
def test_bad_input_gets_one_line_and_its_exit_code(
    root: pathlib.Path, argv: tuple[str, ...], code: ExitCode, words: str
) -> None:
    done = _render(root, *argv, "--root", str(root))
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and words in done.stderr
