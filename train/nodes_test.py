"""Training on a cluster of two nodes: what is refused before it begins, and the death of a whole node."""

import json
import pathlib
import time
from collections.abc import Sequence

import pytest

from model.label_injection import LabelKind
from priors.generation import ShardConfig, ensure_shards
from priors.mixture import PriorConfig
from priors.task import TaskKind
from tools import source_archive
from tools.failure import ExitCode, Failure
from tools.files import read_json_lines
from tools.ray_nodes import Cluster, Node, cluster
from tools.ray_session import RAY_SETTINGS
from train.cluster import ClusterConfig, Workers
from train.events import RunEvent
from train.job import TrainingJob
from train.loop import LoopConfig
from train.toy import small_network

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings

_EVERY = 20  # steps between two checkpoints


def _job(root: pathlib.Path) -> TrainingJob:
    prior = PriorConfig(kind=TaskKind.REGRESSION, min_rows=64, max_rows=64, max_features=4)
    shards = ensure_shards(
        ShardConfig(prior=prior, group_size=7, groups_per_part=4), out=root / "shards", num_tasks=28, seed=0
    )
    (root / "run" / "regression").mkdir(parents=True)
    return TrainingJob(
        network=small_network(LabelKind.REGRESSION),
        loop=LoopConfig(num_steps=1_000_000, batch_size=7, log_every=1, checkpoint_every=_EVERY),
        seed=0,
        shards=str(shards.folder),
        prior=prior,
        folder=str(root / "run" / "regression"),
        num_validation_tasks=8,
    )


class _Outage:
    """Kills −9 the whole node of rank 1 once training is under way; asks for a stop when it went on for long enough.

    Args:
        job: what is trained.
        nodes: rank 1 runs on one of them.
    """

    def __init__(self, job: TrainingJob, nodes: Sequence[Node]) -> None:
        self._job, self._nodes = job, nodes
        self._killed = 0.0
        self.before: list[dict[str, float]] = []
        self.seconds = 0.0  # from the kill to the first step after it

    def __call__(self) -> None:
        records = [record for record in read_json_lines(self._job.metrics) if "train/loss" in record]
        if not self.before and len(records) > _EVERY + 5:
            said = pathlib.Path(self._job.folder).parent / ".ray" / "ranks" / "1.json"
            (node,) = [node for node in self._nodes if json.loads(said.read_bytes())["pid"] in node.pids()]
            node.kill()
            self._killed = time.monotonic()
            self.before = [record for record in read_json_lines(self._job.metrics) if "train/loss" in record]
        if self.before and self._resumed():
            self.seconds = self.seconds or time.monotonic() - self._killed
            if records[-1]["step"] > self.before[-1]["step"] + _EVERY:
                raise KeyboardInterrupt

    def _resumed(self) -> bool:
        events = read_json_lines(pathlib.Path(self._job.folder).parent / "events.jsonl")
        return any(event["event"] == RunEvent.WORKER_LOST for event in events)


def _refused(*, shared: pathlib.Path | None = None, within: float) -> Failure:
    from train.workers import connected

    start = time.monotonic()
    with pytest.raises(Failure) as caught, connected(ClusterConfig(address="auto"), batch_sizes=[7], shared=shared):
        pass
    assert time.monotonic() - start < within
    assert "\n" not in caught.value.message
    return caught.value


def test_a_dead_node_is_survived_and_a_node_that_differs_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4 for a whole node, rank 1 upon it: the job goes on with the other worker, from the last checkpoint.

    A node whose Python finds other modules of ours is refused by name, with both hashes; so is, within 10 seconds, a
    cluster that is gone.
    """
    job = _job(tmp_path)
    monkeypatch.chdir(tmp_path)  # Ray puts this folder first on every worker's path
    with cluster() as nodes:
        head = nodes.start("head", cpus=0)
        workers = [nodes.start(name) for name in ("first", "second")]
        for name, value in {**nodes.environment, **RAY_SETTINGS}.items():
            monkeypatch.setenv(name, value)
        _train_through_an_outage(job, workers)
        _another_code(nodes, tmp_path)
        head.kill()
        assert "nothing answers at" in _refused(within=10).message


def _train_through_an_outage(job: TrainingJob, nodes: Sequence[Node]) -> None:
    from train.workers import connected, run_jobs  # imports ray, which reads how to join while it is imported

    outage, shared = _Outage(job, nodes), pathlib.Path(job.folder).parent
    config = ClusterConfig(address="auto", num_workers=2, min_workers=1)
    with connected(config, batch_sizes=[7], shared=shared) as workers:
        assert workers == Workers(count=2, gpus_each=0, fewest=1)
        with pytest.raises(KeyboardInterrupt):
            run_jobs([job], workers, poll=outage)
    events = read_json_lines(shared / "events.jsonl")
    began, lost = (
        next(event for event in events if event["event"] == name)
        for name in (RunEvent.TRAINING_STARTED, RunEvent.WORKER_LOST)
    )
    assert (began["workers"], lost["workers"]) == (2, 1)
    assert outage.seconds < 60
    assert 0 <= outage.before[-1]["step"] - lost["step"] <= _EVERY + 1
    after = {r["step"]: r["train/loss"] for r in read_json_lines(job.metrics) if "train/loss" in r}
    assert list(after) == list(range(1, max(after) + 1))  # no step twice, none left out
    again = [r for r in outage.before if r["step"] > lost["step"]]
    assert all(after[r["step"]] == pytest.approx(r["train/loss"], rel=0.05) for r in again)
    assert not list(shared.glob(".preflight*"))


def _another_code(nodes: Cluster, tmp_path: pathlib.Path) -> None:
    """A third node, with an older copy of ours that its Python finds first."""
    for path in source_archive.packed(["tools", "priors", "model", "eval", "train"]).paths:
        file = tmp_path / "old" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((source_archive.source_root(["tools"]) / path).read_bytes() + b"#")
    (tmp_path / "old" / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path / 'old')!r})\n")
    nodes.start("third", environment={"PYTHONPATH": str(tmp_path / "old")})
    failure = _refused(shared=tmp_path, within=120)
    assert failure.code is ExitCode.WORKER_FAILED
    assert failure.message.startswith("node third (127.0.0.4) has code ") and str(tmp_path / "old") in failure.message
