"""A process that answers requests in another package's environment: it draws tasks from its prior, or makes its step.

The client of `//eval:sample_peer_prior --serve` and of `//eval:peer_step`.

The package is not in this environment: the process runs under Bazel, which installs it, or under an interpreter that
the user names.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
from types import TracebackType
from typing import Any, Self

from tools import paths
from tools.failure import BadInput, ExitCode, Failure

PRIOR_SERVER = ("sample_peer_prior", "tabicl", "--serve")
"""Program and words of the process that draws tasks."""
STEP_SERVER = ("peer_step", "tabicl")
"""Program and words of the process that makes training steps."""
_PROGRAM = "import importlib, sys; importlib.import_module(sys.argv.pop(1)).main()"


def peer_command(python: pathlib.Path | None, server: tuple[str, ...] = PRIOR_SERVER) -> list[str]:
    """How the process is started.

    Args:
        python: an interpreter that finds tabicl; None leaves it to Bazel.
        server: a program of //eval, and its words.

    Raises:
        BadInput: NOT_FOUND for an interpreter that is absent, and where no Bazel started this program.
    """
    if python is not None:
        if not os.access(python, os.X_OK) or python.is_dir():
            raise BadInput(ExitCode.NOT_FOUND, f"--peer-python {python} is no program: name a Python that has tabicl")
        return [str(python), "-c", _PROGRAM, f"eval.{server[0]}", *server[1:]]
    if "BUILD_WORKSPACE_DIRECTORY" not in os.environ:
        mend = "start this program with `bazel run`, or name a Python that has it with --peer-python"
        raise BadInput(ExitCode.NOT_FOUND, f"tabicl is not installed here: {mend}")
    return ["tools/bazelw", "run", f"//eval:{server[0]}", "--", *server[1:]]


class PeerProcess:
    """The running process, from entering this context manager to leaving it.

    Args:
        command: of `peer_command`.

    Raises:
        Failure: WORKER_FAILED where it does not come up, with the last line that it wrote.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._complaints = tempfile.TemporaryFile(mode="w+")
        root = str(pathlib.Path(__file__).resolve().parents[1])
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=paths.workspace(),
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        )
        try:
            self._read()  # that it is ready
        except Failure:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and a request is left
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._complaints.close()

    def seconds_per_task(self, config: dict[str, Any], *, seed: int, count: int, core: int | None = None) -> float:
        """Has tasks drawn, and says how long one took.

        Args:
            config: fields of `eval.peer_prior.PeerPriorConfig`.
            seed: of the tasks.
            count: how many.
            core: the core that the process is to run on; None leaves it as it is.

        Raises:
            Failure: BAD_FLAG for what the process refuses, WORKER_FAILED when it ends.
        """
        self.send({"config": config, "seed": seed, "count": count, "core": core})
        return float(self.receive()["seconds_per_task"])

    def send(self, request: dict[str, Any]) -> None:
        """Asks for something; the process works at it meanwhile.

        Raises:
            Failure: WORKER_FAILED when it has ended.
        """
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> dict[str, Any]:
        """The answer.

        Raises:
            Failure: BAD_FLAG for what the process refuses, WORKER_FAILED when it ends.
        """
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(ExitCode.BAD_FLAG, f"tabicl refused: {answer['error']}")
        return answer

    def _ended(self) -> Failure:
        self._process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().strip().splitlines()
        why = lines[-1] if lines else f"exit status {self._process.returncode}"
        mend = "see that `bazel run //eval:sample_peer_prior -- tabicl` works"
        return Failure(ExitCode.WORKER_FAILED, f"the process of tabicl ended ({why}): {mend}")
