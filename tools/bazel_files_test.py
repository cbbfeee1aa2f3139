"""What can be told without running Bazel 7, 8 or 9: that MODULE.bazel and WORKSPACE declare the same things."""

import ast
import pathlib
import re

from tools import build_files

_MODULE = pathlib.Path("MODULE.bazel").read_text()
_WORKSPACE = pathlib.Path("WORKSPACE").read_text()
_REPOSITORIES = pathlib.Path("tools/build_defs/repositories.bzl").read_text()
_PY_RULES = pathlib.Path("tools/build_defs/py_rules.bzl").read_text()
_PYTHON_ENV = pathlib.Path("tools/build_defs/python_env.bzl").read_text()
_DEFS = pathlib.Path("tools/build_defs/defs.bzl").read_text()


def _value(text: str, name: str) -> str:
    """The string that a Starlark file assigns to `name`."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise AssertionError(f"{name} is not assigned")


def _assigned(text: str) -> set[str]:
    return {ast.unparse(node.targets[0]) for node in ast.parse(text).body if isinstance(node, ast.Assign)}


def test_both_files_declare_the_same_repositories() -> None:
    (used,) = build_files.calls(_MODULE, "use_repo")
    rules = ("extra_packages", "py_rules", "python_env")
    made = {call["name"] for rule in rules for call in build_files.calls(_REPOSITORIES, rule)}
    assert {value for key, value in used.items() if key != "0"} == made == {"peers", "py_rules", "pypi"}
    assert build_files.calls(_WORKSPACE, "declare_repositories") == [{"py_rules_source": "built_in"}]
    extension = pathlib.Path("tools/build_defs/extensions.bzl").read_text()
    assert build_files.calls(extension, "declare_repositories") == [{"py_rules_source": "rules_python"}]
    assert build_files.calls(_MODULE, "use_extension") == [
        {"0": "//tools/build_defs:extensions.bzl", "1": "repositories"}
    ]


def test_both_files_have_one_name_and_one_toolchain() -> None:
    assert build_files.calls(_MODULE, "module")[0]["name"] == build_files.calls(_WORKSPACE, "workspace")[0]["name"]
    toolchains = build_files.calls(_MODULE, "register_toolchains")
    assert toolchains == build_files.calls(_WORKSPACE, "register_toolchains") == [{"0": "@pypi//:toolchain"}]


def test_the_rules_have_the_same_names_from_either_source() -> None:
    built_in, module = _value(_PY_RULES, "_BUILT_IN"), _value(_PY_RULES, "_MODULE")
    assert _assigned(built_in) == _assigned(module)
    loaded = [names for label, names in build_files.loaded_names(_DEFS).items() if label.startswith("@py_rules")]
    assert {name for names in loaded for name in names} <= _assigned(module)


def test_what_modules_load_is_a_module_that_they_depend_on() -> None:
    declared = {call["name"] for call in build_files.calls(_MODULE, "bazel_dep")}
    loaded = set(re.findall(r"@(\w+)//", _value(_PY_RULES, "_MODULE")))
    assert loaded == declared


def test_no_file_takes_the_choice_of_bazel_from_its_wrapper() -> None:
    """Debian's wrapper fails on a .bazelversion that is not installed, and runs a tools/bazel."""
    assert pathlib.Path(".bazeliskrc").read_text() == "USE_BAZEL_VERSION=4.2.3\n"
    assert not pathlib.Path("tools/bazel").exists()


def test_options_are_known_to_every_release() -> None:
    known = {
        "--nobuild_python_zip",
        "--nosandbox_debug",
        "--test_env",
        "--test_output",
    }
    lines = [line.split("#")[0].split() for line in pathlib.Path(".bazelrc").read_text().splitlines()]
    options = {words[1].split("=")[0] for words in lines if words and words[0] != "try-import"}
    assert options == known


def test_a_target_with_peers_is_manual_and_imports_their_path_first() -> None:
    """`//...` must neither build nor fetch them."""
    assert _DEFS.count('["manual"] if peers else []') == 3
    assert _DEFS.count("_generated_main(name, (_PEERS_MAIN if peers else []) + [") == 2
    module = _value(_PYTHON_ENV, "_EXTRA_BUILD").partition('srcs = ["')[2].partition(".py")[0]
    assert f'_PEERS_MAIN = ["import {module}"]' in _DEFS
    assert f'ctx.file("{module}.py", _EXTRA_PATH' in _PYTHON_ENV
