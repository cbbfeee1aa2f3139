"""Tests of the run folder."""

import contextlib
import dataclasses
import json
import pathlib

import pytest
import torch

from priors.task import TaskKind
from tools import files
from tools.failure import ExitCode, Failure
from train import presets
from train.events import RunEvent
from train.feed import TaskSource
from train.run import claimed, name_run
from train.state import fresh_state, save_state


def _config(root: pathlib.Path, **changes: object) -> presets.PretrainConfig:
    return dataclasses.replace(presets.tiny(), root=root, **changes)


def test_the_default_name_says_preset_and_config_and_ignores_places(tmp_path: pathlib.Path) -> None:
    first = name_run("tiny", _config(tmp_path))
    elsewhere = name_run("tiny", _config(tmp_path / "b", tracking_uri="http://h:1"))
    seeded = name_run("tiny", _config(tmp_path, seed=1))
    assert first.name == elsewhere.name != seeded.name
    assert first.name.startswith("tiny-") and not first.path.exists()
    assert first.kind_path(TaskKind.REGRESSION) == first.path / "regression"


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 129, "a b", "ä"])
def test_a_name_that_could_leave_the_root_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    """S4: names are [A-Za-z0-9._-]{1,128}."""
    with pytest.raises(Failure) as caught:
        name_run("tiny", _config(tmp_path, name=name))
    assert caught.value.code is ExitCode.BAD_NAME
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["root", "name"])
def test_a_place_that_is_a_file_is_refused(tmp_path: pathlib.Path, part: str) -> None:
    (tmp_path / "file").touch()
    config = _config(tmp_path / "file") if part == "root" else _config(tmp_path, name="file")
    with pytest.raises(Failure) as caught, claimed(name_run("tiny", config)):
        pass
    assert caught.value.code is ExitCode.NOT_WRITABLE
    assert f"--{part}" in caught.value.message


def _begin(config: presets.PretrainConfig) -> None:
    run = name_run("tiny", config)
    with claimed(run), run.stage("generate"):
        pass


def test_a_name_keeps_its_config(tmp_path: pathlib.Path) -> None:
    """T3: another config under the same name is refused, as is one that cannot be read; the same one goes on."""
    _begin(_config(tmp_path, name="a"))
    _begin(_config(tmp_path, name="a"))
    with pytest.raises(Failure) as caught:
        _begin(_config(tmp_path, name="a", seed=1))
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    record = json.loads((tmp_path / "a" / "config.json").read_bytes())
    assert record["format_version"] == 1 and record["config"]["seed"] == 0
    (tmp_path / "a" / "config.json").write_text("{")
    with pytest.raises(Failure) as caught:
        _begin(_config(tmp_path, name="a"))
    assert caught.value.code is ExitCode.CONFIG_MISMATCH


def test_another_config_is_refused_by_field_and_goes_on_with_leave(tmp_path: pathlib.Path) -> None:
    """T3: what differs is named, old and new, with the flag that accepts it; then the change is told and recorded."""
    _begin(_config(tmp_path, name="a"))
    (tmp_path / "a" / "summary.json").write_text('{"complete": true}')
    data = dataclasses.replace(_config(tmp_path).data, num_tasks=4096)
    other = _config(tmp_path, name="a", seed=7, data=data)
    with pytest.raises(Failure) as caught:
        _begin(other)
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    before = presets.tiny().data.num_tasks
    assert f"(data.num_tasks: {before} → 4096; seed: 0 → 7): give --accept-changes" in caught.value.message
    assert (tmp_path / "a" / "summary.json").exists()
    _begin(dataclasses.replace(other, accept_changes=True))
    assert not (tmp_path / "a" / "summary.json").exists()
    assert json.loads((tmp_path / "a" / "config.json").read_bytes())["config"]["seed"] == 7
    run = name_run("tiny", other)
    run.events.write(RunEvent.CHANGES_ACCEPTED, kind="regression", changes=["loop.num_steps: 4 → 8"])
    assert run.changed_fields() == {"data.num_tasks": f"{before} → 4096", "seed": "0 → 7"}
    _begin(other)
    events = [event["event"] for event in run.events.read()]
    accepted = "config changes accepted"
    assert events == ["start", "end", accepted, "start", "end", accepted, "start", "end"]


