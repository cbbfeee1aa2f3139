"""Tests of train/preflight.py: what is found, in what order it is judged, and the proof of a shared folder."""

import json
import pathlib
import subprocess
import sys

import pytest

from tools import source_archive
from tools.failure import ExitCode, Failure
from train import preflight

_SOURCES = source_archive.packed(["tools"]).paths


def test_the_same_sources_elsewhere_have_the_same_hash_and_one_changed_byte_another(tmp_path: pathlib.Path) -> None:
    """As on a node: another folder, another process."""
    here = preflight.inspect(_SOURCES)
    for path in _SOURCES:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((source_archive.source_root(["tools"]) / path).read_bytes())
    there = _elsewhere(tmp_path)
    assert there == {**here, "code from": str(tmp_path)}
    assert preflight.refusal("n1", here=here, there=there, shared="") is None
    with (tmp_path / "tools" / "failure.py").open("a") as file:
        file.write("#")
    changed = _elsewhere(tmp_path)
    text = preflight.refusal("n1", here=here, there=changed, shared="")
    assert text is not None and text.startswith(f"node n1 has code {changed['code'][:12]}, not {here['code'][:12]}")
    assert f"remove {tmp_path} from" in text
    (tmp_path / "tools" / "failure.py").unlink()
    assert _elsewhere(tmp_path)["code"] not in (here["code"], changed["code"])


def _elsewhere(folder: pathlib.Path) -> dict[str, str]:
    """What `inspect` finds in a process that imports `tools` from `folder`."""
    program = pathlib.Path(preflight.__file__).read_text().partition("def refusal")[0]
    program = program.replace("from tools.failure import ExitCode, Failure\n", "")
    program += f"\nimport json\nprint(json.dumps(inspect({list(_SOURCES)!r})))\n"
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(folder)})
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Python": "3.12"}, "node n1 has Python 3.12, not "),
        ({"torch": "2.12.0"}, "node n1 has torch 2.12.0, not 2."),
        ({"ray": "none"}, "requirements.lock"),
        ({"reaches": "Permission denied"}, "node n1 does not reach --root /runs (Permission denied)"),
        ({"code": "f" * 64, "Python": "3.12", "torch": "1"}, "node n1 has code ffffffffffff"),
        ({}, None),
    ],
)
def test_the_first_difference_is_one_line_with_both_values(changes: dict[str, str], words: str | None) -> None:
    here = preflight.inspect(_SOURCES)
    text = preflight.refusal("n1", here=here, there=here | changes, shared="/runs")
    assert (text is None) == (words is None)
    assert text is None or (words in text and "\n" not in text and ": " in text)


def test_a_build_of_torch_for_another_device_is_no_difference() -> None:
    assert "+" not in preflight.inspect(_SOURCES)["torch"]


def test_a_node_that_writes_into_the_folder_is_seen_and_nothing_stays(tmp_path: pathlib.Path) -> None:
    with preflight.SharedFolder(tmp_path) as folder:
        question = {"shared": str(tmp_path), "nonce": folder.nonce}
        assert preflight.inspect(_SOURCES, who="a", **question)["reaches"] == ""
        assert folder.has_answer("a") and not folder.has_answer("b", seconds=0.1)
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_another_one_there_or_cannot_be_written_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".preflight-abc").write_text("somebody else's")
    found = preflight.inspect(_SOURCES, shared=str(tmp_path / "there"), nonce="abc", who="a")
    assert found["reaches"] == "another file is there"
    with pytest.raises(Failure) as caught, preflight.SharedFolder(tmp_path / "absent"):
        pass
    assert caught.value.code is ExitCode.NOT_WRITABLE
