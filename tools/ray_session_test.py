"""Tests of tools/ray_session.py: what is refused before Ray starts, and what a local instance leaves."""

import os
import pathlib
import socket

import pytest

from tools import ray_session
from tools.failure import ExitCode, Failure


@pytest.mark.parametrize("address", ["ray://head:10001", "10.0.0.1:6379", ""])
def test_an_address_that_cannot_be_used_is_refused(address: str) -> None:
    with pytest.raises(Failure) as caught:
        ray_session.check_address(address)
    assert caught.value.code is ExitCode.BAD_FLAG and address in caught.value.message
    assert ("Ray Jobs" in caught.value.message) == address.startswith("ray://")


def test_by_default_every_core_works() -> None:
    assert ray_session.num_workers(None, cores=6) == 6
    assert ray_session.num_workers(2, cores=6) == 2


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (0, ExitCode.BAD_FLAG, "--cluster.num-workers 0 is too small"),
        (7, ExitCode.TOO_FEW_RESOURCES, "7 is more than the cluster's 6 cores"),
    ],
)
def test_numbers_that_cannot_be_are_refused(number: int, code: ExitCode, words: str) -> None:
    with pytest.raises(Failure) as caught:
        ray_session.num_workers(number, cores=6)
    assert caught.value.code is code and words in caught.value.message


def test_an_instance_of_our_own_listens_on_loopback_and_leaves_no_folder() -> None:
    """S2: loopback by default."""
    stale = pathlib.Path("/tmp", ray_session.folder_prefix(4194305) + "left")  # above the largest process number
    elsewhere = pathlib.Path("/tmp/veritab-4194305-x-left")  # in another container the number means another process
    for path in (stale, elsewhere):
        path.mkdir(exist_ok=True)
    with ray_session.init_arguments("local", packages=["tools"]) as arguments:
        folder = pathlib.Path(arguments["_temp_dir"])
        assert folder.is_dir() and folder.name.split("-")[1] == str(os.getpid())
        assert (arguments["address"], arguments["_node_ip_address"]) == ("local", "127.0.0.1")
        (place,) = arguments["runtime_env"]["py_modules"]
        assert pathlib.Path(place.removeprefix("local://"), "tools", "ray_session.py").exists()
        assert arguments["runtime_env"]["env_vars"]["RAY_USAGE_STATS_ENABLED"] == "0"
        token = os.environ["RAY_AUTH_TOKEN"]
        assert len(token) == 64
    assert not folder.exists() and not stale.exists() and os.environ.get("RAY_AUTH_TOKEN") != token
    elsewhere.rmdir()


def test_a_cluster_is_joined_with_our_source_alone() -> None:
    uri = "gcs://veritab-0.zip"
    with ray_session.init_arguments("auto", packages=["tools"], archive_uri=uri) as arguments:
        assert arguments["address"] == "auto" and "_temp_dir" not in arguments
        assert arguments["runtime_env"]["py_modules"] == [uri]


def test_what_answers_is_told_from_what_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ray_session.answers(f"127.0.0.1:{port}", seconds=2.0)
    assert not ray_session.answers(f"127.0.0.1:{port}", seconds=2.0)
    assert not ray_session.answers("nowhere", seconds=2.0) and not ray_session.answers("h:99999999", seconds=2.0)