def test_a_training_that_is_complete_takes_no_other_config(tmp_path: pathlib.Path) -> None:
    """T3: nor with leave, before anything is written: nothing would train. Scoring may change, and more steps do."""
    data = dataclasses.replace(presets.tiny().data, source=TaskSource.FRESH)
    config = _config(tmp_path, name="a", data=data, accept_changes=True)
    _begin(config)
    job = name_run("tiny", config).job(TaskKind.CLASSIFICATION)
    identity, cpu = job.identity(), torch.device("cpu")
    state = fresh_state(job.network, job.loop.optimizer, seed=0, device=cpu, identity=identity)
    state.step = job.loop.num_steps
    save_state(job.checkpoints, state, validation={"nll": 0.5})
    (tmp_path / "a" / "summary.json").write_text('{"complete": true}')
    before = {path: path.read_bytes() for path in (tmp_path / "a").glob("*.json*")}
    optimizer = dataclasses.replace(job.loop.optimizer, vector_lr=0.5)
    faster = dataclasses.replace(config.classification, loop=dataclasses.replace(job.loop, optimizer=optimizer))
    with pytest.raises(Failure) as caught:
        _begin(dataclasses.replace(config, classification=faster))
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert "(loop.optimizer.vector_lr: 0.003 → 0.5): give another --name, or more steps" in caught.value.message
    assert {path: path.read_bytes() for path in (tmp_path / "a").glob("*.json*")} == before and len(before) == 3
    _begin(dataclasses.replace(config, scoring=dataclasses.replace(config.scoring, num_seeds=7)))
    assert not (tmp_path / "a" / "summary.json").exists()
    longer = dataclasses.replace(faster.loop, num_steps=job.loop.num_steps + 1)
    _begin(dataclasses.replace(config, classification=dataclasses.replace(faster, loop=longer)))


def test_what_changes_no_result_may_change_between_sittings(tmp_path: pathlib.Path) -> None:
    _begin(_config(tmp_path, name="a"))
    cluster = dataclasses.replace(presets.tiny().cluster, num_workers=2)
    watch = dataclasses.replace(presets.tiny().watch, num_tables=0)
    _begin(_config(tmp_path, name="a", cluster=cluster, watch=watch, resume=True, tracking_uri="http://h:1"))


def test_there_must_be_a_run_to_resume(tmp_path: pathlib.Path) -> None:
    """NOT_FOUND, naming the runs that there are; nothing is made."""
    with pytest.raises(Failure) as caught:
        _begin(_config(tmp_path, name="b", resume=True))
    assert caught.value.code is ExitCode.NOT_FOUND and "that root holds none" in caught.value.message
    assert list(tmp_path.iterdir()) == []
    _begin(_config(tmp_path, name="a"))
    with pytest.raises(Failure) as caught:
        _begin(_config(tmp_path, name="b", resume=True))
    assert str(tmp_path / "b") in caught.value.message and "there are a)" in caught.value.message
    _begin(_config(tmp_path, name="a", resume=True))


def _trained_to(config: presets.PretrainConfig, *steps: int) -> pathlib.Path:
    """Begins a run that has checkpoints of these steps of one of its models; returns where they lie."""
    _begin(config)
    job, cpu = name_run("tiny", config).job(TaskKind.CLASSIFICATION), torch.device("cpu")
    state = fresh_state(job.network, job.loop.optimizer, seed=0, device=cpu, identity={})
    for state.step in steps:
        save_state(job.checkpoints, state, validation={})
    return job.checkpoints


def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew_by_resuming(tmp_path: pathlib.Path) -> None:
    """T1: CHECKPOINT_CORRUPT, naming the newest; while one is whole, or without --resume, the run goes on."""
    config = _config(tmp_path, name="a", resume=True)
    checkpoints = _trained_to(dataclasses.replace(config, resume=False), 1, 2)
    _begin(config)
    (checkpoints / "step-00000002" / "config.json").write_text("{}")
    _begin(config)
    (checkpoints / "step-00000001" / "weights.safetensors").unlink()
    with pytest.raises(Failure) as caught:
        _begin(config)
    assert caught.value.code is ExitCode.CHECKPOINT_CORRUPT
    said = f"--resume found no whole checkpoint in {checkpoints} (the newest is step-00000002): restore one, "
    assert caught.value.message.startswith(said)
    assert len(list(checkpoints.iterdir())) == 2 and not (tmp_path / "a" / "lock").exists()
    _begin(dataclasses.replace(config, resume=False))


