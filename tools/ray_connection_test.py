"""Tests of tools/ray_connection.py: an instance of our own, and clusters that are not there.

One that is there is joined in train/nodes_test.py.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tools.failure import ExitCode, Failure
from tools.ray_connection import connection
from tools.ray_session import RAY_SETTINGS

_PROGRAM = """
import time

from tools.failure import run_program
from tools.ray_connection import connection

def main(argv):
    start = time.monotonic()
    try:
        with connection("auto", packages=["tools"]):
            pass
    finally:
        print(time.monotonic() - start, flush=True)
        time.sleep(3)  # as on a machine that is slow to end a process

run_program(main)
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.2", 0)) as server:  # Ray takes 127.0.0.1 for the machine's own address
        yield f"127.0.0.2:{server.getsockname()[1]}"


def test_a_cluster_that_is_silent_is_refused_in_ten_seconds_with_one_line(silent: str) -> None:
    """A head that hangs: it takes connections, and Ray alone would wait a minute and abort.

    In a process of its own, with which ends what waits inside Ray.
    """
    environment = {**os.environ, **RAY_SETTINGS, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_ADDRESS": silent}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == ExitCode.TOO_FEW_RESOURCES
    assert "takes connections and does not answer" in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, "Ray's own lines stay away"
    assert float(done.stdout) < 10


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("127.0.0.1:1", ExitCode.TOO_FEW_RESOURCES, ":1; start one with `ray start --head`"),
        ("nonsense", ExitCode.BAD_FLAG, "RAY_ADDRESS is no address"),
        ("http://127.0.0.1:8265", ExitCode.BAD_FLAG, "RAY_ADDRESS is no address"),
        ("local", ExitCode.TOO_FEW_RESOURCES, "RAY_ADDRESS names none"),
    ],
)
def test_an_address_where_nothing_is_is_refused_at_once(
    address: str, code: ExitCode, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    start = time.monotonic()
    with pytest.raises(Failure) as caught, connection("auto", packages=["tools"]):
        pass
    assert caught.value.code is code and words in caught.value.message
    assert time.monotonic() - start < 10


def test_a_machine_too_busy_to_start_ray_is_one_line_and_a_defect_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Ray raises after half a minute; here at once."""
    said = ["The current node timed out during startup. This could happen because ...", "a defect"]
    for text, kind in zip(said, (Failure, Exception), strict=True):

        def init(text: str = text, **arguments: object) -> None:
            raise Exception(text)

        monkeypatch.setattr("ray.init", init)
        with (
            pytest.raises(Exception, match="Ray did not start|a defect") as caught,
            connection("local", packages=["tools"]),
        ):
            pass
        assert type(caught.value) is kind
        assert kind is Exception or caught.value.code is ExitCode.TOO_FEW_RESOURCES
