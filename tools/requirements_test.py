"""Tests of tools/requirements.py, and of the committed locks: complete, minimal, hashed, what requirements.in asks."""

import importlib.metadata
import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tools import layering, requirements
from tools.requirements import Pin

_ASKED = pathlib.Path("requirements.in").read_text()
_LOCKS = ("requirements.lock", "requirements-cuda.lock")
_PEERS_LOCK = "requirements-peers.lock"
_FLOORS = {"ray": "2.59", "mlflow": "3.11", "torch": "2.6"}


def _lock(name: str) -> dict[str, Pin]:
    return requirements.read_lock(pathlib.Path(name).read_text())


def _report(*items: tuple[str, str, str]) -> dict[str, object]:
    """What pip reports of packages (name, version, sha256)."""
    return {
        "install": [
            {
                "metadata": {"name": name, "version": version},
                "download_info": {"archive_info": {"hashes": {"sha256": digest}}},
            }
            for name, version, digest in items
        ]
    }


@pytest.mark.parametrize("name", _LOCKS)
def test_the_lock_is_what_requirements_asks_for(name: str) -> None:
    lock = _lock(name)
    for line in _ASKED.splitlines():
        if not line.startswith("#"):
            asked = Requirement(line)
            assert asked.specifier.contains(lock[requirements.normal_name(asked.name)].version), line


@pytest.mark.parametrize("name", [*_LOCKS, _PEERS_LOCK])
def test_every_line_of_a_lock_is_an_exact_version_with_hashes(name: str) -> None:
    """S3: --require-hashes."""
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( --hash=sha256:[0-9a-f]{64})+")
    lines = [line for line in pathlib.Path(name).read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not pin.fullmatch(line)] == []
    assert len(lines) == len(_lock(name)) > (5 if name == _PEERS_LOCK else 100)


@pytest.mark.parametrize("name", _LOCKS)
def test_versions_are_above_their_floors(name: str) -> None:
    """S3: version floors."""
    lock = _lock(name)
    for package, floor in _FLOORS.items():
        assert Version(lock[package].version) >= Version(floor)


def test_what_is_installed_is_complete_and_nothing_more() -> None:
    """The locks install with --no-deps: what they name must be closed under the packages' own requirements."""
    cuda, cpu = _lock("requirements-cuda.lock"), _lock("requirements.lock")
    installed = {requirements.normal_name(item.name): item for item in importlib.metadata.distributions()}
    lock = cuda if "nvidia-cublas" in installed else cpu
    reached: set[str] = set()
    pending = [Requirement(line) for line in _ASKED.splitlines() if not line.startswith("#")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        asked = pending.pop()
        name, extras = requirements.normal_name(asked.name), frozenset(asked.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        assert name in lock, f"{name} is needed and not locked"
        reached.add(name)
        for text in installed[name].requires or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                pending.append(need)
    assert set(lock) - reached == set()
    versions = {name: installed[name].version.partition("+")[0] for name in lock}
    assert versions == {name: pin.version for name, pin in lock.items()}


def test_both_locks_agree_but_for_the_build_of_torch() -> None:
    cuda, cpu = _lock("requirements-cuda.lock"), _lock("requirements.lock")
    assert {name for name in cpu if cpu[name] != cuda[name]} == {"torch"}
    assert cpu["torch"].version == cuda["torch"].version
    assert not cpu["torch"].hashes & cuda["torch"].hashes
    assert {name.split("-")[0] for name in set(cuda) - set(cpu)} == {"cuda", "nvidia", "triton"}


def test_the_lock_of_peers_adds_to_both_others_and_changes_nothing() -> None:
    peers = _lock(_PEERS_LOCK)
    for name in _LOCKS:
        assert set(peers) & set(_lock(name)) == set()
    asked = requirements.wanted(pathlib.Path("requirements-peers.in").read_text())
    assert asked == {name: f"=={peers[name].version}" for name in asked}
    assert set(layering.PEERS.values()) == set(asked) - {"xgboost-cpu"}  # which tabicl's prior imports


def test_what_a_resolution_adds_is_what_the_lock_does_not_have() -> None:
    def pins(**versions: str) -> dict[str, Pin]:
        return {name: Pin(name=name, version=version, hashes=frozenset("x")) for name, version in versions.items()}

    base = pins(numpy="2", torch="2.13.0")
    assert requirements.beyond(pins(numpy="2", torch="2.13.0+cpu", tqdm="4"), base) == pins(tqdm="4")
    with pytest.raises(ValueError, match="numpy is 1, and 2 in the lock that it adds to"):
        requirements.beyond(pins(numpy="1"), base)


def test_requirements_are_read_by_normal_name() -> None:
    text = "# note\nray[train,default]==2.60.0\nScikit_Learn==1.9.*  # why\npandas\n"
    assert requirements.wanted(text) == {"ray": "==2.60.0", "scikit-learn": "==1.9.*", "pandas": ""}


def test_a_lock_is_read_as_it_was_written() -> None:
    pins = {"b": Pin(name="b", version="2", hashes=frozenset({"0" * 64, "1" * 64}))}
    pins["a-c"] = Pin(name="A_c", version="1.0", hashes=frozenset({"2" * 64}))
    text = requirements.write_lock(pins, note="Made by hand.")
    assert requirements.read_lock(text) == pins
    assert text.splitlines()[:2] == ["# Made by hand.", f"A_c==1.0 --hash=sha256:{'2' * 64}"]


def test_wheels_of_two_pythons_are_joined() -> None:
    pins = requirements.resolved([_report(("A.b", "1", "x")), _report(("a-b", "1", "y"), ("c", "2", "z"))])
    assert pins["a-b"] == Pin(name="a-b", version="1", hashes=frozenset({"x", "y"}))
    assert set(pins) == {"a-b", "c"}


def test_two_versions_of_one_package_are_refused() -> None:
    with pytest.raises(ValueError, match="a is 1 on one Python and 2 on another"):
        requirements.resolved([_report(("a", "1", "x")), _report(("a", "2", "y"))])


def test_the_cpu_lock_leaves_out_what_only_cuda_needs() -> None:
    names = ("torch", "nvidia-cublas", "cuda-toolkit", "triton", "numpy")
    pins = {name: Pin(name=name, version="1", hashes=frozenset({"x"})) for name in names}
    cpu = requirements.cpu_variant(pins, torch_hashes=frozenset({"y"}))
    assert cpu == {"numpy": pins["numpy"], "torch": Pin(name="torch", version="1", hashes=frozenset({"y"}))}


def test_a_target_is_named_in_lower_case_with_underscores() -> None:
    assert requirements.label_name("Scikit-Learn") == "scikit_learn"
