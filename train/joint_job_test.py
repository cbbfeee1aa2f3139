"""Tests of a joint training from end to end, in small: what is written, that it can be read, and that it repeats."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from eval.checkpoints import find_checkpoints
from model.estimator import ICLClassifier, ICLRegressor
from model.label_injection import LabelKind
from model.shared_backbone import is_shared
from priors.generation import ShardConfig, held_out_episodes
from priors.mixture import PriorConfig
from tools import files
from tools.failure import ExitCode, Failure
from train.interference import num_arm_steps, task_losses
from train.joint import LossWeights
from train.joint_job import REPORTING_SEED, JointConfig, checked, run_joint
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.toy import small_network
from train.validation import same_shape_batches

_CONFIG = JointConfig(
    num_steps=3,
    num_single_steps=2,
    batch_size=4,
    weights=LossWeights(regression=0.5),
    network=small_network(LabelKind.CLASSIFICATION),
    shards=ShardConfig(
        prior=PriorConfig(min_rows=64, max_rows=64, min_features=2, max_features=3), group_size=4, groups_per_part=1
    ),
    num_held_out_tasks=6,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Done:
    out: pathlib.Path
    record: dict[str, Any]


_SCHEDULE_FREE = OptimizerConfig(kind=OptimizerKind.SCHEDULE_FREE)


def _run(root: pathlib.Path, name: str) -> _Done:
    return _Done(out=root / name, record=run_joint(_CONFIG, None, shards_root=root, out=root / name))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> _Done:
    return _run(tmp_path_factory.mktemp("joint"), "one")


def test_the_same_seed_gives_the_same_bytes(done: _Done) -> None:
    again = _run(done.out.parent, "again")
    names = ["joint.json", "metrics.jsonl"]
    names += [f"{kind}/checkpoints/step-00000003/weights.safetensors" for kind in LabelKind]
    for name in names:
        assert (done.out / name).read_bytes() == (again.out / name).read_bytes(), name


def test_two_ordinary_checkpoints_predict_as_the_joint_network_did(done: _Done) -> None:
    """6.11: one backbone under two networks, each of which can be loaded, audited and used without the other."""
    found = {one.config.kind: one for one in find_checkpoints(done.out)}
    assert set(found) == set(LabelKind)
    for kind, one in found.items():
        episodes = held_out_episodes(_CONFIG.shards_of(kind).prior, seed=REPORTING_SEED, count=6)
        losses = task_losses(one.network(), same_shape_batches(episodes))
        assert losses.mean() == pytest.approx(done.record["losses"][kind.value]["mean"]["joint"], abs=1e-12)
        assert one.weights_sha256 == done.record["checkpoints"][kind.value]["weights_sha256"]
        verdict = json.loads((done.out / kind.value / "audit.json").read_bytes())
        assert verdict["subject"]["weights_sha256"] == one.weights_sha256
    left, right = (one.weights for one in found.values())
    shared = [name for name in left if name in right and is_shared(name) and not name.startswith("cell_features")]
    assert len(shared) > 20 and all(np.array_equal(left[name], right[name]) for name in shared)


def test_the_estimators_take_either_checkpoint(done: _Done) -> None:
    x = np.random.default_rng(0).normal(size=(12, 2))
    by_kind = {one.config.kind: one.network() for one in find_checkpoints(done.out)}
    classifier = ICLClassifier(by_kind[LabelKind.CLASSIFICATION]).fit(x, np.arange(12) % 3)
    assert classifier.predict_proba(x).shape == (12, 3)
    assert np.isfinite(ICLRegressor(by_kind[LabelKind.REGRESSION]).fit(x, x[:, 0]).predict(x)).all()


def test_the_record_says_what_ran_and_promises_nothing(done: _Done) -> None:
    """6.11: what is recorded; that one backbone runs both is not written as if it solved both."""
    record = json.loads((done.out / "joint.json").read_bytes())
    assert record == done.record
    assert record["statement"].startswith("One backbone runs both tasks.") and "solve" not in json.dumps(record)
    counts = record["parameters"]
    assert counts["joint"] == sum(counts["single"].values()) - counts["shared"]
    assert counts["within_five_percent"] is False and min(counts["excess"].values()) > 0.05  # so small a backbone
    assert record["num_skipped"] == 0
    assert {kind: task["loss_weight"] for kind, task in record["tasks"].items()} == {
        "classification": 1.0,
        "regression": 0.5,
    }
    for kind in LabelKind:
        assert record["tasks"][kind.value]["task_kind"] == kind.value
        assert record["checkpoints"][kind.value]["status"] in ("verified", "not-yet-verified")
        scores = record["scores"][kind.value]["synthetic"]
        assert set(scores) == {"single", "joint"} | ({"alone"} if kind is LabelKind.REGRESSION else set())
        assert "seconds" not in scores["joint"] and len(scores["joint"]) >= 3
    steps = files.read_json_lines(done.out / "metrics.jsonl")
    assert len(steps) == 2 * _CONFIG.num_single_steps + num_arm_steps(_CONFIG.num_steps)
    assert [stage for stage in steps[-1] if stage.startswith("cosine/")] == []
    joint = [step for step in steps if step["arm"] == "joint"]
    assert all(f"cosine/{stage}" in step for step in joint for stage in record["stages"])


def test_single_networks_that_diverge_name_the_flag_of_their_own_rates(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(_CONFIG, num_single_steps=12, single_optimizer=OptimizerConfig(matrix_lr=1e38))
    with pytest.raises(Failure, match=r"\(--single-optimizer\.matrix-lr, vector-lr\)") as failure:
        run_joint(config, None, shards_root=tmp_path, out=tmp_path / "out")
    assert failure.value.code is ExitCode.DIVERGED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": 0}, "--num-steps 0 is too small"),
        ({"batch_size": 1}, "--batch-size 1 is too small"),
        ({"batch_size": 3}, "--batch-size 3 does not fit: give an even number that divides --shards.group-size 4"),
        ({"batch_size": 8}, "--batch-size 8 does not fit"),
        ({"num_held_out_tasks": 2}, "--num-held-out-tasks 2 is too small: give 3 or more"),
        ({"seed": -1}, "--seed -1"),
        ({"optimizer": _SCHEDULE_FREE}, "--optimizer.kind schedule_free trains no joint network: give muon or adamw"),
        ({"single_optimizer": _SCHEDULE_FREE}, "--single-optimizer.kind schedule_free"),
    ],
)
def test_numbers_with_which_nothing_can_begin_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as refusal:
        checked(dataclasses.replace(_CONFIG, **change))
    assert refusal.value.code is ExitCode.BAD_FLAG


def test_the_defaults_can_begin() -> None:
    assert checked(JointConfig()) == JointConfig()
