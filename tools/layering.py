"""Which module may import which, checked over the whole repository: each check yields one line for each violation.

    tools <- priors; tools <- model <- eval <- train <- bench; eval.results <- reports

`eval`, `train` and `bench` also read `priors`. Programs are leaves: they may import any library, and nothing imports
them.
"""

import dataclasses
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Self

from tools import build_files, imports, requirements
from tools.build_files import Target

PACKAGES = ("bench", "eval", "model", "priors", "reports", "tools", "tools/build_defs", "train")

# What the rules write: the scripts that Bazel starts.
_GENERATED = ".main.py"

# Library package -> the packages that it may import besides itself.
_READS = {
    "bench": {"eval", "model", "priors", "tools", "train"},
    "eval": {"model", "priors", "tools"},
    "model": {"tools"},
    "priors": {"tools"},
    "reports": {"eval", "tools"},
    "tools": set[str](),
    "train": {"eval", "model", "priors", "tools"},
}
# Package -> the only modules of another that it may import.
_ONLY = {("reports", "eval"): {"//eval:results"}}
# Library (or all of a package) -> what neither it nor anything below it may import.
_FREE_OF = {
    "//model": ("mlflow", "pyarrow", "ray"),
    "//priors:batches": ("torch",),
    "//priors:shards": ("torch",),
    "//priors:task": ("torch",),
    "//reports": ("ray", "torch"),
    "//train:loop": ("mlflow", "ray"),
}
# Third-party package -> the only modules outside tests that import it.
_CONFINED = {
    "mlflow": {"tools/tracking.py"},
    "ray": {"priors/workers.py", "tools/ray_connection.py", "train/submit.py", "train/workers.py"},
}
# Module to package of requirements-peers.lock: targets that reach one say `peers = True`, libraries of eval alone may.
PEERS = {"evoforest_tab": "evoforest-tab", "tabicl": "tabicl", "tabpfn": "tabpfn"}
_PEERS_READER = "eval"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repository:
    """The targets of all packages and the text of all Python files, by path from the root."""

    targets: tuple[Target, ...]
    sources: Mapping[str, str]

    @classmethod
    def read(cls, root: pathlib.Path, *, packages: Collection[str] = PACKAGES) -> Self:
        """Reads every BUILD file and Python file of `packages` under `root`."""
        targets: list[Target] = []
        sources = {}
        for package in packages:
            targets += build_files.read_targets((root / package / "BUILD.bazel").read_text(), package=package)
            paths = [path for path in (root / package).glob("*.py") if not path.name.endswith(_GENERATED)]
            sources |= {str(path.relative_to(root)): path.read_text() for path in paths}
        return cls(targets=tuple(targets), sources=sources)

    def owners(self) -> dict[str, Target]:
        """Module name to the target that it belongs to (a test that lists a program's file does not own it)."""
        owners: dict[str, Target] = {}
        for target in sorted(self.targets, key=lambda target: target.rule == build_files.TEST):
            for path in target.paths():
                owners.setdefault(_module(str(path)), target)
        return owners


