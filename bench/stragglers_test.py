"""Tests of what many GPUs lose."""

import json
import math
import pathlib

import numpy as np
import pytest

from bench.stragglers import Link, StepTimes, failures, read_times, simulate
from tools.failure import ExitCode, Failure

_FLOPS = np.array([1e9, 4e9])
_STEADY = StepTimes(label="steady", overhead_seconds=0.0, flops_per_second=1e12, factors=np.array([1.0]))
_FREE = Link(bytes_per_second=1e30, latency_seconds=0.0)


def test_equal_shares_without_jitter_lose_nothing_since_a_batch_has_one_shape() -> None:
    """Although shapes differ from step to step; with shapes of their own, GPUs would wait for the largest."""
    found = simulate(_STEADY, _FLOPS, gpus=8, batch_size=64, gradient_bytes=1e7, link=_FREE)
    assert found.efficiency == pytest.approx(1.0)
    assert found.step_seconds == pytest.approx(8 * 2.5e9 / 1e12, rel=0.05)
    assert found.own_shapes == pytest.approx(1 - 2.5 / 4, abs=0.03)


def test_a_task_more_on_some_gpus_is_waited_for() -> None:
    found = simulate(_STEADY, _FLOPS, gpus=8, batch_size=12, gradient_bytes=0, link=_FREE)
    assert found.uneven == pytest.approx(1 - 1.5 / 2) and found.jitter == pytest.approx(0.0)


def test_jitter_costs_the_mean_of_the_slowest_over_the_mean() -> None:
    times = StepTimes(label="", overhead_seconds=0.0, flops_per_second=1e12, factors=np.array([1.0] * 9 + [2.0]))
    for gpus in (2, 64):
        found = simulate(times, np.array([1e9]), gpus=gpus, batch_size=gpus, gradient_bytes=0, link=_FREE)
        assert found.jitter == pytest.approx(1 - 1.1 / (2 - 0.9**gpus), abs=0.03)


def test_an_all_reduce_takes_twice_the_buffer_over_the_link_and_is_waited_for() -> None:
    link = Link(bytes_per_second=1e9, latency_seconds=1e-3)
    assert link.all_reduce_seconds(1e9, gpus=2) == pytest.approx(1.0 + 2e-3)
    assert link.all_reduce_seconds(1e9, gpus=512) == pytest.approx(2 * 511 / 512 + 18e-3)
    found = simulate(_STEADY, np.array([1e9]), gpus=2, batch_size=2, gradient_bytes=1e6, link=link)
    assert found.exchange == pytest.approx(3e-3 / 4e-3)


def test_the_best_interval_between_checkpoints_loses_least() -> None:
    """√(2 · δ · M): 60 s to save, a failure of 512 GPUs every 100 hours."""
    found = failures(gpus=512, mtbf_seconds=512 * 360_000.0, checkpoint_seconds=60.0, restart_seconds=0.0)
    assert found.interval_seconds == pytest.approx(math.sqrt(2 * 60 * 360_000))
    lost = [60 / tau + tau / 2 / 360_000 for tau in (found.interval_seconds * factor for factor in (0.8, 1.0, 1.2))]
    assert lost[1] == min(lost) and found.lost_share == pytest.approx(lost[1])


def test_step_times_of_a_gpu_are_read_from_its_check(tmp_path: pathlib.Path) -> None:
    findings = [
        {"facts": {"flops_per_task": 1e9, "batch": size, "seconds": [0.01 + size * 1e-3] * 3}} for size in (8, 32, 64)
    ]
    report = {
        "machine": {"gpu": "a chip", "date": "2026-01-02T03:04:05"},
        "sections": {"speed": {"findings": [{"facts": {}}, *findings, {"facts": {"out_of_memory": True}}]}},
    }
    path = tmp_path / "found.json"
    path.write_text(json.dumps(report))
    times = read_times(path)
    assert times.overhead_seconds == pytest.approx(0.01) and times.flops_per_second == pytest.approx(1e12)
    assert times.jitter == 0.0 and "a chip" in times.label and "2026-01-02" in times.label


_NO_TIMES = (
    "{}",
    "[" * 1_000_000,
    "[]",
    '{"facts": 1}',
    *(
        f'{{"facts": {{{text}}}}}'
        for text in (
            '"seconds": [0.1]',
            '"seconds": [0.0], "flops_per_task": 1, "batch": 1',
            '"seconds": [NaN], "flops_per_task": 1, "batch": 1',
            '"seconds": ["0.1"], "flops_per_task": 1, "batch": 1',
            '"seconds": [0.1], "flops_per_task": -1, "batch": 1',
        )
    ),
)


@pytest.mark.parametrize("finding", _NO_TIMES)
def test_a_file_without_step_times_is_refused_by_flag_and_name(finding: str, tmp_path: pathlib.Path) -> None:
    path, machine = tmp_path / "found.json", '"machine": {"gpu": "a chip", "date": "2026-01-02T03:04:05"}'
    for text in (finding, f'{{{machine}, "sections": {{"speed": {{"findings": [{finding}, {finding}]}}}}}}'):
        path.write_text(text)
        with pytest.raises(Failure) as refused:
            read_times(path)
        assert refused.value.code is ExitCode.NOT_FOUND and f"--times {path}" in refused.value.message
        assert "gpu_check.py" in refused.value.message
