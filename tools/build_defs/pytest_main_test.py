"""Tests of the pytest main: it fails on a failing test and on an empty file, sharded or not."""

import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

_PASSING = "def test_a() -> None: pass\ndef test_b() -> None: pass\ndef test_c() -> None: pass\n"
_FAILING = "def test_a() -> None: pass\ndef test_b() -> None: assert False\ndef test_c() -> None: pass\n"
_EMPTY = "def check_a() -> None: pass\n"
_WARNING = "import warnings\ndef test_a() -> None: warnings.warn('old')\n"
_MAIN = "from tools.build_defs.pytest_main import main; main('inner_test.py')"


def _statuses(
    folder: pathlib.Path, source: str, *, shards: int = 0, only: str = ""
) -> list[tuple[int, list[str]]]:
    """Runs the main on an inner test file as Bazel does: the status and the names of the tests run, by shard."""
    (folder / "inner_test.py").write_text(source)
    (folder / "pyproject.toml").write_text(pathlib.Path("pyproject.toml").read_text())
    statuses = []
    for index in range(max(shards, 1)):
        result = folder / f"result-{index}.xml"
        environment = {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": ":".join(sys.path),
            "TEST_TMPDIR": str(folder / "tmp"),
            "XML_OUTPUT_FILE": str(result),
            **({"TESTBRIDGE_TEST_ONLY": only} if only else {}),
        }
        if shards:
            touched = folder / f"shard-{index}"
            environment["TEST_SHARD_STATUS_FILE"] = str(touched)
            environment |= {"TEST_TOTAL_SHARDS": str(shards), "TEST_SHARD_INDEX": str(index)}
        command = [sys.executable, "-c", _MAIN]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
        assert not shards or touched.exists()
        cases = xml.etree.ElementTree.parse(result).iter("testcase")
        statuses.append((done.returncode, [case.get("name", "") for case in cases]))
    return statuses


@pytest.mark.parametrize("shards", [0, 2, 5])
def test_a_passing_file_runs_each_test_once(tmp_path: pathlib.Path, shards: int) -> None:
    statuses = _statuses(tmp_path, _PASSING, shards=shards)
    assert {status for status, _ in statuses} == {0}
    assert sorted(name for _, names in statuses for name in names) == ["test_a", "test_b", "test_c"]


@pytest.mark.parametrize("shards", [0, 2])
def test_a_failing_test_fails_its_shard_alone(tmp_path: pathlib.Path, shards: int) -> None:
    statuses = _statuses(tmp_path, _FAILING, shards=shards)
    assert [status != 0 for status, _ in statuses] == ["test_b" in names for _, names in statuses]
    assert any(status for status, _ in statuses)


@pytest.mark.parametrize("source", ["", _EMPTY])
@pytest.mark.parametrize("shards", [0, 2])
def test_a_file_without_tests_fails_everywhere(tmp_path: pathlib.Path, source: str, shards: int) -> None:
    assert all(status != 0 for status, _ in _statuses(tmp_path, source, shards=shards))


@pytest.mark.parametrize("shards", [0, 2])
def test_a_file_that_does_not_import_fails(tmp_path: pathlib.Path, shards: int) -> None:
    assert all(status != 0 for status, _ in _statuses(tmp_path, "import " + "nothing_of_the_sort", shards=shards))


@pytest.mark.parametrize("shards", [0, 2])
def test_a_filter_selects_tests_and_may_select_none(tmp_path: pathlib.Path, shards: int) -> None:
    chosen = _statuses(tmp_path, _PASSING, shards=shards, only="test_b")
    assert [name for _, names in chosen for name in names] == ["test_b"]
    assert {status for status, _ in chosen + _statuses(tmp_path, _PASSING, shards=shards, only="none")} == {0}


def test_a_filter_does_not_excuse_an_empty_file(tmp_path: pathlib.Path) -> None:
    assert _statuses(tmp_path, _EMPTY, only="none")[0][0] != 0


def test_a_warning_is_an_error(tmp_path: pathlib.Path) -> None:
    assert _statuses(tmp_path, _WARNING)[0][0] != 0
