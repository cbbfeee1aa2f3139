"""Which checkpoint a path means."""

import json
import pathlib

import pytest

from eval.checkpoints import find_checkpoints
from eval.small_network import small_network
from model.checkpoint import save_checkpoint
from priors.task import TaskKind
from tools.failure import ExitCode, Failure


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run folder with three steps of each kind."""
    for kind in TaskKind:
        for step in (5, 20, 100):
            save_checkpoint(tmp_path / kind.value / "checkpoints", step=step, network=small_network(kind, seed=step))
    return tmp_path


def test_a_run_means_the_newest_step_of_each_kind(run: pathlib.Path) -> None:
    """Ordered by step."""
    found = find_checkpoints(run)
    assert [(one.config.kind.value, one.step) for one in found] == [("classification", 100), ("regression", 100)]


def test_best_json_names_the_step(run: pathlib.Path) -> None:
    """What validation chose goes before what is newest."""
    (run / "regression" / "best.json").write_text(json.dumps({"step": 20}))
    assert [one.step for one in find_checkpoints(run)] == [100, 20]
    assert [one.step for one in find_checkpoints(run / "regression")] == [20]


def test_kind_folders_folders_of_steps_and_steps_are_understood(run: pathlib.Path) -> None:
    """Each level of a run."""
    kind = run / "classification"
    assert [one.step for one in find_checkpoints(kind)] == [100]
    assert [one.step for one in find_checkpoints(kind / "checkpoints")] == [100]
    assert [one.step for one in find_checkpoints(kind / "checkpoints" / "step-00000005")] == [5]


@pytest.mark.parametrize("best", ['{"step": 7}', '{"stop": 5}', "not json", '{"step": "x"}', "[]"])
def test_a_best_json_that_names_no_step_is_refused(run: pathlib.Path, best: str) -> None:
    """It names the file and the mend."""
    (run / "regression" / "best.json").write_text(best)
    with pytest.raises(Failure, match="best.json") as caught:
        find_checkpoints(run)
    assert caught.value.code is ExitCode.CHECKPOINT_CORRUPT


def test_damaged_weights_are_refused_and_not_passed_over(run: pathlib.Path) -> None:
    """Auditing an older step unasked would vouch for the wrong one."""
    weights = run / "classification" / "checkpoints" / "step-00000100" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(Failure, match="weights.safetensors is damaged") as caught:
        find_checkpoints(run)
    assert caught.value.code is ExitCode.CHECKPOINT_CORRUPT


def test_a_file_is_called_a_file(run: pathlib.Path) -> None:
    """Its folder may be what was meant."""
    weights = run / "regression" / "checkpoints" / "step-00000100" / "weights.safetensors"
    with pytest.raises(Failure, match="weights.safetensors is a file: give the folder .*step-00000100,") as caught:
        find_checkpoints(weights)
    assert caught.value.code is ExitCode.NOT_FOUND


def test_paths_without_a_checkpoint_are_refused(tmp_path: pathlib.Path) -> None:
    """Absent, empty, a file, a run that has not saved yet."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "early" / "classification" / "checkpoints").mkdir(parents=True)
    for name in ("absent", "empty", "file", "early"):
        with pytest.raises(Failure) as caught:
            find_checkpoints(tmp_path / name)
        assert caught.value.code is ExitCode.NOT_FOUND, name
        assert name in caught.value.message
