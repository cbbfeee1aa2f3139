"""What a lock file says: exact versions and the sha256 of every wheel that may be installed."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

_CUDA_ONLY = re.compile(r"(nvidia|cuda)-.*|triton")
_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*([^#;\s]*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of a lock: a version and the wheels that are that version."""

    name: str
    version: str
    hashes: frozenset[str]

    def line(self) -> str:
        """The pin as pip reads it."""
        hashes = [f"--hash=sha256:{digest}" for digest in sorted(self.hashes)]
        return " ".join([f"{self.name}=={self.version}", *hashes])


def normal_name(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def label_name(name: str) -> str:
    """The name of a package's target in `@pypi`."""
    return normal_name(name).replace("-", "_")


def wanted(text: str) -> dict[str, str]:
    """Reads requirements.in: normal name to version specifier ('' where none is asked for)."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    matches = (_NAME.match(line) for line in lines if line)
    return {normal_name(match[1]): match[2] for match in matches if match}


def read_lock(text: str) -> dict[str, Pin]:
    """Reads a lock: normal name to pin."""
    pins = {}
    for line in text.splitlines():
        match = _PIN.match(line)
        if match:
            pins[normal_name(match[1])] = Pin(name=match[1], version=match[2], hashes=frozenset(_HASH.findall(line)))
    return pins


def write_lock(pins: Mapping[str, Pin], *, note: str) -> str:
    """A lock's text, sorted by name; `note` is its first line."""
    return "\n".join([f"# {note}", *(pins[name].line() for name in sorted(pins)), ""])


def resolved(reports: Iterable[Mapping[str, Any]]) -> dict[str, Pin]:
    """Joins pip's installation reports, one per Python, into pins with the wheels of all of them.

    Raises:
        ValueError: two reports disagree about a version; constrain the later resolution with the earlier one.
    """
    pins: dict[str, Pin] = {}
    for report in reports:
        for item in report["install"]:
            name, version = normal_name(item["metadata"]["name"]), item["metadata"]["version"]
            known = pins.get(name, Pin(name=name, version=version, hashes=frozenset()))
            if known.version != version:
                raise ValueError(f"{name} is {known.version} on one Python and {version} on another")
            digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
            pins[name] = dataclasses.replace(known, hashes=known.hashes | {digest})
    return pins


def cpu_variant(pins: Mapping[str, Pin], *, torch_hashes: frozenset[str]) -> dict[str, Pin]:
    """The same lock for torch's CPU wheel, which needs none of the CUDA packages."""
    kept = {name: pin for name, pin in pins.items() if not _CUDA_ONLY.fullmatch(name)}
    return {**kept, "torch": dataclasses.replace(kept["torch"], hashes=torch_hashes)}


def beyond(pins: Mapping[str, Pin], base: Mapping[str, Pin]) -> dict[str, Pin]:
    """What a resolution adds to the lock `base` that it was constrained by.

    Raises:
        ValueError: it has another version of something that `base` pins.
    """
    for name in sorted(set(pins) & set(base)):
        found, known = pins[name].version.partition("+")[0], base[name].version
        if found != known:
            raise ValueError(f"{name} is {found}, and {known} in the lock that it adds to")
    return {name: pin for name, pin in pins.items() if name not in base}