def test_a_run_with_checkpoints_of_another_format_version_is_not_resumed(tmp_path: pathlib.Path) -> None:
    """T1: FORMAT_VERSION, as with every one of these."""
    config = _config(tmp_path, name="a", resume=True)
    path = _trained_to(dataclasses.replace(config, resume=False), 1) / "step-00000001" / files.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "format_version": 1}))
    with pytest.raises(Failure, match="has format version 1: ") as caught:
        _begin(config)
    assert caught.value.code is ExitCode.FORMAT_VERSION


def test_a_run_tells_when_it_began_went_on_stopped_and_why(tmp_path: pathlib.Path) -> None:
    run = name_run("tiny", _config(tmp_path, name="a"))
    with claimed(run):
        with pytest.raises(Failure), run.sitting():
            raise Failure(ExitCode.DIVERGED, "training diverged")
        with pytest.raises(KeyboardInterrupt), run.sitting():
            raise KeyboardInterrupt
        with run.sitting():
            pass
    events = [(event["event"], event.get("text")) for event in run.events.read()]
    assert events == [
        ("run started", None),
        ("run stopped", "training diverged"),
        ("run resumed", None),
        ("run stopped", "interrupted"),
        ("run resumed", None),
    ]


def test_a_run_refused_before_its_first_stage_leaves_nothing(tmp_path: pathlib.Path) -> None:
    run = name_run("tiny", _config(tmp_path, name="a"))
    with pytest.raises(Failure), claimed(run):
        assert run.path.exists()
        raise Failure(ExitCode.TOO_FEW_RESOURCES, "too few")
    assert not run.path.exists()
    _begin(_config(tmp_path, name="a"))
    with pytest.raises(Failure), claimed(run):
        raise Failure(ExitCode.TOO_FEW_RESOURCES, "too few")
    assert run.path.exists()


def test_a_start_behind_one_that_was_refused_keeps_its_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6: whoever takes the lock as soon as it is free holds a folder that nobody else takes away."""
    run, leave = name_run("tiny", _config(tmp_path, name="a")), files.FolderLock.__exit__
    with contextlib.ExitStack() as second:

        def leave_to_another(lock: files.FolderLock, *exc_info: object) -> None:
            leave(lock, *exc_info)
            monkeypatch.undo()
            second.enter_context(claimed(run))

        monkeypatch.setattr(files.FolderLock, "__exit__", leave_to_another)
        with pytest.raises(Failure), claimed(run):
            raise Failure(ExitCode.TOO_FEW_RESOURCES, "too few")
        assert (run.path / "lock").exists() and (run.path / "config.json").exists()
    assert list(tmp_path.iterdir()) == []


def test_stage_seconds_add_up_over_sittings_and_interruptions_count(tmp_path: pathlib.Path) -> None:
    """Each end is told by its kind: done, stopped because somebody asked for it, failed."""
    run = name_run("tiny", _config(tmp_path))
    with claimed(run):
        with run.stage("train"):
            pass
        stop = Failure(ExitCode.INTERRUPTED, "stopped")
        for error in (KeyboardInterrupt(), stop, ValueError(), Failure(ExitCode.DIVERGED, "diverged")):
            with pytest.raises(type(error)), run.stage("train"):
                raise error
        with (run.path / "events.jsonl").open("a") as file:
            file.write('{"stage": "train", "ev')
        events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()[:-1]]
        endings = ("end", "interrupted", "interrupted", "failed", "failed")
        assert [event["event"] for event in events] == [name for ending in endings for name in ("start", ending)]
        assert run.seconds() == {"train": pytest.approx(sum(event["seconds"] for event in events))}


@pytest.mark.parametrize("text", ["", "{", "{}", '{"complete": false}'])
def test_a_run_is_finished_only_with_a_summary_that_says_so(tmp_path: pathlib.Path, text: str) -> None:
    run = name_run("tiny", _config(tmp_path))
    assert run.summary() is None
    run.path.mkdir()
    run.summary_path.write_text(text)
    assert run.summary() is None
    run.summary_path.write_text('{"complete": true}')
    assert run.summary() == {"complete": True}
