"""Tests of a training job on this machine: files, resumption, several workers."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import torch

from model import checkpoint
from model.label_injection import LabelKind
from priors.generation import ShardConfig, ensure_shards, held_out_episodes
from priors.mixture import PriorConfig
from priors.splits import SplitConfig
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from train.averaging import AveragingConfig, AveragingKind
from train.events import RunEvent
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.optimizer_config import OptimizerConfig
from train.regularisation import RegularisationConfig
from train.sitting import run_job
from train.stages import TrainingStage
from train.toy_job import BATCH_SIZE, toy_job, toy_prior, toy_shards
from train.validation import VALIDATION_SEED, same_shape_batches, validation_figures


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_shards(tmp_path_factory.mktemp("shards"))


def _job(shards: str, folder: pathlib.Path, *, num_steps: int = 6) -> TrainingJob:
    loop = LoopConfig(num_steps=num_steps, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=2)
    return toy_job(shards, folder, loop=loop)


def _best(job: TrainingJob) -> dict[str, float]:
    return json.loads((pathlib.Path(job.folder) / "best.json").read_bytes())


def _weights(job: TrainingJob) -> dict[str, torch.Tensor]:
    return checkpoint.load_checkpoint(checkpoint.step_folders(job.checkpoints)[-1]).weights


def test_a_job_leaves_metrics_checkpoints_and_the_best_step(shards: str, tmp_path: pathlib.Path) -> None:
    """T1: at least two checkpoints stay, and the best one always does."""
    job = _job(shards, tmp_path / "a")
    assert not job.is_complete()
    run_job(job, Place())
    assert job.is_complete()
    records = read_json_lines(job.metrics)
    assert [record["step"] for record in records] == [1, 2, 2, 3, 4, 4, 5, 6, 6]
    nll = {record["step"]: record["validation/nll"] for record in records if "validation/nll" in record}
    best = _best(job)
    assert best == {"step": min(nll, key=nll.get), "nll": min(nll.values())}
    kept = [checkpoint.step_of(folder) for folder in checkpoint.step_folders(job.checkpoints)]
    assert {4, 6, best["step"]} <= set(kept)


def test_a_job_cut_short_ends_in_the_same_bits_and_records(shards: str, tmp_path: pathlib.Path) -> None:
    """T2: exact resumption; what was recorded after the checkpoint is dropped and made again."""
    whole, cut = _job(shards, tmp_path / "whole"), _job(shards, tmp_path / "cut")
    run_job(whole, Place())
    calls = iter(range(100))
    with pytest.raises(Failure) as caught:
        run_job(cut, Place(), should_stop=lambda: next(calls) == 3)
    assert caught.value.code is ExitCode.INTERRUPTED
    with cut.metrics.open("a") as file:
        file.write('{"step": 99, "train/loss": 0}\n{"step": 100, "tra')
    run_job(cut, Place())
    wanted, found = _weights(whole), _weights(cut)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    losses = [
        {r["step"]: r["train/loss"] for r in read_json_lines(job.metrics) if "train/loss" in r} for job in (whole, cut)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "changes", [{"num_validation_tasks": 9}, {"prior": dataclasses.replace(toy_prior(), max_rows=65)}], ids=str
)
def test_a_complete_training_knows_what_it_was_not_trained_with(
    changes: dict[str, Any], shards: str, tmp_path: pathlib.Path
) -> None:
    """T3: other validation tasks count, as other data do; shards that are gone count unless known to be the same."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    assert dataclasses.replace(job, seed=1).trained_otherwise() == []
    run_job(job, Place())
    assert job.trained_otherwise() == [] and job.trained_otherwise(same_data=True) == []
    (change,) = dataclasses.replace(job, **changes).trained_otherwise()
    assert change.startswith("data.validation: ")
    assert dataclasses.replace(job, seed=1).trained_otherwise() == ["seed: 0 → 1"]
    gone = dataclasses.replace(job, shards=str(tmp_path / "gone"))
    (change,) = gone.trained_otherwise()
    assert change.startswith("data.0: ") and change.endswith(" → not made yet")
    assert gone.trained_otherwise(same_data=True) == []
    longer = dataclasses.replace(job.loop, num_steps=3)
    assert dataclasses.replace(job, loop=longer, seed=1).trained_otherwise() == []


def test_a_checkpoint_says_with_what_numerics_it_was_made(shards: str, tmp_path: pathlib.Path) -> None:
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    values = checkpoint.load_state(checkpoint.step_folders(job.checkpoints)[-1]).values
    assert values["numerics"]["num_workers"] == 1 and values["numerics"]["device"] == "cpu"
    assert values["numerics"]["compiled"] is False
    assert values["numerics"]["dtype"] in ("bfloat16", "float32")


