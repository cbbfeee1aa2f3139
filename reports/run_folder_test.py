"""Run folders: whole, half-done or damaged, they are read as far as they go."""

import json
import pathlib

import pytest

from reports.run_folder import find_run, read_run
from reports.sample_run import write_sample_run
from tools.failure import ExitCode, Failure


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_sample_run(tmp_path / "tiny")


def test_a_finished_run_is_read_without_a_note(folder: pathlib.Path) -> None:
    run = read_run(folder)
    assert run.notes == () and run.is_verified and run.name == "tiny"
    assert [part.kind for part in run.kinds] == ["classification", "regression"]
    part = run.kinds[0]
    assert part.weights_sha256 == "c" * 64 and len(part.curves["train/loss"].steps) == 100
    assert part.num_episodes["synthetic"] == 64


@pytest.mark.parametrize(
    "name", ["audit.json", "views.json", "results.arrow", "metrics.jsonl"], ids=lambda name: name.split(".")[0]
)
@pytest.mark.parametrize("damage", ["missing", "garbage", "empty", "nested"])
def test_a_missing_or_damaged_file_is_noted_and_the_rest_is_read(folder: pathlib.Path, name: str, damage: str) -> None:
    path = folder / "classification" / name
    path.unlink()
    if damage != "missing":
        path.write_bytes({"garbage": b"\x00\xff{", "empty": b"", "nested": b"[" * 100_000}[damage])
    run = read_run(folder)
    assert run.kinds[1].verdict.is_verified
    if name != "metrics.jsonl" or damage == "missing":
        (note,) = [note for note in run.notes if f"classification/{name}" in note]
        assert ("is missing" in note) == (damage == "missing")
    if name in ("audit.json", "results.arrow"):
        assert not run.is_verified


def test_an_empty_run_has_notes_and_is_not_verified(tmp_path: pathlib.Path) -> None:
    run = read_run(tmp_path)
    assert not run.is_verified and run.kinds == () and "no model has been trained yet" in run.notes


def test_stages_come_in_the_order_of_the_run_with_the_seconds_of_the_summary(folder: pathlib.Path) -> None:
    summary = json.loads((folder / "summary.json").read_bytes())
    summary["seconds"]["train"] = 7.0
    (folder / "summary.json").write_text(json.dumps(summary, sort_keys=True))
    assert list(read_run(folder).seconds) == ["generate", "train", "audit", "score"]
    assert read_run(folder).seconds["train"] == 7.0


def test_without_a_summary_the_seconds_come_from_the_events_summed_over_sittings(folder: pathlib.Path) -> None:
    (folder / "summary.json").unlink()
    with (folder / "events.jsonl").open("a") as file:
        lines = [{"stage": "generate", "event": "end", "seconds": seconds} for seconds in (10.0, "many", None)]
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.write('{"stage": "tr')
    assert read_run(folder).seconds["generate"] == pytest.approx(41.2)


def test_of_a_step_that_a_resume_recorded_twice_the_last_value_counts(folder: pathlib.Path) -> None:
    """T11: order by step only."""
    path = folder / "classification" / "metrics.jsonl"
    path.write_text('{"step": 2, "train/loss": 2}\n{"step": 1, "train/loss": 1}\n{"step": 2, "train/loss": 3}\n')
    curve = read_run(folder).kinds[0].curves["train/loss"]
    assert (curve.steps, curve.values) == ([1, 2], [1.0, 3.0])


def test_a_run_is_found_by_path_or_by_name(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert find_run("tiny", root=tmp_path) == folder
    assert find_run(str(folder), root=pathlib.Path("/")) == folder


@pytest.mark.parametrize(("name", "code"), [("other", ExitCode.NOT_FOUND), ("no/such", ExitCode.BAD_NAME)])
def test_an_unknown_run_is_refused_with_what_there_is(
    folder: pathlib.Path, name: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: a name cannot leave the root."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(folder))
    with pytest.raises(Failure) as failure:
        find_run(name, root=folder.parent)
    assert failure.value.code == code
    assert name in str(failure.value) and (code != ExitCode.NOT_FOUND or "tiny" in str(failure.value))
