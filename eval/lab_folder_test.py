"""A lab's result is whole, and in the folder that the user meant."""

import json
import pathlib

import pytest

from eval.lab_folder import RECORD, lab_folder, source_record, write_lab
from eval.small_network import small_network
from model.checkpoint import load_checkpoint, save_checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode, Failure


def test_the_record_comes_last_and_every_picture_before_it(tmp_path: pathlib.Path) -> None:
    written = write_lab(tmp_path, record={"a": 1}, pictures={"one": "<svg/>", "two": "<svg></svg>"})
    assert [path.name for path in written] == [RECORD, "one.svg", "two.svg"]
    assert json.loads((tmp_path / RECORD).read_text()) == {"a": 1} and (tmp_path / "one.svg").read_text() == "<svg/>"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    assert max(path.stat().st_mtime_ns for path in written) == (tmp_path / RECORD).stat().st_mtime_ns


def test_without_a_folder_the_result_goes_below_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    assert lab_folder(None, name="spread") == tmp_path / "runs" / "labs" / "spread"
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path / "here"))
    assert lab_folder(pathlib.Path("mine"), name="spread") == tmp_path / "here" / "mine"


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="--out") as refusal:
        lab_folder(tmp_path / "file", name="spread")
    assert refusal.value.code is ExitCode.NOT_WRITABLE


def test_a_figure_names_the_weights_that_it_is_about(tmp_path: pathlib.Path) -> None:
    folder = save_checkpoint(tmp_path, step=7, network=small_network(TaskKind.REGRESSION))
    found = source_record(load_checkpoint(folder))
    assert found["kind"] == "regression" and found["step"] == 7 and len(found["weights_sha256"]) == 64
