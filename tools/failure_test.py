"""Tests of tools/failure.py."""

import shlex
import signal
import subprocess
import sys

import pytest

from tools.failure import ExitCode, Failure

_PROGRAM = """
from tools.failure import ExitCode, Failure, run_program

def program(argv):
    {body}

run_program(program)
"""


def _run(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM.format(body=body), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_failure_becomes_one_line_and_its_exit_code() -> None:
    done = _run("raise Failure(ExitCode.RUN_BUSY, 'run a\\n is held:  wait')")
    assert (done.returncode, done.stdout, done.stderr) == (17, "", "error: run a is held: wait\n")


def test_a_defect_keeps_its_traceback() -> None:
    done = _run("raise KeyError('x')")
    assert "Traceback" in done.stderr and "KeyError" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(("value", "status"), [("None", 0), ("0", 0), ("ExitCode.AUDIT_FAILED", 1), ("7", 7)])
def test_the_value_of_main_is_the_exit_status(value: str, status: int) -> None:
    assert _run(f"return {value}").returncode == status


def test_main_gets_the_arguments_without_the_program() -> None:
    assert _run("print(argv)", "tiny", "--seed=1").stdout == "['tiny', '--seed=1']\n"


def test_an_interrupt_ends_with_one_line() -> None:
    done = _run("raise KeyboardInterrupt")
    assert done.returncode == ExitCode.INTERRUPTED
    assert done.stderr.startswith("error: interrupted") and done.stderr.count("\n") == 1


def test_a_sigterm_is_an_interrupt_where_a_program_asks_for_it_and_no_word_where_it_does_not() -> None:
    asks = "from tools.failure import interrupt_on_sigterm; interrupt_on_sigterm();"
    struck = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert _run(f"{asks} {struck}").returncode == ExitCode.INTERRUPTED
    done = _run(struck)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


def test_a_reader_that_has_enough_ends_a_program_without_a_word() -> None:
    text = "from tools.failure import run_program; run_program(lambda argv: [print(i) for i in range(100_000)] and 0)"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(text)} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_failure_reads_as_its_message() -> None:
    failure = Failure(ExitCode.BAD_NAME, "name 'a/b' is not legal")
    assert (str(failure), failure.code) == ("name 'a/b' is not legal", ExitCode.BAD_NAME)


def test_exit_codes_are_distinct_and_fit_a_process() -> None:
    values = [int(code) for code in ExitCode.__members__.values()]
    assert len(values) == len(set(values))
    assert all(0 <= value < 126 for value in values)
