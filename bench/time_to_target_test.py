"""Tests of time to target: what passes when, and the whole way on a small network."""

import dataclasses
import io
import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import rich.console

from bench.target_report import publish, record_row
from bench.target_scores import TableScores
from bench.time_to_target import (
    TargetConfig,
    TargetLook,
    TimeToTarget,
    TimeToTargetConfig,
    first_pass,
    measure_time_to_target,
    shortest_run,
    time_to_target,
    time_to_target_small,
)
from bench.timed_run import Runner
from eval.two_way_transformer import TwoWayForm
from tools.failure import ExitCode, Failure
from train.feed import TaskSource
from train.toy_job import toy_pretraining


def _look(model: str = "veritab", *, num_steps: int, seconds: float, auc: float, is_last: bool = False) -> TargetLook:
    scores = TableScores(auc=auc, accuracy=0.5, nll=0.6, seconds=1.0, auc_by_table={})
    tasks = int(100 * seconds)
    return TargetLook(
        model=model, num_steps=num_steps, step=1, tasks=tasks, seconds=seconds, is_last=is_last, scores=scores
    )


_LOOKS = (
    _look(num_steps=100, seconds=10, auc=0.70),
    _look(num_steps=100, seconds=20, auc=0.81, is_last=True),
    _look(num_steps=200, seconds=15, auc=0.82),
    _look(num_steps=200, seconds=40, auc=0.85, is_last=True),
    _look("two-way", num_steps=200, seconds=5, auc=0.99),
)


def test_the_first_pass_is_the_earliest_look_of_any_run_above_the_target() -> None:
    assert first_pass(_LOOKS, 0.80).seconds == 15
    assert first_pass(_LOOKS, 0.65).seconds == 10
    assert first_pass(_LOOKS, 0.85) is None
    assert first_pass(_LOOKS, 0.85, model="two-way").seconds == 5


def test_the_shortest_run_is_judged_by_its_end() -> None:
    assert shortest_run(_LOOKS, 0.80).num_steps == 100
    assert shortest_run(_LOOKS, 0.815).num_steps == 200
    assert shortest_run(_LOOKS, 0.86) is None


def test_a_line_of_records_has_seconds_and_tasks_of_each_target() -> None:
    found = TimeToTarget(
        targets={"knn": 0.80, "linear": 0.9}, baselines={}, looks=_LOOKS, runs=(), num_tables=34, skipped={}
    )
    cells = [cell.strip() for cell in record_row(found, change="wider").strip("|").split("|")]
    assert cells[1:] == ["wider", "15", "1,500", "not reached", ""]


def test_published_targets_ascend_and_a_default_run_is_that_of_the_preset() -> None:
    assert TargetConfig().named() == {"knn": 0.812, "linear": 0.858, "random_forest": 0.868}
    assert time_to_target().lengths() == (time_to_target().pretrain.classification.loop.num_steps,)
    assert dataclasses.replace(time_to_target(), steps=(400, 200, 400)).lengths() == (200, 400)


def _folder_of_tables(folder: pathlib.Path) -> pathlib.Path:
    generator, entries = np.random.default_rng(0), []
    folder.mkdir()
    for name in ("one", "two"):
        x = generator.normal(size=(60, 3))
        frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(target=np.where(x[:, 0] > 0, "yes", "no"))
        frame.to_csv(folder / f"{name}.csv", index=False)
        entries.append({"name": name, "task": "cls", "file": f"{name}.csv", "group": "core"})
    (folder / "manifest.json").write_text(json.dumps(entries))
    return folder


def test_it_trains_scores_and_writes_everything_down(tmp_path: pathlib.Path) -> None:
    """Against baselines measured on the same splits."""
    config = TimeToTargetConfig(
        pretrain=toy_pretraining(),
        tables=_folder_of_tables(tmp_path / "tables"),
        baselines=True,
        steps=(6,),
        every=3,
        estimators=1,
        runner=Runner.BARE,
        json=tmp_path / "out" / "found.json",
        picture=tmp_path / "out" / "found.png",
        change="toy",
        folder=tmp_path / "kept",
    )
    found = measure_time_to_target(config)
    assert found.models() == ["veritab", "two-way modern"]
    ours = [look for look in found.looks if look.model == "veritab"]
    assert [(look.step, look.is_last) for look in ours] == [(3, False), (6, True)]
    assert found.num_tables == 2 and set(found.baselines) == {"knn", "linear", "random_forest"}
    assert found.targets["random_forest"] == found.baselines["random_forest"].auc > 0.9
    assert all(0 < look.scores.auc < 1 and look.scores.nll > 0 for look in found.looks)
    console = rich.console.Console(width=140, record=True, file=io.StringIO())
    publish(found, config, console=console)
    said = console.export_text()
    assert "Time to target: mean AUC (one-vs-one) over 2 tables" in said and "| toy | not reached |" in said
    record = json.loads((tmp_path / "out" / "found.json").read_text())
    assert [look["scores"]["auc"] for look in record["looks"]] == [look.scores.auc for look in found.looks]
    last = record["targets"][-1]
    assert (last["model"], last["first"], last["end"]) == ("two-way modern", None, None)
    assert (tmp_path / "out" / "found.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(Failure) as caught:
        measure_time_to_target(config)
    assert caught.value.code is ExitCode.BAD_FLAG and "kept exists" in caught.value.message


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": (100, 0)}, "--steps 0 is too small"),
        ({"every": 0}, "--every 0 is too small"),
        ({"estimators": 0}, "--estimators 0 is too small"),
        ({"two_way_learning_rate": 0.0}, "--two-way-learning-rate 0.0 is too small"),
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, float], complaint: str) -> None:
    with pytest.raises(Failure, match=complaint) as caught:
        dataclasses.replace(time_to_target(), **change)
    assert caught.value.code is ExitCode.BAD_FLAG


def test_fresh_tasks_cannot_be_shared_with_the_other_model() -> None:
    config = time_to_target()
    fresh = dataclasses.replace(config.pretrain.data, source=TaskSource.FRESH)
    pretrain = dataclasses.replace(config.pretrain, data=fresh)
    with pytest.raises(Failure, match="--two-way modern needs the tasks in shards"):
        dataclasses.replace(config, pretrain=pretrain)
    assert dataclasses.replace(config, two_way=(), pretrain=pretrain).two_way == ()
    assert config.two_way == (TwoWayForm.MODERN,)


@pytest.mark.parametrize("gpus", [None, 1])
def test_the_other_model_is_not_trained_beside_ours_on_gpus(gpus: int | None) -> None:
    """By default ours would take those that there are, and the other has CPUs alone."""
    config = time_to_target()
    cluster = dataclasses.replace(config.pretrain.cluster, gpus_per_worker=gpus)
    pretrain = dataclasses.replace(config.pretrain, cluster=cluster)
    flag = "--pretrain.cluster.gpus-per-worker"
    complaint = f"--two-way modern trains on CPUs and {flag} is {gpus}: give {flag} 0, or --two-way without values"
    with pytest.raises(Failure, match=complaint) as caught:
        dataclasses.replace(config, pretrain=pretrain)
    assert caught.value.code is ExitCode.BAD_FLAG
    assert dataclasses.replace(config, two_way=(), pretrain=pretrain).pretrain == pretrain
    assert dataclasses.replace(config, runner=Runner.BARE, pretrain=pretrain).two_way == config.two_way
    assert {made().pretrain.cluster.gpus_per_worker for made in (time_to_target, time_to_target_small)} == {0}
