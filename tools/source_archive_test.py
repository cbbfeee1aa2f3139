"""Tests of tools/source_archive.py."""

import io
import os
import pathlib
import sys
import time
import zipfile

import pytest

from tools import source_archive


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A package `shipped` that can be imported."""
    package = tmp_path / "shipped"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "b.py", "a.py", "a_test.py", "a.main.py", "page.css", "notes.txt", "inner/c.py"):
        (package / name).write_text(f"# {name}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return package


def test_the_bytes_depend_on_the_sources_alone(folder: pathlib.Path) -> None:
    """Neither times, nor modes, nor what lies beside them, nor the clock."""
    first = source_archive.packed(["shipped"])
    os.utime(folder / "a.py", (1, 1))
    (folder / "a.py").chmod(0o600)
    (folder / "left.txt").write_text("not ours")
    time.sleep(2.1)  # a zip's dates are even seconds
    assert source_archive.packed(["shipped"]) == first
    (folder / "a.py").write_text("# changed\n")
    assert source_archive.packed(["shipped"]).digest != first.digest


def test_it_holds_modules_and_templates_but_no_tests_and_can_be_imported(folder: pathlib.Path) -> None:
    packed = source_archive.packed(["shipped"])
    assert packed.paths == (
        "shipped/__init__.py",
        "shipped/a.py",
        "shipped/b.py",
        "shipped/inner/c.py",
        "shipped/page.css",
    )
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert tuple(archive.namelist()) == packed.paths
        assert archive.read("shipped/a.py") == (folder / "a.py").read_bytes()


def test_our_own_package_is_found_and_packed() -> None:
    packages = ("tools",)
    assert (source_archive.source_root(packages) / "tools" / "source_archive.py").exists()
    assert {"tools/source_archive.py", "tools/__init__.py"} <= set(source_archive.packed(packages).paths)


def test_packages_that_lie_apart_or_nowhere_are_refused(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="several folders"):
        source_archive.source_root(["shipped", "tools"])
    with pytest.raises(ValueError, match="absent is no package"):
        source_archive.packed(["absent"])
