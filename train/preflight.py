"""What every node of a cluster must have in common with the process that starts training, and what is said if not.

`inspect` runs on each node. It travels by value, so that it can tell what is wrong with a node whose modules are
others than ours: it uses the standard library alone, and nothing else of this file.
"""

import hashlib
import importlib.metadata
import importlib.util
import pathlib
import platform
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Self

from tools.failure import ExitCode, Failure

PACKAGES = ("numpy", "pyarrow", "ray", "safetensors", "torch")
"""Whose versions must agree."""

_APPEARS_SECONDS = 60.0  # how late a network file system may show what another node wrote


def inspect(
    sources: Sequence[str], *, packages: Sequence[str] = PACKAGES, shared: str = "", nonce: str = "", who: str = ""
) -> dict[str, str]:
    """What the node where this runs has.

    Args:
        sources: paths of our sources, such as "tools/files.py".
        packages: whose versions are told.
        shared: a folder that the node must reach; "" for none.
        nonce: what lies there, in `.preflight-<nonce>`.
        who: the node's id: it answers in `.preflight-<nonce>-<who>`.

    Returns:
        "code" (sha256 over the sources as Python finds them), "code from" (their folder), "Python", the version of
        each package ("none" without it), and "reaches": "" or why it does not reach the shared folder.
    """
    folders: dict[str, pathlib.Path] = {}
    digest = hashlib.sha256()
    for path in sources:
        package, _, rest = path.partition("/")
        if package not in folders:
            spec = importlib.util.find_spec(package)
            origin = spec.origin if spec is not None else None
            folders[package] = pathlib.Path(origin).parent if origin is not None else pathlib.Path("/nowhere")
        file = folders[package] / rest
        content = file.read_bytes() if file.is_file() else b""
        digest.update(f"{path} {len(content)}\n".encode() + content)
    found = {
        "code": digest.hexdigest(),
        "code from": ", ".join(sorted({str(item.parent) for item in folders.values()})),
    }
    found["Python"] = ".".join(platform.python_version_tuple()[:2])
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    found["reaches"] = ""
    if shared:
        asked, deadline = pathlib.Path(shared) / f".preflight-{nonce}", time.monotonic() + 20.0
        while not asked.exists() and time.monotonic() < deadline:
            time.sleep(0.2)  # a network file system may show it late
        try:
            if asked.read_text() != nonce:
                found["reaches"] = "another file is there"
            asked.with_name(f"{asked.name}-{who}").write_text(nonce)
        except OSError as error:
            found["reaches"] = error.strerror or "error"
    return found


def refusal(node: str, *, here: Mapping[str, str], there: Mapping[str, str], shared: str) -> str | None:
    """One line on the first thing in which a node differs from this process; None where it is fit.

    Args:
        node: its name and address.
        here: what `inspect` found in this process.
        there: what it found on the node.
        shared: the folder asked for.
    """
    if there["code"] != here["code"]:
        mend = f"on that node, remove {there['code from']} from Python's path, or update it to the same revision"
        return f"node {node} has code {there['code'][:12]}, not {here['code'][:12]} as in {here['code from']}: {mend}"
    for name in here:
        if name in ("code", "code from", "reaches") or there.get(name) == here[name]:
            continue
        mend = "give every node the same Python" if name == "Python" else "install requirements.lock on every node"
        return f"node {node} has {name} {there.get(name, 'none')}, not {here[name]} as here: {mend}"
    if there["reaches"]:
        mend = "give a folder that all nodes share"
        return f"node {node} does not reach --root {shared} ({there['reaches']}): {mend}"
    return None


class SharedFolder:
    """Proves that nodes write into the folder that this process sees; its files go when the context ends.

    Args:
        folder: exists.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.nonce = folder, secrets.token_hex(8)

    def __enter__(self) -> Self:
        """Writes the nonce."""
        try:
            self._file().write_text(self.nonce)
        except OSError as error:
            what = f"--root {self.folder} is not writable ({error.strerror})"
            raise Failure(ExitCode.NOT_WRITABLE, f"{what}: give a folder that you may write to") from error
        return self

    def __exit__(self, *raised: object) -> None:
        """Removes what it and the nodes wrote."""
        for path in self.folder.glob(f"{self._file().name}*"):
            path.unlink(missing_ok=True)

    def has_answer(self, who: str, *, seconds: float = _APPEARS_SECONDS) -> bool:
        """Whether the node wrote into the folder that this process sees, however late it shows here."""
        deadline = time.monotonic() + seconds
        while not self._file(who).exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return self._file(who).read_text() == self.nonce

    def _file(self, who: str = "") -> pathlib.Path:
        return self.folder / "-".join([f".preflight-{self.nonce}", *filter(None, [who])])
