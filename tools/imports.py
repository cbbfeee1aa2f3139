"""What Python files import, read without running them."""

import ast
import sys
from collections.abc import Collection, Iterator


def imported_names(source: str) -> set[str]:
    """Every dotted name that a file may import, wherever the statement stands.

    `from a.b import c` gives `a.b.c`: whether `c` is a module or a name in `a.b` is for the caller to know. In a file
    that starts `python -c`, a string that holds a program counts as part of the file.

    Raises:
        ValueError: a relative import.
    """
    tree = ast.parse(source)
    names = set(_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise ValueError(f"line {node.lineno}: a relative import; write the module's full name")
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for text in texts if "-c" in texts else ():
        names.update(_imports(_parsed(text)))
    return names


def first_party(names: Collection[str], *, modules: Collection[str]) -> set[str]:
    """The modules of `modules` among imported names: the longest match of each."""
    found = set()
    for name in names:
        parts = name.split(".")
        candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        match = next((candidate for candidate in candidates if candidate in modules), None)
        if match:
            found.add(match)
    return found


def third_party(names: Collection[str], *, first: Collection[str]) -> set[str]:
    """The top-level packages among imported names that are neither standard nor among `first` (ours)."""
    tops = {name.split(".")[0] for name in names}
    return {top for top in tops if top not in sys.stdlib_module_names and top not in first}


def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
