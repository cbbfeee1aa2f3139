"""Makes the locks from requirements.in and requirements-peers.in: `tools/bazelw run //tools:lock`.

For each supported Python (which must be on PATH, or be named with --interpreters) pip resolves the requirements
without downloading them. `requirements-cuda.lock` holds torch's default Linux wheel and its CUDA packages;
`requirements.lock` holds torch's CPU wheel instead, as far as pip finds one here; hashes of CPU wheels that the old
lock knew are kept while torch's version stays the same. `requirements-peers.lock` holds what other people's packages
need beyond these.
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile
from typing import Any

from tools import files, paths, requirements
from tools.config import parse_flags
from tools.failure import ExitCode, Failure, run_program


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockConfig:
    """How the locks are made."""

    interpreters: tuple[str, ...] = ("python3.11", "python3.12")
    """A Python of every version that the locks serve."""


def main() -> None:
    """Writes the three locks in the workspace."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    config = parse_flags(LockConfig, argv, program="//tools:lock")
    root = paths.workspace()
    asked = (root / "requirements.in").read_text()
    # `===` compares as text, so that a local build such as 2.13.0+cpu does not match.
    default_build = re.sub(r"^torch==(?!=)", "torch===", asked, flags=re.MULTILINE)
    cuda = _resolved(config.interpreters, default_build, base={})
    hashes = _cpu_hashes(config.interpreters, cuda["torch"].version, old=root / "requirements.lock")
    cpu = requirements.cpu_variant(cuda, torch_hashes=hashes)
    note = "Made from requirements.in by `tools/bazelw run //tools:lock`: torch's {} wheel."
    for name, content, build in (("requirements-cuda.lock", cuda, "CUDA"), ("requirements.lock", cpu, "CPU")):
        files.write_bytes(root / name, requirements.write_lock(content, note=note.format(build)).encode())
        print(f"{name}: {len(content)} packages, {len(content['torch'].hashes)} wheels of torch")
    asked = (root / "requirements-peers.in").read_text()
    peers = requirements.beyond(_resolved(config.interpreters, asked, base=cuda), cuda)
    note = "Made from requirements-peers.in by `tools/bazelw run //tools:lock`: what it adds to requirements.lock."
    files.write_bytes(root / "requirements-peers.lock", requirements.write_lock(peers, note=note).encode())
    print(f"requirements-peers.lock: {len(peers)} packages")


def _resolved(
    interpreters: tuple[str, ...], asked: str, *, base: dict[str, requirements.Pin]
) -> dict[str, requirements.Pin]:
    """What `asked` means for every Python, agreeing with the lock `base`."""
    reports: list[dict[str, Any]] = []
    for interpreter in interpreters:
        pinned = base | requirements.resolved(reports)
        reports.append(_resolve(interpreter, asked, pinned=pinned))
    return requirements.resolved(reports)


def _resolve(interpreter: str, asked: str, *, pinned: dict[str, requirements.Pin]) -> dict[str, Any]:
    """pip's installation report for one Python, agreeing with what is `pinned` by the Pythons before it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "requirements.in").write_text(asked)
        (folder / "pinned").write_text("".join(f"{pin.name}==={pin.version}\n" for pin in pinned.values()))
        command = [interpreter, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--only-binary", ":all:", "--report", "report.json", "-r", "requirements.in", "-c", "pinned"]
        try:
            subprocess.run(command, check=True, cwd=folder)
        except (OSError, subprocess.CalledProcessError) as error:
            mend = "put every supported Python on PATH, or name them with --interpreters"
            message = f"{interpreter} cannot resolve what is asked for ({error}): {mend}"
            raise Failure(ExitCode.NOT_FOUND, message) from error
        return json.loads((folder / "report.json").read_text())


def _cpu_hashes(interpreters: tuple[str, ...], version: str, *, old: pathlib.Path) -> frozenset[str]:
    """sha256 of torch's CPU wheels: those that pip finds here, and those that the old lock knew."""
    known = requirements.read_lock(old.read_text()).get("torch") if old.exists() else None
    hashes = set(known.hashes if known and known.version == version else ())
    for interpreter in interpreters:
        for item in _resolve(interpreter, f"torch=={version}\n", pinned={})["install"]:
            if item["metadata"]["name"] == "torch" and item["metadata"]["version"].endswith("+cpu"):
                hashes.add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    return frozenset(hashes)