def violations(repository: Repository, *, distributions: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Everything that is wrong with the layering.

    Args:
        repository: what to check.
        distributions: top-level module to the packages that bring it (`importlib.metadata.packages_distributions`).
    """
    yield from _ownership(repository)
    yield from _undeclared(repository, distributions)
    yield from _programs(repository)
    yield from _edges(repository)
    yield from _reached(repository)
    yield from _confined(repository)
    yield from _peers(repository)


def closure(label: str, deps: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """Every label below `label`, each with the one that brought it."""
    found: dict[str, str] = {}
    pending = [label]
    while pending:
        reader = pending.pop()
        for dep in deps.get(reader, frozenset()):
            if dep not in found:
                found[dep] = reader
                pending.append(dep)
    return found


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _ownership(repository: Repository) -> Iterator[str]:
    """Every Python file belongs to exactly one target; a target has one file of its own."""
    seen: dict[str, Target] = {}
    for target in repository.targets:
        paths = [str(path) for path in target.paths()]
        named = f"{target.package}/{target.name}.py"
        own = [path for path in paths if path == named] if target.rule == build_files.TEST else paths
        if len(own) != 1 or (target.rule != build_files.LIBRARY and own != [named]):
            yield f"{target.label} has the sources {paths}: its own is {target.name}.py alone"
        for path in own:
            if path in seen:
                yield f"{path} is in {seen[path].label} and in {target.label}: one file, one target"
            seen[path] = target
        for path in paths:
            if path not in repository.sources:
                yield f"{target.label} lists {path}, which does not exist"
    for path in repository.sources:
        if path not in seen and not path.endswith("__init__.py"):
            yield f"{path} belongs to no target"


def _undeclared(repository: Repository, distributions: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Imports and declared deps are the same."""
    owners = repository.owners()
    for target in repository.targets:
        paths = [str(path) for path in target.paths() if str(path) in repository.sources]
        names = set().union(*(imports.imported_names(repository.sources[path]) for path in paths))
        own = {_module(path) for path in paths}
        wanted = {owners[module].label for module in imports.first_party(names, modules=owners) if module not in own}
        for top in imports.third_party(names, first={package.split("/")[0] for package in PACKAGES}):
            labels = {f"@pypi//:{requirements.label_name(name)}" for name in distributions.get(top, ())}
            if top in PEERS:
                labels = {f"@peers//:{requirements.label_name(PEERS[top])}"}
            if not labels:
                yield f"{target.label} imports {top}, which the locks do not bring"
            wanted |= labels & target.deps or labels
        unused_is_fine = set()
        if target.rule == build_files.TEST:
            unused_is_fine.add("@pypi//:pytest")
            wanted.discard("//tools/build_defs:pytest_main")  # every test has it without saying so
        for label in sorted(wanted - target.deps):
            yield f"{target.label} imports {label} without declaring it"
        for label in sorted(target.deps - wanted - unused_is_fine):
            yield f"{target.label} declares {label} without importing it"


def _programs(repository: Repository) -> Iterator[str]:
    """Nobody depends on a program or a test, and only a program's own tests list its file."""
    leaves = {target.label for target in repository.targets if target.rule != build_files.LIBRARY}
    owners = repository.owners()
    for target in repository.targets:
        for label in sorted(target.deps & leaves):
            yield f"{target.label} depends on {label}, which is no library"
        for path in target.paths():
            owner = owners[_module(str(path))]
            if owner is not target and owner.rule != build_files.PROGRAM:
                yield f"{target.label} lists {path} of {owner.label}: depend on that instead"


def _libraries(repository: Repository) -> Iterator[Target]:
    """Libraries that are shipped: those only tests use are judged with the tests."""
    return (target for target in repository.targets if target.rule == build_files.LIBRARY)


def _edges(repository: Repository) -> Iterator[str]:
    for target in _libraries(repository):
        package = target.package.split("/")[0]
        for label in sorted(target.deps):
            if label.startswith("@"):
                continue
            other = label[2:].partition(":")[0].split("/")[0]
            if other != package and other not in _READS[package]:
                yield f"{target.label} imports {label}: {package} may not read {other}"
            only = _ONLY.get((package, other))
            if only and label not in only:
                yield f"{target.label} imports {label}: {package} may read {', '.join(sorted(only))} alone"


def _reached(repository: Repository) -> Iterator[str]:
    deps = {target.label: target.deps for target in repository.targets}
    for target in _libraries(repository):
        for scope, banned in _FREE_OF.items():
            if target.label != scope and not target.label.startswith(scope + ":"):
                continue
            reached = closure(target.label, deps)
            for name in banned:
                if f"@pypi//:{name}" in reached:
                    yield f"{target.label} reaches {name} through {reached[f'@pypi//:{name}']}"


def _confined(repository: Repository) -> Iterator[str]:
    for path, source in repository.sources.items():
        tops = {name.split(".")[0] for name in imports.imported_names(source)}
        for name, allowed in _CONFINED.items():
            if name in tops and path not in allowed and not path.endswith("_test.py"):
                yield f"{path} imports {name}: only {', '.join(sorted(allowed))} may"


def _peers(repository: Repository) -> Iterator[str]:
    """`peers = True` stands where @peers is reached and nowhere else: `//...` must not fetch it."""
    deps = {target.label: target.deps for target in repository.targets}
    for target in repository.targets:
        reached = any(label.startswith("@peers//") for label in closure(target.label, deps))
        if reached and not target.peers:
            yield f"{target.label} reaches @peers: it must say peers = True"
        if target.peers and not reached:
            yield f"{target.label} says peers = True and reaches none of @peers"
        if reached and target.rule == build_files.LIBRARY and target.package != _PEERS_READER:
            yield f"{target.label} reaches @peers: only tests and libraries of {_PEERS_READER} may"
