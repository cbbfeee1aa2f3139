"""The tables of requirements in docs/design.md are true: modules exist, and the tests that they name quote the id."""

import ast
import pathlib
import re

import pytest

_SECTIONS = {
    "1": [str(number) for number in range(1, 8)],
    "2": ["1"],
    "5": [*map(str, range(1, 12)), *"ABCDEFGHI"],
    "6": [*map(str, range(13)), *"ABCDEFG"],
}
IDS = [f"{section}.{part}" for section, parts in _SECTIONS.items() for part in parts] + [f"D{n}" for n in range(1, 7)]
SURVIVES = [*(f"T{n}" for n in range(1, 12)), *(f"K{n}" for n in range(1, 4)), *(f"S{n}" for n in range(1, 5))]
_ROW = re.compile(r"^\| (\d\.\w+|D\d) \| [^|]+ \| `([^`]+)` \| ([^|]+) \|$", re.MULTILINE)
_ROW_OF_TESTS = re.compile(r"^\| ([TKS]\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def _rows() -> dict[str, tuple[str, list[str]]]:
    """id → module and tests."""
    text = pathlib.Path("docs/design.md").read_text()
    return {row[1]: (row[2], re.findall(r"`([^`]+)`", row[3])) for row in _ROW.finditer(text)}


def _tests() -> dict[str, list[str]]:
    """id → tests, of what a run survives."""
    text = pathlib.Path("docs/design.md").read_text()
    return {row[1]: re.findall(r"`([^`]+)`", row[2]) for row in _ROW_OF_TESTS.finditer(text)}


def _quotes(path: str, requirement: str) -> bool:
    """Whether a docstring of the file quotes the id."""
    tree = ast.parse(pathlib.Path(path).read_text())
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)]
    quoted = re.compile(rf"(?<![\d.]){re.escape(requirement)}(?![\w.]\d|\w)")
    return any(quoted.search(ast.get_docstring(node) or "") for node in documented)


def test_every_requirement_has_a_row() -> None:
    assert list(_rows()) == IDS
    assert list(_tests()) == SURVIVES


@pytest.mark.parametrize("requirement", IDS)
def test_a_row_names_a_module_and_tests_that_quote_the_id(requirement: str) -> None:
    module, tests = _rows()[requirement]
    assert pathlib.Path(module).exists(), module
    _check(requirement, tests)


@pytest.mark.parametrize("requirement", SURVIVES)
def test_what_a_run_survives_is_shown_by_tests_that_quote_the_id(requirement: str) -> None:
    _check(requirement, _tests()[requirement])


def _check(requirement: str, tests: list[str]) -> None:
    assert tests
    for test in tests:
        assert pathlib.Path(test).exists(), test
        assert _quotes(test, requirement), f"no docstring of {test} quotes {requirement}"


def test_an_id_is_not_found_inside_another(tmp_path: pathlib.Path) -> None:
    """Control: 5.1 is not quoted where 5.11 is, nor 5.1 by 15.1."""
    path = tmp_path / "other_test.py"
    path.write_text('def test_it() -> None:\n    """5.11, 15.1 and 5.1x: something."""\n')
    assert not _quotes(str(path), "5.1") and _quotes(str(path), "5.11")
    path.write_text('def test_it() -> None:\n    """5.1: something; 6.4."""\n')
    assert _quotes(str(path), "5.1") and _quotes(str(path), "6.4")
