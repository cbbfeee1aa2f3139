"""The one exception that a user may see, and the exit code of every kind of bad input.

A `Failure` is one line that names the thing, the value and the mend. `run_program` turns it into that line on
standard error and the exit code; anything else that escapes is a defect of ours and keeps its traceback.
"""

import enum
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


class ExitCode(enum.IntEnum):
    """What the exit status of every program means (the README's table is checked against this list)."""

    OK = 0
    AUDIT_FAILED = 1
    BAD_FLAG = 2
    UNKNOWN_PRESET = 3
    NOT_WRITABLE = 4
    DISK_FULL = 5
    SHARD_CORRUPT = 6
    SHARD_MISSING = 7
    FORMAT_VERSION = 8
    CHECKPOINT_CORRUPT = 9
    TABLE_EMPTY = 10
    TABLE_ONE_CLASS = 11
    TABLE_TEXT_COLUMN = 12
    TABLE_EMPTY_COLUMN = 13
    TABLE_LABELS = 14
    OVER_LIMIT = 15
    TOO_FEW_RESOURCES = 16
    RUN_BUSY = 17
    BAD_NAME = 18
    NOT_FOUND = 19
    CONFIG_MISMATCH = 20
    DIVERGED = 21
    INTERRUPTED = 22
    WORKER_FAILED = 23
    PORT_BUSY = 24
    TABLE_FILE = 25
    RESULTS_CORRUPT = 26
    BAD_MASK = 27
    BAD_LEVEL = 28
    BAD_SHAPE = 29


class Failure(Exception):
    """A refusal that the user can act on.

    Args:
        code: the exit status of the program.
        message: one line: the thing, its value, and how to mend it.
    """

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["Failure"], tuple[ExitCode, str]]:
        """How it travels between processes."""
        return type(self), (self.code, self.message)


class BadInput(Failure, ValueError):
    """A failure for a value that the caller passed: also the `ValueError` that users of the library expect."""


def run_program(main: Callable[[list[str]], int | None]) -> None:
    """Runs `main` on the command line; a `Failure` becomes one line on standard error and its exit code."""
    try:
        status = main(sys.argv[1:])
    except Failure as failure:
        sys.stderr.write(f"error: {' '.join(failure.message.split())}\n")
        sys.exit(int(failure.code))
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted; run the same command again to go on\n")
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:  # whoever reads what is printed, such as `head`, has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.OK))
    sys.exit(int(status or 0))


def interrupt_on_sigterm() -> None:
    """From now on SIGTERM is to this process what Ctrl-C is: a `KeyboardInterrupt`."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
