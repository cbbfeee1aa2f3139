"""Tests of a training job on this machine: files, resumption, several workers."""

import dataclasses
import json
import pathlib
import shutil
import socket

import pytest
import torch
from torch import distributed, multiprocessing

from model import checkpoint
from model.label_injection import LabelKind
from priors.generation import ShardConfig, ensure_shards
from priors.mixture import PriorConfig
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from train.job import Place, TrainingJob, note_best
from train.loop import LoopConfig
from train.sitting import run_job
from train.toy import small_network

_PRIOR = PriorConfig(min_rows=64, max_rows=64, max_features=4)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("shards")
    config = ShardConfig(prior=_PRIOR, group_size=8, groups_per_part=4)
    return str(ensure_shards(config, out=out, num_tasks=64, seed=0).folder)


def _job(shards: str, folder: pathlib.Path, *, num_steps: int = 6) -> TrainingJob:
    folder.mkdir(parents=True, exist_ok=True)
    return TrainingJob(
        network=small_network(LabelKind.CLASSIFICATION),
        loop=LoopConfig(num_steps=num_steps, batch_size=8, log_every=1, checkpoint_every=2),
        seed=0,
        shards=shards,
        prior=_PRIOR,
        folder=str(folder),
        num_validation_tasks=8,
    )


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
    best = json.loads((tmp_path / "a" / "best.json").read_bytes())
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


def test_the_best_step_is_right_after_a_kill_before_it_was_noted_and_after_damage(
    shards: str, tmp_path: pathlib.Path
) -> None:
    """T1: what is chosen is read off the checkpoints that verify."""
    job = _job(shards, tmp_path / "a", num_steps=4)
    run_job(job, Place())
    best = note_best(job)
    (tmp_path / "a" / "best.json").unlink()
    assert note_best(job) == best
    assert json.loads((tmp_path / "a" / "best.json").read_bytes())["step"] == best
    (job.checkpoints / f"step-{best:08d}" / "weights.safetensors").write_bytes(b"damaged")
    assert note_best(job) != best
    shutil.rmtree(job.checkpoints)
    with pytest.raises(Failure) as caught:
        note_best(job)
    assert caught.value.code is ExitCode.NOT_FOUND


def test_a_checkpoint_says_with_what_numerics_it_was_made(shards: str, tmp_path: pathlib.Path) -> None:
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    values = checkpoint.load_state(checkpoint.step_folders(job.checkpoints)[-1]).values
    assert values["numerics"]["num_workers"] == 1 and values["numerics"]["device"] == "cpu"
    assert values["numerics"]["dtype"] in ("bfloat16", "float32")


def test_a_complete_job_changes_nothing(shards: str, tmp_path: pathlib.Path) -> None:
    """T10: finished means finished."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    before = job.metrics.read_bytes(), _weights(job)
    run_job(job, Place())
    assert job.metrics.read_bytes() == before[0]
    assert all(torch.equal(before[1][name], tensor) for name, tensor in _weights(job).items())


def test_another_config_is_refused_in_the_same_folder(shards: str, tmp_path: pathlib.Path) -> None:
    """T3: changed config is refused."""
    job = _job(shards, tmp_path / "a", num_steps=2)
    run_job(job, Place())
    with pytest.raises(Failure) as caught:
        run_job(dataclasses.replace(job, seed=1), Place())
    assert caught.value.code is ExitCode.CONFIG_MISMATCH


def _work(rank: int, job: TrainingJob, port: int) -> None:
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    run_job(job, Place(rank=rank, world_size=2))
    distributed.destroy_process_group()


def _run_on_two(job: TrainingJob) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(_work, args=(job, port), nprocs=2)


def test_two_workers_train_on_the_same_tasks_and_repeat_bit_by_bit(shards: str, tmp_path: pathlib.Path) -> None:
    """T2, T3: equal bits at equal worker count; one and two workers see the same global batches."""
    one, two, again = (_job(shards, tmp_path / name, num_steps=3) for name in ("one", "two", "again"))
    run_job(one, Place())
    _run_on_two(two)
    _run_on_two(again)
    assert all(torch.equal(_weights(again)[name], tensor) for name, tensor in _weights(two).items())
    losses = [[r["train/loss"] for r in read_json_lines(job.metrics) if "train/loss" in r] for job in (one, two)]
    assert losses[0] == pytest.approx(losses[1], abs=5e-3)
