"""Tests of the run folder."""

import dataclasses
import json
import pathlib

import pytest

from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from train import presets
from train.run import open_run


def _config(root: pathlib.Path, **changes: object) -> presets.PretrainConfig:
    return dataclasses.replace(presets.tiny(), root=root, **changes)


def test_the_default_name_says_preset_and_config_and_ignores_places(tmp_path: pathlib.Path) -> None:
    first = open_run("tiny", _config(tmp_path))
    elsewhere = open_run("tiny", _config(tmp_path / "b", tracking_uri="http://h:1"))
    seeded = open_run("tiny", _config(tmp_path, seed=1))
    assert first.name == elsewhere.name != seeded.name
    assert first.name.startswith("tiny-") and first.path.is_dir()
    assert first.kind_path(TaskKind.REGRESSION) == first.path / "regression"


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 129, "a b", "ä"])
def test_a_name_that_could_leave_the_root_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    """S4: names are [A-Za-z0-9._-]{1,128}."""
    with pytest.raises(Failure) as caught:
        open_run("tiny", _config(tmp_path, name=name))
    assert caught.value.code is ExitCode.BAD_NAME
    assert list(tmp_path.iterdir()) == []


def test_a_root_below_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure) as caught:
        open_run("tiny", _config(tmp_path / "file" / "runs"))
    assert caught.value.code is ExitCode.NOT_WRITABLE


def test_a_name_keeps_its_config(tmp_path: pathlib.Path) -> None:
    """T3: another config under the same name is refused; the same one goes on."""
    open_run("tiny", _config(tmp_path, name="a")).write_config()
    open_run("tiny", _config(tmp_path, name="a")).write_config()
    with pytest.raises(Failure) as caught:
        open_run("tiny", _config(tmp_path, name="a", seed=1)).write_config()
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    record = json.loads((tmp_path / "a" / "config.json").read_bytes())
    assert record["format_version"] == 1 and record["config"]["seed"] == 0


def test_stage_seconds_add_up_over_sittings_and_a_failed_stage_has_no_end(tmp_path: pathlib.Path) -> None:
    run = open_run("tiny", _config(tmp_path))
    for _ in range(2):
        with run.stage("train"):
            pass
    with pytest.raises(ValueError), run.stage("score"):
        raise ValueError
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert [(e["stage"], e["event"]) for e in events][-1] == ("score", "start")
    assert set(run.seconds()) == {"train"}
    assert run.seconds()["train"] == pytest.approx(sum(e["seconds"] for e in events if e["event"] == "end"))


def test_a_run_without_a_summary_is_not_finished(tmp_path: pathlib.Path) -> None:
    run = open_run("tiny", _config(tmp_path))
    assert run.summary() is None
    run.summary_path.write_text("{}")
    assert run.summary() == {}
