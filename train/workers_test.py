"""Tests of training on a real Ray instance."""

import dataclasses
import pathlib

import pytest

from model import checkpoint
from model.label_injection import LabelKind
from priors.generation import ShardConfig, ensure_shards
from priors.mixture import PriorConfig
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from train.cluster import ClusterConfig, Workers
from train.job import TrainingJob
from train.loop import LoopConfig
from train.toy import small_network
from train.workers import connected, run_jobs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings


def _job(root: pathlib.Path, kind: TaskKind) -> TrainingJob:
    prior = PriorConfig(kind=kind, min_rows=64, max_rows=64, max_features=4)
    config = ShardConfig(prior=prior, group_size=8, groups_per_part=4)
    shards = ensure_shards(config, out=root / f"shards-{kind}", num_tasks=32, seed=0)
    folder = root / "run" / kind.value
    folder.mkdir(parents=True)
    return TrainingJob(
        network=small_network(LabelKind(kind.value)),
        loop=LoopConfig(num_steps=4, batch_size=8, log_every=1, checkpoint_every=2),
        seed=0,
        shards=str(shards.folder),
        prior=prior,
        folder=str(folder),
        num_validation_tasks=8,
    )


def test_two_workers_train_both_models_and_a_refusal_comes_back_as_it_was(tmp_path: pathlib.Path) -> None:
    """One Ray job, two models; then a worker's Failure reaches the user with its own exit code, without retries."""
    jobs = [_job(tmp_path, kind) for kind in TaskKind]
    polls: list[int] = []
    with connected(ClusterConfig(num_workers=2), batch_sizes=[8]) as workers:
        assert workers == Workers(count=2, gpus_each=0)
        run_jobs(jobs, workers, poll=lambda: polls.append(1))
        for job in jobs:
            assert job.is_complete()
            assert [r["step"] for r in read_json_lines(job.metrics) if "train/loss" in r] == [1, 2, 3, 4]
            weights = checkpoint.load_checkpoint(checkpoint.newest_verified(job.checkpoints)).weights
            assert all(tensor.isfinite().all() for tensor in weights.values())
        assert polls
        longer = dataclasses.replace(jobs[0].loop, num_steps=5)
        with pytest.raises(Failure) as caught:
            run_jobs([dataclasses.replace(jobs[0], loop=longer)], workers, poll=lambda: None)
        assert caught.value.code is ExitCode.CONFIG_MISMATCH
    assert not (tmp_path / "run" / ".ray").exists()


def test_more_workers_than_cores_are_refused_with_both_numbers() -> None:
    """T5: one line, at once."""
    with pytest.raises(Failure) as caught, connected(ClusterConfig(num_workers=4096), batch_sizes=[8]):
        pass
    assert caught.value.code is ExitCode.TOO_FEW_RESOURCES
    assert "4096" in caught.value.message and "CPU workers" in caught.value.message


def test_gpus_on_a_machine_without_any_are_refused() -> None:
    """T5: Ray alone would wait for ever."""
    with pytest.raises(Failure) as caught, connected(ClusterConfig(gpus_per_worker=64), batch_sizes=[8]):
        pass
    assert caught.value.code is ExitCode.TOO_FEW_RESOURCES


@pytest.mark.parametrize("address", ["ray://head:10001", "10.0.0.1:6379"])
def test_an_address_that_cannot_be_used_is_refused_before_ray_starts(address: str) -> None:
    with pytest.raises(Failure) as caught, connected(ClusterConfig(address=address), batch_sizes=[8]):
        pass
    assert caught.value.code is ExitCode.BAD_FLAG
    assert address in caught.value.message
    assert ("Ray Jobs" in caught.value.message) == address.startswith("ray://")
