"""Tests of tools/warden.py: a driver whose child left its session, ended in two ways."""

import os
import select
import signal
import subprocess
import sys

import pytest

# The sleeper holds the other end of our pipe: it closes when the last process is gone.
_DRIVER = """
import subprocess, sys, time
from tools.warden import warden
with warden():
    sleeper = "import os, time; os.write(1, b'up'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kill", [True, False])
def test_a_detached_process_ends_with_who_started_it_however_that_ends(kill: bool) -> None:
    """T9: kill −9, and the normal end."""
    read, written = os.pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _DRIVER]
    driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=written, env=environment)
    os.close(written)
    try:
        assert os.read(read, 2) == b"up"
        assert not select.select([read], [], [], 0.2)[0]
        if kill:
            driver.send_signal(signal.SIGKILL)
        assert driver.stdin is not None
        driver.stdin.close()
        driver.wait(20)
        assert select.select([read], [], [], 10)[0] and os.read(read, 1) == b""
    finally:
        os.close(read)
