"""Tests of tools/build_files.py."""

import pytest

from tools import build_files

_BUILD = """
load("//tools/build_defs:defs.bzl", "package_sources", "py_library", "pytest_test")
package_sources()
py_library(
    name = "shards",
    srcs = ["shards.py"],
    visibility = ["//train:__pkg__"],
    deps = [":task", "//tools:files", "//model", "@pypi//:numpy"],
)
pytest_test(name = "shards_test", size = "small", srcs = ["shards_test.py", "generate.py"], deps = [":shards"])
"""


def test_targets_have_full_labels_and_paths() -> None:
    library, test = build_files.read_targets(_BUILD, package="priors")
    assert (library.label, library.rule, test.label) == ("//priors:shards", "py_library", "//priors:shards_test")
    assert library.deps == {"//priors:task", "//tools:files", "//model:model", "@pypi//:numpy"}
    assert [str(path) for path in test.paths()] == ["priors/shards_test.py", "priors/generate.py"]
    assert (library.size, test.size) == ("", "small")


@pytest.mark.parametrize(
    "text",
    [
        "[py_library(name = n, srcs = [n]) for n in ['a']]",
        "DEPS = []",
        "py_library(name = 'a', srcs = glob(['*.py']))",
        "native.py_library(name = 'a', srcs = ['a.py'])",
        "genrule(name = 'a')",
    ],
)
def test_anything_but_plain_calls_of_our_rules_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="priors/BUILD.bazel:1"):
        build_files.read_targets(text, package="priors")


def test_loads_and_calls_are_read() -> None:
    assert build_files.loaded_names(_BUILD) == {
        "//tools/build_defs:defs.bzl": ["package_sources", "py_library", "pytest_test"]
    }
    assert build_files.calls("use(a, 'x', n = 1)", "use") == [{"0": "a", "1": "x", "n": 1}]
