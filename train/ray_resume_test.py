"""Three Ray jobs, one after the other, go on with one training on two, one and two workers."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from model import checkpoint
from priors.batches import BatchPlan
from priors.shards import ShardSet
from tools import files, ray_session
from tools.failure import Failure
from train.cluster import ClusterConfig, Workers
from train.job import TrainingJob
from train.loop import LoopConfig
from train.sample_log import FOLDER, log_samples, logged_samples, sample_ids
from train.toy_job import BATCH_SIZE, newest_step, toy_job, toy_shards
from train.workers import connected, run_jobs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings

_STEPS = 120


@pytest.fixture
def log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder in which every Ray worker of this test notes the tasks that it is given."""
    folder, arguments = tmp_path / "log", ray_session.init_arguments
    folder.mkdir()

    @contextlib.contextmanager
    def noting(address: str, **options: Any) -> Iterator[dict[str, Any]]:
        with arguments(address, **options) as found:
            environment = found["runtime_env"] | {"worker_process_setup_hook": log_samples}
            patience = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120"}  # what notes is imported first
            environment["env_vars"] = environment["env_vars"] | patience | {FOLDER: str(folder)}
            yield found | {"runtime_env": environment}

    monkeypatch.setattr(ray_session, "init_arguments", noting)
    return folder


class _Once:
    """For `poll`: does something once, as soon as a step is recorded (never for None)."""

    def __init__(self, job: TrainingJob, step: int | None, action: Callable[[], None]) -> None:
        self._job, self._step, self._action = job, step, action

    def __call__(self) -> None:
        recorded = [record["step"] for record in files.read_json_lines(self._job.metrics)]
        if self._step is not None and max(recorded, default=0) >= self._step:
            self._step = None
            self._action()


def _press_ctrl_c() -> None:
    raise KeyboardInterrupt


def _weights(job: TrainingJob) -> str:
    return files.sha256_file(checkpoint.newest_verified(job.checkpoints) / "weights.safetensors")


def test_three_resumed_ray_jobs_see_every_sample_in_the_order_of_an_uninterrupted_run(
    tmp_path: pathlib.Path, log: pathlib.Path
) -> None:
    """T2, T3 on Ray: two, one and two workers; weights move in every job; the ids that workers note are in order.

    The order to be seen is computed from the shards alone. The first job is stopped by Ctrl-C, the second by somebody
    who writes into its file `stop`, which the job reports as a stop.
    """
    shards = toy_shards(tmp_path / "shards")
    loop = LoopConfig(num_steps=_STEPS, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=_STEPS)
    job = toy_job(shards, tmp_path / "run", loop=loop)
    ends, weights = [], []
    with connected(ClusterConfig(num_workers=2), batch_sizes=[BATCH_SIZE]):
        for count, until, action, ends_with in (
            (2, 10, _press_ctrl_c, pytest.raises(KeyboardInterrupt)),
            (
                1,
                50,
                lambda: (tmp_path / "run" / "stop").write_text("stop\n"),
                pytest.raises(Failure, match="stopped by a word in"),
            ),
            (2, None, _press_ctrl_c, contextlib.nullcontext()),
        ):
            with ends_with:
                run_jobs([job], Workers(count=count, gpus_each=0), poll=_Once(job, until, action))
            ends.append(newest_step(job))
            weights.append(_weights(job))
    assert 10 <= ends[0] < 50 <= ends[1] < ends[2] == _STEPS
    assert len(set(weights)) == 3, "every job has moved the weights"
    plan = BatchPlan(ShardSet.open(shards), batch_size=BATCH_SIZE, seed=job.seed, split=job.split)
    found = logged_samples(log)
    assert sorted(found) == list(range(_STEPS))
    for step, batches in found.items():
        assert batches == {tuple(sample_ids(plan.batch(step)))}, step
    workers = {record["step"]: record["workers"] for record in files.read_json_lines(log / "rank-0.jsonl")}
    assert [workers[step] for step in (0, ends[0], ends[1])] == [2, 1, 2]
    losses = [record["train/loss"] for record in files.read_json_lines(job.metrics) if "train/loss" in record]
    assert len(losses) == _STEPS and sum(losses[-20:]) < sum(losses[:20])
    assert not list(pathlib.Path("/tmp").glob(ray_session.folder_prefix(os.getpid()) + "*"))
