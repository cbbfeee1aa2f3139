"""Runs pytest on one file under Bazel's test protocol: result file, filter, shards, and no passing without a test."""

import os
import pathlib
import sys

import pytest


class WholeFile:
    """Notes, before any filter or shard takes tests away, how many the file holds."""

    def __init__(self) -> None:
        self.num_tests = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Counts what was collected."""
        self.num_tests = len(items)


class Shard:
    """Keeps every `total`-th test, beginning with number `index`."""

    def __init__(self, *, index: int, total: int) -> None:
        self._index, self._total = index, total

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drops the tests of the other shards."""
        items[:] = items[self._index :: self._total]


def main(test_file: str) -> None:
    """Runs the tests of `test_file` (a path in the runfiles) and exits with pytest's status."""
    environment = os.environ
    arguments = ["-c", "pyproject.toml", "--rootdir", ".", *sys.argv[1:], test_file]
    whole = WholeFile()
    plugins: list[object] = [whole]
    if "XML_OUTPUT_FILE" in environment:
        arguments.append(f"--junitxml={environment['XML_OUTPUT_FILE']}")
    if "TEST_TMPDIR" in environment:
        scratch = environment["TEST_TMPDIR"]
        arguments.append(f"--basetemp={scratch}/pytest")
        environment.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", f"{scratch}/hypothesis")
        environment.setdefault("MPLCONFIGDIR", f"{scratch}/matplotlib")
    if environment.get("TESTBRIDGE_TEST_ONLY"):
        arguments += ["-k", environment["TESTBRIDGE_TEST_ONLY"]]
    if "TEST_TOTAL_SHARDS" in environment:
        pathlib.Path(environment["TEST_SHARD_STATUS_FILE"]).touch()
        shard = Shard(index=int(environment["TEST_SHARD_INDEX"]), total=int(environment["TEST_TOTAL_SHARDS"]))
        plugins.append(shard)
    status = pytest.main(arguments, plugins=plugins)
    # A shard or a filter may leave this process without a test, but never a file.
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and whole.num_tests:
        status = pytest.ExitCode.OK
    sys.exit(int(status))
