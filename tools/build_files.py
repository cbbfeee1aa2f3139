"""What BUILD files declare, read without Bazel: they are Python as far as their syntax goes."""

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

LIBRARY, PROGRAM, TEST = "py_library", "py_program", "pytest_test"
PYTHON_RULES = frozenset({LIBRARY, PROGRAM, TEST})
_READ = ("name", "srcs", "deps", "size", "peers")
_UNREAD = frozenset({"load", "package_sources", "exports_files", "filegroup", "package_group", "test_suite"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """One `py_library`, `py_program` or `pytest_test`.

    Args:
        package: the folder, such as `priors`.
        rule: the name of the rule.
        name: the target's name.
        srcs: file names in the package.
        deps: full labels, such as `//tools:files` and `@pypi//:numpy`.
        written_deps: the labels as they stand in the file.
        size: a test's size, '' where none is given.
        peers: whether it says `peers = True`.
        line: where it stands in the BUILD file.
    """

    package: str
    rule: str
    name: str
    srcs: tuple[str, ...] = ()
    deps: frozenset[str] = frozenset()
    written_deps: tuple[str, ...] = ()
    size: str = ""
    peers: bool = False
    line: int = 0

    @property
    def label(self) -> str:
        """`//package:name`."""
        return f"//{self.package}:{self.name}"

    def paths(self) -> Iterator[pathlib.PurePosixPath]:
        """The sources, from the repository's root."""
        for name in self.srcs:
            yield pathlib.PurePosixPath(self.package) / name


def read_targets(text: str, *, package: str) -> list[Target]:
    """The Python targets of one BUILD file.

    Raises:
        ValueError: a statement that is not a plain call of a rule with literal arguments (no loops, no variables).
    """
    targets = []
    for statement in ast.parse(text).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Constant):
            continue
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(f"{package}/BUILD.bazel:{statement.lineno}: only plain calls of rules may stand here")
        if call.func.id in PYTHON_RULES:
            targets.append(_target(call, package=package))
        elif call.func.id not in _UNREAD:
            raise ValueError(f"{package}/BUILD.bazel:{statement.lineno}: {call.func.id} is not a rule of defs.bzl")
    return targets


def full_label(label: str, *, package: str) -> str:
    """A label with its package: `:task` in `priors` is `//priors:task`, `//priors` is `//priors:priors`."""
    if label.startswith(":"):
        return f"//{package}{label}"
    if label.startswith("//") and ":" not in label:
        return f"{label}:{label.rpartition('/')[2]}"
    return label


def loaded_names(text: str) -> dict[str, list[str]]:
    """What `load` statements bring: file label to names."""
    loads: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load":
            words = [ast.literal_eval(argument) for argument in node.args]
            words += [ast.literal_eval(keyword.value) for keyword in node.keywords]
            loads.setdefault(words[0], []).extend(words[1:])
    return loads


def calls(text: str, name: str) -> list[dict[str, object]]:
    """The arguments of every call of `name` in a Starlark file; positional ones are under their index.

    What is no literal is given as its source text.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            arguments: dict[str, object] = {str(index): _value(item) for index, item in enumerate(node.args)}
            arguments |= {keyword.arg or "**": _value(keyword.value) for keyword in node.keywords}
            found.append(arguments)
    return found


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _target(call: ast.Call, *, package: str) -> Target:
    given: dict[str, ast.expr] = {keyword.arg or "": keyword.value for keyword in call.keywords}
    try:
        literal = {name: ast.literal_eval(given[name]) for name in _READ if name in given}
    except ValueError as error:
        raise ValueError(f"{package}/BUILD.bazel:{call.lineno}: {', '.join(_READ)} must be literal") from error
    deps = literal.get("deps", [])
    return Target(
        package=package,
        rule=call.func.id if isinstance(call.func, ast.Name) else "",
        name=literal["name"],
        srcs=tuple(literal.get("srcs", [])),
        deps=frozenset(full_label(label, package=package) for label in deps),
        written_deps=tuple(deps),
        size=literal.get("size", ""),
        peers=literal.get("peers", False),
        line=call.lineno,
    )
