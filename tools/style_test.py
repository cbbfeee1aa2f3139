"""The repository's style, and that each check of it can fail."""

import importlib.metadata
import pathlib

import pytest

from tools import build_files, layering, style
from tools.layering import Repository

_ROOT = pathlib.Path.cwd()
_TEXT_FILES = (
    ".bazelrc",
    ".ci/run",
    "pyproject.toml",
    "requirements-cuda.lock",
    "requirements.in",
    "requirements.lock",
)
_SUFFIXES = (".bazel", ".bzl", ".css", ".jinja", ".py")
_MAIN = '"""D."""\ndef main() -> None:\n    """M."""'
_THREE = '"""D."""\ndef f(a: int, b: int, c: int) -> None:\n    """F."""'
_NINE = f'"""D."""\ndef f(*, {", ".join(f"{name}: int" for name in "abcdefghi")}) -> None:\n    """F."""'
_GOOD = '''"""Reads."""


def read(path: str, *, size: int) -> str:
    """The first bytes."""
    return path[:size]
'''


def test_the_code_follows_its_style() -> None:
    sources = Repository.read(_ROOT).sources
    third_party = set(importlib.metadata.packages_distributions())
    found = [style.violations(path, source, third_party=third_party) for path, source in sources.items()]
    assert [line for lines in found for line in lines] == []
    assert style.too_long_at_the_median(sources) == []


def test_no_file_names_a_registry() -> None:
    """S3: what to fetch from where is the user's configuration."""
    paths = [_ROOT / name for name in _TEXT_FILES]
    for package in layering.PACKAGES:
        paths += [path for path in (_ROOT / package).iterdir() if path.suffix in _SUFFIXES or path.name == "bazelw"]
    own = ("style.py", "style_test.py")
    texts = {str(path): path.read_text() for path in paths if path.is_file() and path.name not in own}
    assert [line for path, text in texts.items() for line in style.addresses(path, text)] == []
    assert len(texts) > 100


def test_build_files_are_sorted_and_tests_have_a_size() -> None:
    for target in Repository.read(_ROOT).targets:
        by_kind = sorted(target.written_deps, key=lambda label: (label[0] == "@", label[0] == "/", label))
        assert list(target.written_deps) == by_kind, f"{target.label}: deps are not sorted"
        if target.rule == build_files.TEST:
            assert target.size in ("small", "medium", "large"), f"{target.label}: no size"


def test_build_files_load_rules_from_one_file() -> None:
    for package in layering.PACKAGES:
        loads = build_files.loaded_names((_ROOT / package / "BUILD.bazel").read_text())
        assert set(loads) <= {"//tools/build_defs:defs.bzl"}, package


def test_every_library_is_reached_by_a_test() -> None:
    targets = Repository.read(_ROOT).targets
    deps = {target.label: target.deps for target in targets}
    tests = {target.label for target in targets if target.rule == build_files.TEST}
    reached = set().union(*(layering.closure(label, deps) for label in tests))
    libraries = {target.label for target in targets if target.rule == build_files.LIBRARY}
    assert libraries - reached - {"//tools/build_defs:pytest_main"} == set()


def test_good_code_has_no_violation() -> None:
    assert style.violations("priors/shards.py", _GOOD) == []


@pytest.mark.parametrize(
    ("source", "violation"),
    [
        ("def f() -> None:\n    pass", "1: the module has no docstring"),
        (_GOOD + "\n" * 400, "1: 406 lines, more than 400"),
        (_GOOD + "# " + "x" * 119, "7: 121 columns, more than 120"),
        ('"""D."""\ndef _f(a):\n    return a', "2: _f leaves its parameter a without annotation"),
        ('"""D."""\ndef _f(*, a):\n    return a', "2: _f leaves its parameter a without annotation"),
        ('"""D."""\ndef _f():\n    return 1', "2: _f leaves its return without annotation"),
        ('"""D."""\ndef f() -> None:\n    pass', "2: f has no docstring"),
        ('"""D."""\nclass F:\n    pass', "2: F has no docstring"),
        ('"""D."""\nclass F:\n    """F."""\n    def f(self) -> None:\n        pass', "4: f has no docstring"),
        (_THREE, "2: f takes 3 positional parameters, more than 2"),
        (_NINE, "2: f takes more than 8 parameters"),
        ('"""D."""\ndef _f() -> None:\n' + "    pass\n" * 80, "2: _f has 81 lines, more than 80"),
        ('"""D."""\nimport pickle', "2: imports pickle: S1 allows no pickle"),
        ('"""D."""\nfrom joblib import dump', "2: imports joblib: S1 allows no pickle"),
        ('"""D."""\nX = torch.load("x")', "2: calls torch.load: S1 allows no pickle"),
        ('"""D."""\nX = np.random.seed(1)', "2: calls np.random.seed: pass a generator instead"),
        ('"""D."""\nprint(1)', "2: prints, and is in no program"),
        ('"""D."""\nfor i in range(3):\n    pass', "2: works at import"),
        (_MAIN, "1: the program's docstring does not show its command (//priors:shards)"),
        ('"""D."""\nclass AConfig:\n    """A."""\n    x: int', "2: AConfig is no frozen, keyword-only dataclass"),
        (
            '"""D."""\n@d(frozen=True, kw_only=True)\nclass AConfig:\n    """A."""\n    x: int',
            "5: AConfig.x has no docstring",
        ),
    ],
)
def test_each_kind_of_violation_is_found(source: str, violation: str) -> None:
    found = style.violations("priors/shards.py", source)
    assert f"priors/shards.py:{violation}" in found


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("priors/priors.py", "is also that of its package"),
        ("eval/statistics.py", "of a standard module"),
        ("eval/sklearn.py", "of a dependency"),
        ("eval/table_utils.py", "says nothing"),
    ],
)
def test_bad_names_are_found(path: str, says: str) -> None:
    found = style.violations(path, _GOOD, third_party={"sklearn"})
    assert len(found) == 1 and says in found[0]


def test_a_rule_is_broken_only_with_a_reason() -> None:
    source = _THREE.replace("\n", "\n# style: three tensors of equal standing\n", 1)
    assert style.violations("model/attention.py", source) == []


def test_addresses_are_found() -> None:
    host = "pypi." + "org"
    assert list(style.addresses("a", f"x\nindex https://{host}/simple")) == [f"a:2: names the host {host}"]
