"""Tests of the cost model's tables, on costs whose figures are known; those of presets: cost_test.py."""

import dataclasses

import numpy as np

from bench.cost_model import ModelCost, StageCost
from bench.cost_tables import Assumptions, compute_table, failure_table, memory_table, straggler_table
from bench.stragglers import Link, StepTimes
from priors.task import TaskKind

_ASSUMED = Assumptions(
    mfu=0.5,
    chip_flops=1e15,
    gpus=(2, 64),
    tasks_per_gpu=1,
    link=Link(bytes_per_second=1e30, latency_seconds=0.0),
    mtbf_seconds=100 * 3600.0,
    checkpoint_seconds=5.0,
    restart_seconds=120.0,
)
_STAGE = StageCost(
    steps=10,
    tasks=1000,
    batch_size=100,
    mean_rows=128.0,
    mean_features=10.0,
    flops_per_task=1.8e15,
    shard_bytes=2 * 10**9,
    largest_task_bytes=3e9,
)
_COST = ModelCost(
    preset="tiny",
    kind=TaskKind.CLASSIFICATION,
    parameters=2_000_000,
    state_bytes=40 * 10**6,
    checkpoint_bytes=20 * 10**6,
    disk_bytes=80 * 10**6,
    stages=(_STAGE, dataclasses.replace(_STAGE, tasks=500)),
)


def test_every_stage_has_a_row_with_the_hours_of_a_gpu_at_the_assumed_rate() -> None:
    first, second = compute_table([_COST], _ASSUMED).rows
    assert first == (
        "tiny classification, stage 1 of 2",
        "1,000",
        "128 × 10",
        "1,800,000.0",
        "1,800.00",
        "1.0000",
        "2.0",
    )
    assert second[0].endswith("stage 2 of 2") and second[5] == "0.5000"


def test_memory_has_a_row_for_each_model_with_the_largest_task_of_each_stage() -> None:
    assert memory_table([_COST]).rows == (("tiny classification", "2.0", "20", "80", "40", "3.00 · 3.00"),)


def test_failures_come_sooner_and_cost_more_on_more_gpus() -> None:
    few, many = failure_table(_ASSUMED).rows
    assert (few[:2], many[:2]) == (("2", "50"), ("64", "2"))
    assert float(few[3].rstrip("%")) < float(many[3].rstrip("%"))


def test_a_batch_with_fewer_tasks_than_gpus_has_no_figures_and_steady_gpus_lose_nothing() -> None:
    times = StepTimes(label="steady", overhead_seconds=0.0, flops_per_second=1e12, factors=np.array([1.0]))
    table = straggler_table([_COST], _ASSUMED, times=times)
    rows = {row[0].removeprefix("tiny classification, "): row[1:] for row in table.rows}
    assert list(rows) == ["2 GPUs, batch 2", "2 GPUs, batch 32", "64 GPUs, batch 32", "64 GPUs, batch 64"]
    assert rows["64 GPUs, batch 32"] == ("–",) * 6
    assert all(row[4] == "100.0%" for name, row in rows.items() if name != "64 GPUs, batch 32")
    assert "steady" in table.title
