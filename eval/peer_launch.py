"""`//eval:audit -- --peer NAME`: hands over to `//eval:audit_peers`, whose packages Bazel installs on its first run.

The packages of other people are not in the environment of `//eval:audit`: nobody needs them to audit a checkpoint.
"""

import enum
import os
import pathlib
import subprocess

from tools import paths
from tools.failure import ExitCode, Failure


class PeerName(enum.StrEnum):
    """A package of requirements-peers.in."""

    EVOFOREST_TAB = "evoforest-tab"
    TABICL = "tabicl"
    TABPFN = "tabpfn"


def audit_peer(name: PeerName, *, json: pathlib.Path | None = None) -> int:
    """Runs `//eval:audit_peers` and returns its exit status.

    Raises:
        Failure: NOT_FOUND where no Bazel started this program: only it can install the packages.
    """
    words = ["tools/bazelw", "run", "//eval:audit_peers", "--", name.value]
    if "BUILD_WORKSPACE_DIRECTORY" not in os.environ:
        raise Failure(
            ExitCode.NOT_FOUND, f"--peer {name} needs packages that only Bazel installs: run `{' '.join(words)}`"
        )
    if json is not None:
        words += ["--json", str(paths.user_path(json))]
    return subprocess.run(words, cwd=paths.workspace(), check=False).returncode
