"""Tests of joint steps beside steps on one task: same batches, same schedule, and what is recorded."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.shared_backbone import SharedBackbone, share_backbone
from priors.batches import BatchPlan
from priors.generation import ShardConfig, ensure_shards
from priors.mixture import PriorConfig
from priors.task import TaskBatch, TaskKind
from tools.failure import ExitCode, Failure
from train.joint import LossWeights
from train.joint_loop import ArmBudget, padded_shares, train_alone, train_jointly
from train.optimizer_config import OptimizerConfig
from train.toy import small_network, toy_batch

_C, _R = LabelKind.CLASSIFICATION, LabelKind.REGRESSION
_BUDGET = ArmBudget(num_steps=3, first_batch=1, optimizer=OptimizerConfig(matrix_lr=3e-3, vector_lr=1e-3))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[LabelKind, BatchPlan]:
    made = {}
    for kind in LabelKind:
        prior = PriorConfig(kind=TaskKind(kind.value), min_rows=64, max_rows=64, min_features=2, max_features=4)
        config = ShardConfig(prior=prior, group_size=8, groups_per_part=2)
        shards = ensure_shards(config, out=tmp_path_factory.mktemp(kind.value), num_tasks=32, seed=0)
        made[kind] = BatchPlan(shards, batch_size=8, seed=0)
    return made


def _shared() -> SharedBackbone:
    return share_backbone(*(initial_network(small_network(kind), seed=seed) for seed, kind in enumerate(LabelKind)))


def _jointly(plans: dict[LabelKind, BatchPlan], **weights: float) -> tuple[SharedBackbone, list[dict[str, Any]]]:
    shared, records = _shared(), []
    train_jointly(shared, plans, budget=_BUDGET, weights=LossWeights(**weights), record=records.append)
    return shared, records


def test_the_same_seed_gives_the_same_records_and_bits(plans: dict[LabelKind, BatchPlan]) -> None:
    (one, records), (again, same) = _jointly(plans), _jointly(plans)
    assert records == same and [record["step"] for record in records] == [1, 2, 3]
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in one.state_dict().items())


def test_the_first_step_reads_the_batch_that_a_network_alone_reads(plans: dict[LabelKind, BatchPlan]) -> None:
    """6.12: every arm sees the same batches; before the first update the losses are equal."""
    _, records = _jointly(plans)
    for kind in LabelKind:
        alone: list[dict[str, Any]] = []
        train_alone(_shared().network(kind), plans[kind], budget=_BUDGET, record=alone.append)
        assert alone[0]["train/loss"] == pytest.approx(records[0][f"train/{kind}/loss"], rel=0.02)  # bf16 in halves
        assert alone[0]["train/loss"] != pytest.approx(alone[1]["train/loss"], rel=0.02)


def test_a_task_of_almost_no_weight_leaves_the_other_where_it_would_be_alone(
    plans: dict[LabelKind, BatchPlan],
) -> None:
    """1.7: weighted losses. With a weight of 1e-9 for regression, classification trains as if alone."""
    network = _shared().network(_C)
    train_alone(network, plans[_C], budget=_BUDGET, record=lambda record: None)
    near, far = (
        max(
            float((p - q).detach().abs().max())
            for p, q in zip(
                network.parameters(), _jointly(plans, regression=w)[0].network(_C).parameters(), strict=True
            )
        )
        for w in (1e-9, 1.0)
    )
    assert near < 0.6 * far


def test_a_step_records_scales_weights_kinds_padding_and_every_stage(plans: dict[LabelKind, BatchPlan]) -> None:
    """6.11: loss scale, output padding and gradient interference are recorded."""
    shared, records = _jointly(plans, classification=0.5)
    first = records[0]
    assert first["train/classification/weighted_loss"] == 0.5 * first["train/classification/loss"]
    assert first["train/loss"] == pytest.approx(
        first["train/classification/weighted_loss"] + first["train/regression/weighted_loss"]
    )
    for stage in [*shared.stages(), "backbone"]:
        assert -1 <= first[f"cosine/{stage}"] <= 1
        for kind in LabelKind:
            assert first[f"gradient_norm/{kind}/{stage}"] > 0
            assert -1 <= first[f"half_cosine/{kind}/{stage}"] <= 1
    assert first["padding/regression/outputs"] == 0
    assert any(record["padding/classification/outputs"] > 0 for record in records)


def test_padding_is_the_share_of_outputs_and_queries_that_no_task_asked_for() -> None:
    batch = dataclasses.replace(toy_batch(TaskKind.CLASSIFICATION), num_classes=np.array([2, 2, 3, 5], np.int32))
    batch.query_mask[0, :5] = False
    assert padded_shares(batch) == {"outputs": pytest.approx(1 - 12 / 20), "queries": pytest.approx(5 / 40)}
    assert padded_shares(toy_batch(TaskKind.REGRESSION)) == {"outputs": 0.0, "queries": 0.0}


def _broken() -> SharedBackbone:
    """A network whose losses are none."""
    shared = _shared()
    with torch.no_grad():
        shared.network(_R).head.layers[0].weight[0, 0] = torch.nan
    return shared


@pytest.mark.parametrize(
    ("num_steps", "said"),
    [(12, r"10 of 10 steps were skipped \(10 in a row"), (4, r"4 of 4 steps were skipped \(4 in a row")],
)
def test_steps_that_are_never_finite_end_every_arm_and_name_the_flag_of_its_rates(
    plans: dict[LabelKind, BatchPlan], num_steps: int, said: str
) -> None:
    budget = dataclasses.replace(_BUDGET, num_steps=num_steps, first_batch=0, flag="--single-optimizer")
    complaint = rf"{said}\); the last, because its loss was not finite: .*\(--single-optimizer\.matrix-lr, vector-lr\)"
    with pytest.raises(Failure, match=complaint) as failure:
        train_jointly(_broken(), plans, budget=budget, weights=LossWeights(), record=lambda record: None)
    assert failure.value.code is ExitCode.DIVERGED
    with pytest.raises(Failure, match=complaint):
        train_alone(_broken().network(_R), plans[_R], budget=budget, record=lambda record: None)


class _UnlabelledPlan:
    """Batches without labels of queries, by index."""

    def batch(self, index: int) -> TaskBatch:
        batch = toy_batch(TaskKind.CLASSIFICATION, seed=index)
        return dataclasses.replace(batch, y_query=np.full_like(batch.y_query, np.nan))


def test_data_that_nothing_can_learn_from_is_no_fault_of_the_rates() -> None:
    steps: list[dict[str, Any]] = []
    with pytest.raises(Failure, match="of its data .label nan of query row 0 .* look at the shards"):
        train_alone(_shared().network(_C), _UnlabelledPlan(), budget=_BUDGET, record=steps.append)
    assert [step["train/skipped"] for step in steps] == [True, True]
