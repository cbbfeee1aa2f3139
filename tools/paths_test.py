"""Tests of tools/paths.py."""

import pathlib

import pytest
from hypothesis import given, strategies

from tools import paths
from tools.failure import ExitCode, Failure


@pytest.fixture
def stands_in(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder that the user stands in, as `bazel run` tells it."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


def test_a_relative_path_starts_where_the_user_stands(stands_in: pathlib.Path) -> None:
    assert paths.user_path("a/../b") == stands_in / "b"


def test_an_absolute_path_stays(stands_in: pathlib.Path) -> None:
    assert paths.user_path("/a/b") == pathlib.Path("/a/b")


def test_a_tilde_is_the_home_folder(stands_in: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert paths.user_path("~/tables") == pathlib.Path("/home/someone/tables")


def test_without_bazel_paths_start_in_the_current_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert paths.user_path("a") == tmp_path / "a"
    assert paths.default_root() == tmp_path / "runs"


def test_outputs_go_to_the_workspace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    assert paths.default_root() == tmp_path / "runs"


@pytest.mark.parametrize("name", ["tiny-3f", "A", ".hidden", "a" * 128, "-x", "1.5"])
def test_a_legal_name_is_kept(name: str) -> None:
    assert paths.checked_name(name, what="run") == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "a\n", "ä", "a" * 129, "a\x00", "C:\\x"])
def test_an_illegal_name_is_refused_with_its_value(name: str) -> None:
    """S4: names are [A-Za-z0-9._-]{1,128}."""
    with pytest.raises(Failure, match="is not a legal name: use 1 to 128 of") as caught:
        paths.checked_name(name, what="run")
    assert caught.value.code == ExitCode.BAD_NAME
    assert repr(name) in caught.value.message


@given(strategies.text(max_size=140))
def test_no_name_leads_out_of_its_root(name: str) -> None:
    """S4: paths stay under their root (fuzz)."""
    root = pathlib.Path("/root/of/runs")
    try:
        legal = paths.checked_name(name, what="run")
    except Failure:
        return
    assert (root / legal).resolve().parent == root


def test_a_writable_folder_is_made_and_left_empty(tmp_path: pathlib.Path) -> None:
    folder = paths.writable_folder(tmp_path / "a" / "b", flag="--out")
    assert folder.is_dir() and not list(folder.iterdir())


def test_a_file_to_be_written_gets_its_folder_and_is_not_made_yet(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert paths.writable_file("a/found.json", flag="--json") == tmp_path / "a" / "found.json"
    assert list((tmp_path / "a").iterdir()) == []
    (tmp_path / "file").touch()
    for path, words in (("a", "a is a folder: give the name of a file"), ("file/x.json", "file is not writable")):
        with pytest.raises(Failure, match=rf"--json \S+{words}") as caught:
            paths.writable_file(path, flag="--json")
        assert caught.value.code == ExitCode.NOT_WRITABLE


def test_a_folder_that_cannot_be_written_names_flag_and_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match=r"--out \S+file/x is not writable") as caught:
        paths.writable_folder(tmp_path / "file" / "x", flag="--out")
    assert caught.value.code == ExitCode.NOT_WRITABLE
