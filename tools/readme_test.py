"""What README.md says of the repository is true: its tree, its programs and its exit codes."""

import pathlib
import re

from tools import build_files, layering
from tools.failure import ExitCode

_README = pathlib.Path("README.md").read_text()


def _tree() -> list[str]:
    """The paths of the README's tree: the code block that begins with `veritab/`, two spaces a level."""
    block = re.search(r"^```\w*\nveritab/[^\n]*\n(.*?)^```", _README, re.MULTILINE | re.DOTALL)
    assert block, "README.md has no code block that begins with veritab/"
    paths: list[str] = []
    folders: list[str] = []
    for line in block[1].splitlines():
        indent = len(line) - len(line.lstrip())
        name = line.split()[0] if line.strip() else ""
        if not name:
            continue
        folders[indent // 2 - 1 :] = [name.rstrip("/")] if name.endswith("/") else []
        parents = folders[: indent // 2 - 1]
        paths.append("/".join([*parents, name.rstrip("/")]))
    return paths


def test_everything_in_the_tree_exists() -> None:
    paths = _tree()
    assert len(paths) > 10
    assert [path for path in paths if not pathlib.Path(path).exists()] == []


def test_every_package_is_in_the_tree() -> None:
    assert {package for package in layering.PACKAGES if "/" not in package} - set(_tree()) == set()


def test_every_program_that_is_named_exists() -> None:
    targets = layering.Repository.read(pathlib.Path.cwd()).targets
    programs = {target.label for target in targets if target.rule == build_files.PROGRAM}
    named = set(re.findall(r"bazelw? run (//[\w/]+:\w+)", _README))
    assert named, "README.md names no program"
    assert named - programs == set()


def test_the_table_of_exit_codes_is_the_list_in_the_code() -> None:
    rows = re.findall(r"^\|\s*(\d+)\s*\|\s*`?([A-Z_]+)`?\s*\|", _README, re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(int(code), code.name) for code in ExitCode]