def test_a_complete_job_changes_nothing(shards: str, tmp_path: pathlib.Path) -> None:
    """T10: finished means finished."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    before = job.metrics.read_bytes(), _weights(job)
    run_job(job, Place())
    assert job.metrics.read_bytes() == before[0]
    assert all(torch.equal(before[1][name], tensor) for name, tensor in _weights(job).items())


def test_another_config_is_refused_in_the_same_folder_and_named(shards: str, tmp_path: pathlib.Path) -> None:
    """T3: changed config is refused, field by field."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    thinner = dataclasses.replace(job.loop, regularisation=RegularisationConfig(dropped_rows=0.5))
    with pytest.raises(Failure) as caught:
        run_job(dataclasses.replace(job, seed=1, loop=thinner), Place())
    assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert "(loop.regularisation.dropped_rows: 0.0 → 0.5; seed: 0 → 1)" in caught.value.message
    assert "--accept-changes" in caught.value.message


def test_with_leave_a_run_goes_on_with_other_data_and_another_config(shards: str, tmp_path: pathlib.Path) -> None:
    """T3: from the step where it stood; the changes are an event, and asked for once."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    other = toy_shards(tmp_path / "shards", seed=1)
    longer = dataclasses.replace(job, shards=other, loop=dataclasses.replace(job.loop, num_steps=4))
    run_job(dataclasses.replace(longer, accept_changes=True), Place())
    losses = [record["step"] for record in read_json_lines(job.metrics) if "train/loss" in record]
    assert losses == [1, 2, 3, 4]
    (event,) = [event for event in job.events().read() if event["event"] == RunEvent.CHANGES_ACCEPTED]
    assert event["step"] == 2
    assert [change.split(":")[0] for change in event["changes"]] == ["data.0", "loop.num_steps"]
    run_job(longer, Place())


def _curriculum(folder: pathlib.Path, *, num_steps: int = 8) -> TrainingJob:
    """Two steps of 8 tasks, three of 4 in two parts, three of 2; every stage with tasks of its own."""
    jobs = []
    for rows in (64, 96, 128):
        config = ShardConfig(prior=PriorConfig(min_rows=rows, max_rows=rows, max_features=4), group_size=8)
        recipe = dataclasses.replace(config, groups_per_part=1)
        jobs.append(str(ensure_shards(recipe, out=folder.parent / f"s{rows}", num_tasks=32, seed=0).folder))
    later = [
        TrainingStage(first_step=2, shards=jobs[1], fresh=None, split=SplitConfig(), batch_size=4, accumulation=2),
        TrainingStage(first_step=5, shards=jobs[2], fresh=None, split=SplitConfig(), batch_size=2),
    ]
    return dataclasses.replace(_job(jobs[0], folder, num_steps=num_steps), later=tuple(later))


def test_a_curriculum_is_gone_through_in_one_run_and_cut_short_ends_in_the_same_bits(tmp_path: pathlib.Path) -> None:
    """T2, T3: within a stage, and just before and behind its first step."""
    whole = _curriculum(tmp_path / "whole")
    run_job(whole, Place())
    begun = [event for event in whole.events().read() if event["event"] == RunEvent.CURRICULUM_STAGE]
    assert [(event["step"], event["stage"], event["stages"]) for event in begun] == [(2, 2, 3), (5, 3, 3)]
    seen = [record["train/tasks_seen"] for record in read_json_lines(whole.metrics) if "train/loss" in record]
    assert seen == [8, 16, 20, 24, 28, 30, 32, 34] == [whole.tasks_at(step) for step in range(1, 9)]
    cut = _curriculum(tmp_path / "cut")
    for steps in (1, 1, 2, 1, 1):
        asked = iter(range(100))
        with pytest.raises(Failure) as caught:
            run_job(cut, Place(), should_stop=lambda asked=asked, steps=steps: next(asked) == steps - 1)
        assert caught.value.code is ExitCode.INTERRUPTED
    run_job(cut, Place())
    wanted, found = _weights(whole), _weights(cut)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_what_is_left_out_in_a_later_stage_does_not_depend_on_the_number_of_workers(tmp_path: pathlib.Path) -> None:
    """5.H, T3: the place of a task is that in its own stage's batch."""
    places = {}
    for workers in (1, 2):
        job = _curriculum(tmp_path / str(workers))
        thinner = dataclasses.replace(job.loop, regularisation=RegularisationConfig(dropped_rows=0.5))
        run_world(run_job_in_world, dataclasses.replace(job, loop=thinner), size=workers)
        records = [record for record in read_json_lines(job.metrics) if "train/loss" in record]
        places[workers] = [record["train/loss"] for record in records]
    assert places[1] == pytest.approx(places[2], abs=5e-3)


