"""Ends what a process began when that process is gone: all that was started meanwhile by any of its descendants."""

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator

from tools.environment import environment

_NAME = "VERITAB_SESSION"
_END_SECONDS = 10.0

# Runs beside the process: waits until its end of the pipe is closed, then kills −9 whoever carries the mark.
_PROGRAM = """
import os, signal, sys, time
mark = sys.argv[1].encode()
sys.stdin.buffer.read()
deadline, found = time.monotonic() + 5.0, True
while found and time.monotonic() < deadline:
    found = False
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark in open(f"/proc/{name}/environ", "rb").read().split(bytes(1)):
                os.kill(int(name), signal.SIGKILL)
                found = True
        except OSError:
            pass
    time.sleep(0.1)
"""


@contextlib.contextmanager
def warden() -> Iterator[None]:
    """Marks in its environment every process that is started while the context lasts, and ends it with the context.

    Also when this process is killed −9: Ray, for one, leaves agents behind then, for minutes.
    """
    mark = secrets.token_hex(8)
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, f"{_NAME}={mark}"]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        with environment(**{_NAME: mark}):
            yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(_END_SECONDS)
