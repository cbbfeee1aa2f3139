"""A checkpoint into which somebody put a pickle: training does not go on from it, and what it holds is not run."""

import io
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from model import checkpoint
from tools import files
from tools.failure import ExitCode, Failure
from train.job import Place, TrainingJob
from train.loop import LoopConfig
from train.sitting import run_job
from train.toy_job import BATCH_SIZE, newest_step, sit, toy_job, toy_shards


class _Canary:
    """Makes a file when unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return (open, (str(self.path), "w"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A training that stands at step 2 of 4."""
    root = tmp_path_factory.mktemp("job")
    loop = LoopConfig(num_steps=4, batch_size=BATCH_SIZE, log_every=1, checkpoint_every=2)
    begun = toy_job(toy_shards(root / "shards"), root / "run", loop=loop)
    sit(Place(), begun, 2)
    return begun


def _payload(maker: str, canary: pathlib.Path) -> bytes:
    if maker == "pickle":
        return pickle.dumps(_Canary(canary))
    body = io.BytesIO()
    torch.save({"network": _Canary(canary)}, body)
    return body.getvalue()


@pytest.mark.parametrize("maker", ["pickle", "torch"])
@pytest.mark.parametrize("name", ["weights.safetensors", "state.safetensors", "state.json", "config.json"])
def test_training_does_not_go_on_from_a_malicious_checkpoint_and_runs_nothing_of_it(
    job: TrainingJob, tmp_path: pathlib.Path, name: str, maker: str
) -> None:
    """S1: hashes that fit do not make it trusted; the file is named, and the training stands where it stood."""
    folder, canary = checkpoint.newest_verified(job.checkpoints), tmp_path / "canary"
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        (folder / name).write_bytes(_payload(maker, canary))
        (folder / files.MANIFEST).unlink()
        files.write_manifest(folder, format_version=checkpoint.FORMAT_VERSION, extra={"step": 2})
        assert newest_step(job) == 2, "whoever can write files can write their hashes"
        with pytest.raises(Failure) as caught:
            run_job(job, Place())
        assert caught.value.code is ExitCode.CHECKPOINT_CORRUPT and str(folder / name) in caught.value.message
        assert not canary.exists()
    finally:
        for path, data in whole.items():
            path.write_bytes(data)
    assert newest_step(job) == 2


@pytest.mark.parametrize("maker", ["pickle", "torch"])
def test_the_canary_would_have_been_seen(tmp_path: pathlib.Path, maker: str) -> None:
    """S1: such a payload does run where it is unpickled."""
    canary = tmp_path / "canary"
    data = _payload(maker, canary)
    loaded = pickle.loads(data) if maker == "pickle" else torch.load(io.BytesIO(data), weights_only=False)["network"]
    loaded.close()
    assert canary.exists()
