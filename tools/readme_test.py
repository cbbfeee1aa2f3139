"""What README.md says is true: its tree, programs, commands and exit codes; no page has gaps or dead links to files."""

import pathlib
import re
import shlex
from collections.abc import Iterator

import pytest

from tools import build_files, layering
from tools import config as configs
from tools.failure import ExitCode
from train.presets import PRESETS, PretrainConfig, checked

_README = pathlib.Path("README.md").read_text()
_PAGES = (pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md")))


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


def _jobs(page: pathlib.Path) -> list[PretrainConfig]:
    """What the main job is asked for on a page, parsed as the program does it."""
    jobs = []
    for line in re.findall(r"^.*bazelw? run //train:(?:pretrain|submit)\b(.*)$", page.read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        words = words[len(words) - words[::-1].index("--") :] if "--" in words else []
        jobs.append(checked(configs.parse_preset(PRESETS, words, program="", default="tiny")[1]))
    return jobs


def test_a_run_that_is_continued_is_the_one_that_was_begun() -> None:
    """With another config, `--resume` is refused."""
    jobs = _jobs(pathlib.Path("README.md"))
    begun = {job.name: job.identity() for job in jobs if not job.resume}
    continued = {job.name: job.identity() for job in jobs if job.resume}
    assert continued, "README.md continues no run"
    assert {name: begun.get(name) for name in continued} == continued


@pytest.mark.parametrize("page", ["docs/cluster.md", "CONTRIBUTING.md"])
def test_the_main_job_takes_the_commands_of_other_pages(page: str) -> None:
    assert _jobs(pathlib.Path(page))


def test_the_table_of_exit_codes_is_the_list_in_the_code() -> None:
    rows = re.findall(r"^\|\s*(\d+)\s*\|\s*`?([A-Z_]+)`?\s*\|", _README, re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(int(code), code.name) for code in ExitCode]


def _lines(page: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a page outside its code blocks."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code:
            yield number, line


def test_the_pages_of_docs_are_read() -> None:
    assert {"README.md", "design.md", "priors.md", "cluster.md"} <= {page.name for page in _PAGES}


@pytest.mark.parametrize("page", _PAGES, ids=str)
def test_no_page_has_a_gap_that_was_to_be_filled_in(page: pathlib.Path) -> None:
    """Such as a word of capitals between two at signs."""
    assert [line for line in page.read_text().splitlines() if re.search(r"@[A-Z][A-Z_]*@", line)] == []


@pytest.mark.parametrize("page", _PAGES, ids=str)
def test_every_file_that_a_page_links_or_shows_is_there(page: pathlib.Path) -> None:
    absent = []
    for number, line in _lines(page):
        text = re.sub(r"`[^`]*`", "", line)
        for target in re.findall(r"\]\(\s*<?([^)\s>]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text):
            path = target.partition("#")[0]
            is_local = path and not re.match(r"[a-z][a-z0-9+.-]*:", path)
            if is_local and not (page.parent / path).exists():
                absent.append(f"{page}:{number} {target}")
    assert absent == []