def run_job_in_world(place: Place, job: TrainingJob) -> None:
    """What a member of the world does."""
    run_job(job, place)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"kind": LabelKind.REGRESSION}, ExitCode.CONFIG_MISMATCH, "hold classification tasks, and the network is for"),
        (
            {"max_features": 3},
            ExitCode.OVER_LIMIT,
            "up to 4 features in .* of 3: raise --classification.network.max-features",
        ),
        (
            {"max_classes": 9},
            ExitCode.OVER_LIMIT,
            "up to 10 classes in .* of 9: raise --classification.network.icl.max-cl",
        ),
    ],
)
def test_tasks_that_the_network_does_not_take_are_refused_before_the_first_step(
    changes: dict[str, Any], code: ExitCode, words: str, shards: str, tmp_path: pathlib.Path
) -> None:
    job = _job(shards, tmp_path / "a")
    icl = dataclasses.replace(job.network.icl, max_classes=changes.pop("max_classes", 10))
    with pytest.raises(Failure, match=words) as caught:
        run_job(dataclasses.replace(job, network=dataclasses.replace(job.network, icl=icl, **changes)), Place())
    assert caught.value.code is code


@pytest.mark.parametrize("averaging", [AveragingKind.EMA, AveragingKind.LATEST])
def test_validation_judges_the_weights_that_the_checkpoint_holds(
    averaging: AveragingKind, shards: str, tmp_path: pathlib.Path
) -> None:
    """The figure by which a checkpoint is chosen is that of its deployed weights."""
    job = _job(shards, tmp_path / "a")
    config = AveragingConfig(kind=averaging, points=3, every=1)
    run_job(dataclasses.replace(job, loop=dataclasses.replace(job.loop, averaging=config)), Place())
    folder = checkpoint.step_folders(job.checkpoints)[-1]
    batches = same_shape_batches(held_out_episodes(job.prior, seed=VALIDATION_SEED, count=job.num_validation_tasks))
    figures = validation_figures(checkpoint.load_checkpoint(folder).network(), batches)
    assert figures["nll"] == checkpoint.load_state(folder).values["validation"]["nll"]
    live = checkpoint.load_state(folder).tensors
    network = checkpoint.load_checkpoint(folder).network()
    network.load_state_dict({name: live.get(f"live/{name}", t) for name, t in network.state_dict().items()})
    assert validation_figures(network, batches)["nll"] != figures["nll"]


def test_labels_are_smoothed_in_training_and_not_in_validation(shards: str, tmp_path: pathlib.Path) -> None:
    """1.5: with a rate of almost 0 the training loss shows the smoothing and the validation NLL does not."""
    losses, figures = [], []
    for smoothing in (0.0, 0.5):
        job = _job(shards, tmp_path / str(smoothing), num_steps=1)
        still = OptimizerConfig(matrix_lr=1e-12, vector_lr=1e-12)
        smoothed = RegularisationConfig(label_smoothing=smoothing)
        loop = dataclasses.replace(job.loop, optimizer=still, regularisation=smoothed)
        run_job(dataclasses.replace(job, loop=loop), Place())
        records = read_json_lines(job.metrics)
        losses.append(records[0]["train/loss"])
        figures.append(records[1]["validation/nll"])
    assert figures[0] == pytest.approx(figures[1], abs=1e-6)
    assert losses[0] != pytest.approx(losses[1], rel=0.02)


def test_two_workers_train_on_the_same_tasks_and_repeat_bit_by_bit(shards: str, tmp_path: pathlib.Path) -> None:
    """T2, T3: equal bits at equal worker count; one and two workers see the same global batches."""
    one, two, again = (_job(shards, tmp_path / name, num_steps=3) for name in ("one", "two", "again"))
    run_job(one, Place())
    run_world(run_job_in_world, two)
    run_world(run_job_in_world, again)
    assert all(torch.equal(_weights(again)[name], tensor) for name, tensor in _weights(two).items())
    losses = [[r["train/loss"] for r in read_json_lines(job.metrics) if "train/loss" in r] for job in (one, two)]
    assert losses[0] == pytest.approx(losses[1], abs=5e-3)
