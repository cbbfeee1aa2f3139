"""A real MLflow server that is killed under a training, and starts that are: what the store holds in the end."""

import concurrent.futures
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tools import files, tracking, tracking_server
from tools.tracking import Tracker
from train.gloo_world import run_world
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.sitting import run_job
from train.toy_job import BATCH_SIZE, toy_job, toy_shards

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader")  # sqlalchemy's word to mlflow

_STEPS = 30
_OWN = ("tasks_per_second", "waiting_share", "evaluation_share", "system/")  # names of what no two runs share


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _train(place: Place, job: TrainingJob, gates: str) -> None:
    """Trains; before step N it waits as long as the file `step-N` is in the folder `gates`."""
    steps = iter(range(job.loop.num_steps))

    def wait() -> bool:
        gate = pathlib.Path(gates, f"step-{next(steps)}")
        while gate.exists():
            time.sleep(0.02)
        return False

    run_job(job, place, should_stop=wait)


def _poll_until(done: Callable[[], bool], *, tracker: Tracker, job: TrainingJob) -> None:
    """What the driver of a run does while workers train."""
    while not done():
        if job.metrics.exists():
            tracker.replay(job.metrics, prefix="classification/")
        time.sleep(0.05)


def _reached(job: TrainingJob, step: int) -> Callable[[], bool]:
    return lambda: any(record["step"] >= step for record in files.read_json_lines(job.metrics))


def _kill_group(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGKILL)
    server.wait(timeout=20)


def _history(root: pathlib.Path, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Key → its (step, value) pairs in the store, in order of step."""
    client = tracking.load_mlflow().MlflowClient(tracking.database_uri(root))
    found = {}
    for key in client.get_run(run_id).data.metrics:
        found[key] = sorted((point.step, point.value) for point in client.get_metric_history(run_id, key))
    return found


def test_a_server_that_is_killed_under_a_training_has_all_figures_of_an_undisturbed_run_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K1: a real server killed −9 in mid-run and restarted; training never waits; each (key, step) is there once."""
    shards, port = toy_shards(tmp_path / "shards"), _free_port()
    loop = LoopConfig(num_steps=_STEPS, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=10)
    whole, cut = (toy_job(shards, tmp_path / name, loop=loop) for name in ("whole", "cut"))
    (tmp_path / "gates").mkdir()
    gates = [tmp_path / "gates" / f"step-{step}" for step in (10, 20)]
    for gate in gates:
        gate.touch()
    client = tracking.load_mlflow().MlflowClient(tracking.database_uri(tmp_path))
    client.search_experiments()

    def opened(name: str) -> Tracker:
        return Tracker.open(uri=f"http://127.0.0.1:{port}", root=tmp_path, experiment="veritab", run_name=name)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with tracking_server.serving(root=tmp_path, port=port) as server:
            run_world(_train, whole, str(tmp_path), size=1)
            undisturbed = opened("whole")
            undisturbed.replay(whole.metrics, prefix="classification/")
            assert undisturbed.close() == 0
            tracker = opened("cut")
            training = pool.submit(run_world, _train, cut, str(tmp_path / "gates"), size=1)
            _poll_until(_reached(cut, 10), tracker=tracker, job=cut)
            _kill_group(server)
        gates[0].unlink()
        _poll_until(_reached(cut, 20), tracker=tracker, job=cut)
        assert not training.done(), "training went on while nobody listened, and waits at the second gate alone"
        with tracking_server.serving(root=tmp_path, port=port):
            gates[1].unlink()
            _poll_until(training.done, tracker=tracker, job=cut)
            training.result()
            tracker.replay(cut.metrics, prefix="classification/")
            assert tracker.close() == 0
    wanted, found = _history(tmp_path, undisturbed.run_id), _history(tmp_path, tracker.run_id)
    equal = [key for key in wanted if not any(own in key for own in _OWN)]
    assert "classification/validation/nll" in equal
    assert {key: found[key] for key in equal} == {key: wanted[key] for key in equal}
    for key, points in found.items():
        steps = [step for step, _ in points]
        assert len(set(steps)) == len(steps), key
    assert [step for step, _ in found["classification/train/loss"]] == list(range(1, _STEPS + 1))
    assert client.get_run(tracker.run_id).info.status == "FINISHED"
    assert capsys.readouterr().err.count("does not answer") == 1


_CRASH = """
import os, pathlib, signal, sys
from tools.tracking import Tracker
tracker = Tracker.open(uri=None, root=pathlib.Path(sys.argv[1]), experiment="veritab", run_name="tiny")
tracker.replay(pathlib.Path(sys.argv[1]) / "tiny" / "metrics.jsonl")
print(tracker.run_id, flush=True)
if sys.argv[2] == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(tracker.close())
"""


def _start(root: pathlib.Path, ending: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _CRASH, str(root), ending]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_whose_process_was_killed_is_gone_on_with_and_closed(tmp_path: pathlib.Path) -> None:
    """K2: kill −9 leaves a run RUNNING; the next start takes it up, adds what is missing once, and closes it."""
    (tmp_path / "tiny").mkdir()
    metrics = tmp_path / "tiny" / "metrics.jsonl"
    files.append_json_line(metrics, {"step": 1, "loss": 2.0})
    crashed = _start(tmp_path, "crash")
    assert crashed.returncode == -signal.SIGKILL
    client: Any = tracking.load_mlflow().MlflowClient(tracking.database_uri(tmp_path))
    run_id = crashed.stdout.strip()
    assert client.get_run(run_id).info.status == "RUNNING"
    files.append_json_line(metrics, {"step": 2, "loss": 1.0})
    resumed = _start(tmp_path, "end")
    assert resumed.returncode == 0 and resumed.stdout.strip() == run_id, resumed.stderr
    (run,) = client.search_runs([client.get_run(run_id).info.experiment_id])
    assert run.info.status == "FINISHED"
    assert _history(tmp_path, run_id) == {"loss": [(1, 2.0), (2, 1.0)]}
