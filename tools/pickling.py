"""Where Python code reads or writes a format that can run code when it is read (S1): pickles and what wraps them.

Names are followed through imports, so `from torch import load as read` is found too. What processes of one program send
each other while they run (`multiprocessing`, Ray) is no file and not meant.
"""

import ast
from collections.abc import Iterator

_MODULES = frozenset({"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "skops", "_pickle"})
_CALLS = frozenset(
    {
        "numpy.lib.format.read_array",
        "pandas.read_pickle",
        "torch.hub.load",
        "torch.jit.load",
        "torch.load",
        "torch.save",
        "yaml.load",
        "yaml.unsafe_load",
    }
)
_METHODS = frozenset({"to_pickle", "load_pickle"})
_VERBS = frozenset({"Pickler", "Unpickler", "dump", "dumps", "load", "loads"})
_BUILTINS = frozenset({"eval", "exec"})


def pickling(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and description of every place of a module where a pickle could be read or written, or text be run."""
    names = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for module in modules:
                if module.split(".")[0] in _MODULES:
                    yield node.lineno, f"imports {module}: S1 allows no pickle"
        if isinstance(node, ast.Call):
            called = _resolved(ast.unparse(node.func), names)
            if _runs_code(called):
                yield node.lineno, f"calls {called}: S1 allows no pickle"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                    yield node.lineno, f"calls {called} with allow_pickle: S1 allows no pickle"


def _runs_code(called: str) -> bool:
    *owners, verb = called.split(".")
    of_pickles = verb in _VERBS and any(owner in _MODULES for owner in owners)
    return called in _CALLS or called in _BUILTINS or (bool(owners) and verb in _METHODS) or of_pickles


def _imported(tree: ast.AST) -> dict[str, str]:
    """Name in the module → full name of what was imported under it."""
    found = {"np": "numpy", "pd": "pandas"}  # also where a fragment does not import them
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _resolved(name: str, names: dict[str, str]) -> str:
    head, _, rest = name.partition(".")
    return names.get(head, head) + (f".{rest}" if rest else "")
