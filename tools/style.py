"""What the code's form must be, as far as a program can tell.

A rule that would make the code worse may be broken where a comment `# style: REASON` stands on the line that the
violation names, or on the line above it.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping

from tools.pickling import pickling

_MAX_FILE_LINES = 400
_MAX_MEDIAN_LINES = 200
_MAX_FUNCTION_LINES = 80
_MAX_COLUMNS = 120
_MAX_POSITIONAL = 2
_MAX_POSITIONAL_PRIVATE = 3
_MAX_PARAMETERS = 8
_VAGUE = frozenset({"base", "common", "helper", "helpers", "misc", "util", "utils"})
_GLOBAL_SEEDS = frozenset({"torch.manual_seed", "torch.seed", "np.random.seed", "numpy.random.seed", "random.seed"})
_ADDRESS = re.compile(r"\b(pypi|pythonhosted|npmjs|debian|pytorch|github|gitlab|docker)\.(org|com|io)\b")
_AT_IMPORT = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef

_Found = Iterator[tuple[int, str]]


def violations(path: str, source: str, *, third_party: Collection[str] = ()) -> list[str]:
    """One line for everything that is wrong with one Python file.

    Args:
        path: the file, from the repository's root.
        source: its text.
        third_party: top-level names of the packages in use, which no module may be called.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    checks = [_lengths(lines), _file_name(path, third_party), _module_body(path, tree), _functions(tree)]
    checks += [_configs(tree)]
    if not is_test(path):
        checks += [pickling(tree), _seeds(tree), _docstrings(tree), _parameters(tree), _prints(tree)]
    found = sorted(item for check in checks for item in check)
    return [f"{path}:{line}: {text}" for line, text in found if not _excused(lines, line)]


def too_long_at_the_median(sources: Mapping[str, str]) -> list[str]:
    """One line if the median file is too long."""
    counts = sorted(len(source.splitlines()) for source in sources.values() if source)
    median = counts[len(counts) // 2]
    return [f"the median file has {median} lines, more than {_MAX_MEDIAN_LINES}"] if median > _MAX_MEDIAN_LINES else []


def addresses(path: str, text: str) -> Iterator[str]:
    """Addresses of registries and code hosts: what to fetch from where is the user's configuration."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _ADDRESS.finditer(line):
            yield f"{path}:{number}: names the host {match[0]}"


def is_test(path: str) -> bool:
    """Whether a file is a test."""
    return path.endswith("_test.py")


def is_program(tree: ast.Module) -> bool:
    """Whether a file has a `main` that takes no argument."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" and not node.args.args for node in tree.body)


def _excused(lines: list[str], line: int) -> bool:
    return any("# style: " in text for text in lines[max(line - 2, 0) : line])


def _lengths(lines: list[str]) -> _Found:
    if len(lines) > _MAX_FILE_LINES:
        yield 1, f"{len(lines)} lines, more than {_MAX_FILE_LINES}"
    for number, line in enumerate(lines, start=1):
        if len(line) > _MAX_COLUMNS:
            yield number, f"{len(line)} columns, more than {_MAX_COLUMNS}"


def _file_name(path: str, third_party: Collection[str]) -> _Found:
    *folders, file = path.removesuffix(".py").split("/")
    if set(file.removesuffix("_test").split("_")) & _VAGUE:
        yield 1, f"the name {file} says nothing"
    if file in folders or file in sys.stdlib_module_names or file in third_party:
        yield 1, f"the name {file} is also that of its package, of a standard module or of a dependency"


def _seeds(tree: ast.Module) -> _Found:
    for node in ast.walk(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called in _GLOBAL_SEEDS:
            yield node.lineno, f"calls {called}: pass a generator instead"


def _module_body(path: str, tree: ast.Module) -> _Found:
    if not tree.body:
        return
    docstring = ast.get_docstring(tree) or ""
    if not docstring:
        yield 1, "the module has no docstring"
    package, _, name = path.removesuffix(".py").rpartition("/")
    if docstring and is_program(tree) and not is_test(path) and f"//{package}:{name}" not in docstring:
        yield 1, f"the program's docstring does not show its command (//{package}:{name})"
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, _AT_IMPORT) and not is_text:
            yield node.lineno, "works at import"


def _functions(tree: ast.Module) -> _Found:
    """Length and annotations of every function, nested ones too."""
    methods = {child for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body}
    for node in ast.walk(tree):
        if not isinstance(node, _Function):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > _MAX_FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {length} lines, more than {_MAX_FUNCTION_LINES}"
        extra = [item for item in (node.args.vararg, node.args.kwarg) if item]
        for parameter in [*_positional(node, is_method=node in methods), *node.args.kwonlyargs, *extra]:
            if parameter.annotation is None:
                yield node.lineno, f"{node.name} leaves its parameter {parameter.arg} without annotation"
        if node.returns is None:
            yield node.lineno, f"{node.name} leaves its return without annotation"


def _positional(node: _Function, *, is_method: bool) -> list[ast.arg]:
    """The parameters that may be given by position, without `self`."""
    bound = is_method and not any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
    return [*node.args.posonlyargs, *node.args.args][bound:]


def _parameters(tree: ast.Module) -> _Found:
    """How many parameters; not for nested functions, dunder methods and torch's `forward`: their callers fix them."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner in [tree, *classes]:
        for node in owner.body:
            if not isinstance(node, _Function) or node.name == "forward" or re.fullmatch(r"__\w+__", node.name):
                continue
            positional = len(_positional(node, is_method=owner is not tree))
            limit = _MAX_POSITIONAL_PRIVATE if node.name.startswith("_") else _MAX_POSITIONAL
            if positional > limit:
                yield node.lineno, f"{node.name} takes {positional} positional parameters, more than {limit}"
            if positional + len(node.args.kwonlyargs) > _MAX_PARAMETERS:
                yield node.lineno, f"{node.name} takes more than {_MAX_PARAMETERS} parameters"


def _docstrings(tree: ast.Module) -> _Found:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for owner in [tree, *classes]:
        for node in owner.body:
            named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if named and not node.name.startswith("_") and not ast.get_docstring(node):
                yield node.lineno, f"{node.name} has no docstring"


def _configs(tree: ast.Module) -> _Found:
    """Classes named `...Config` are frozen, keyword-only dataclasses with a docstring after each field."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Config"):
            continue
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        if "frozen=True" not in decorators or "kw_only=True" not in decorators:
            yield node.lineno, f"{node.name} is no frozen, keyword-only dataclass"
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and not described:
                yield field.lineno, f"{node.name}.{ast.unparse(field.target)} has no docstring"


def _prints(tree: ast.Module) -> _Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            if not is_program(tree):
                yield node.lineno, "prints, and is in no program"
