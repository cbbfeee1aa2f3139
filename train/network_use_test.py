"""The main job, whole, in small, offline: where it listens, whom it calls, and what kind of files it leaves."""

import ipaddress
import os
import pathlib
import subprocess
import sys
import time

import pytest

from train.toy_flags import toy_flags

_GUARD = """
import ipaddress, os, sys

def _is_near(host):
    if host in (None, "", b"", "localhost", b"localhost", os.uname().nodename):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False

def _guard(event, arguments):
    host = "localhost"
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyname_ex"):
        host = arguments[0]
    if not _is_near(host):
        with open(os.environ["GUARD_LOG"], "a") as log:
            log.write(f"{event} {host} by {sys.argv}\\n")
        raise OSError(f"the test's guard allows no {event} to {host}")

sys.addaudithook(_guard)
"""
_LISTENS = "0A"


def _family(pid: int) -> list[int]:
    """A process and all that come from it."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def _sockets(pids: list[int]) -> set[str]:
    """Inodes of the sockets that processes hold."""
    found = set()
    for pid in pids:
        try:
            links = [os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        found |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """What /proc/net/tcp writes: 32-bit words, each in the order of this machine."""
    words = bytes.fromhex(text.split(":")[0])
    raw = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
    found = ipaddress.ip_address(raw)
    return getattr(found, "ipv4_mapped", None) or found


def _ends(pid: int) -> tuple[set[str], set[str]]:
    """Addresses that the family of `pid` listens at, and those that it is connected to or calls."""
    mine, listening, called = _sockets(_family(pid)), set(), set()
    for table in ("tcp", "tcp6"):
        path = pathlib.Path("/proc/net") / table
        for row in [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []:
            if row[9] in mine and row[3] == _LISTENS:
                listening.add(str(_address(row[1])))
            elif row[9] in mine:
                called.add(str(_address(row[2])))
    return listening, called


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """One run of the main job with its guard in every Python process, looked at twice a second."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "sitecustomize.py").write_text(_GUARD)
    log = folder / "guard.log"
    log.touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "GUARD_LOG": str(log)}
    flags = [*toy_flags(folder / "runs"), "--cluster.num-workers", "2"]
    command = [sys.executable, "-c", "from train.pretrain import main; main()", *flags]
    said = folder / "said"
    listening: set[str] = set()
    called: set[str] = set()
    with said.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as job:
        while job.poll() is None:
            found = _ends(job.pid)
            listening, called = listening | found[0], called | found[1]
            time.sleep(0.5)
    assert job.returncode == 0, said.read_text()
    return {"listening": listening, "called": called, "guard": log.read_text(), "root": folder / "runs"}


def test_a_local_run_listens_on_loopback_alone(seen: dict[str, object]) -> None:
    """S2: driver, Ray with its workers, and what joins the workers."""
    assert seen["listening"], "Ray listens somewhere"
    assert {address for address in seen["listening"] if not ipaddress.ip_address(address).is_loopback} == set()


def test_an_offline_run_calls_nobody(seen: dict[str, object]) -> None:
    """S3: a guard in each Python process refuses and notes all that is not loopback; others' sockets are read."""
    assert seen["guard"] == ""
    assert {address for address in seen["called"] if not ipaddress.ip_address(address).is_loopback} == set()


def _is_pickle(content: bytes) -> bool:
    """Opcodes of a protocol from 2 on, from PROTO to STOP, or a zip."""
    return content[:4] == b"PK\x03\x04" or (
        content[:1] == b"\x80" and content[1] in range(2, 6) and content[-1:] == b"."
    )


def test_no_file_of_a_run_is_a_pickle(seen: dict[str, object]) -> None:
    """S1: neither a pickle nor the archive that torch wraps one in."""
    paths = [path for path in seen["root"].rglob("*") if path.is_file()]
    assert len(paths) > 20
    assert [path for path in paths if _is_pickle(path.read_bytes())] == []
    assert _is_pickle(b"\x80\x04]\x94.") and _is_pickle(b"PK\x03\x04...")  # an empty list; a zip


def test_the_guard_refuses_and_notes_a_call_beyond_loopback(tmp_path: pathlib.Path) -> None:
    """S3: it can fail."""
    (tmp_path / "sitecustomize.py").write_text(_GUARD)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "GUARD_LOG": str(tmp_path / "log")}
    for code in (
        "import socket; socket.socket().connect(('192.0.2.1', 80))",
        "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 80))",
        "import socket; socket.getaddrinfo('example.invalid', 80)",
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "the test's guard allows no" in done.stderr
    assert (tmp_path / "log").read_text().count("\n") == 3
    near = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert subprocess.run([sys.executable, "-c", near], env=environment, check=False).returncode == 0
