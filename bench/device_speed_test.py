"""Tests of the rates of a device, with the CPU as the device; whole on small sizes: tools/gpu_check_test.py."""

import dataclasses

import numpy as np
import pytest
import torch

from bench import device_speed
from bench.device_speed import QUICK, DeviceCase, published_peak, step_times, table_batch, training_speed
from bench.findings import TimeBudget
from model import presets
from model.label_injection import LabelKind

_CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "rate"),
    [("NVIDIA H100 PCIe", 756e12), ("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA L40S", 362e12), ("NVIDIA L4", 121e12)],
)
def test_the_more_special_name_of_a_chip_counts(name: str, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert published_peak(torch.device("cuda")) == rate
    assert published_peak(_CPU) is None


def test_a_chip_that_nobody_knows_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some chip")
    assert published_peak(torch.device("cuda")) is None


def test_a_large_batch_is_a_few_tables_again_and_again() -> None:
    batch = table_batch(presets.tiny(LabelKind.REGRESSION), rows=33, features=3, size=20)
    assert batch.x_context.shape == (20, 16, 3) and batch.x_query.shape == (20, 17, 3) and len(batch.families) == 20
    np.testing.assert_array_equal(batch.x_query[:8], batch.x_query[8:16])
    assert not np.array_equal(batch.x_query[0], batch.x_query[1], equal_nan=True)
    assert batch.families[:8] == batch.families[8:16]


def test_every_step_that_counts_has_its_seconds() -> None:
    case = DeviceCase(preset="tiny", kind=LabelKind.CLASSIFICATION, rows=16, features=2, batch=2)
    times, peak_bytes = step_times(case, _CPU, repeats=3)
    assert len(times) == 3 and min(times) > 0 and peak_bytes == 0


def test_what_does_not_fit_ends_the_batch_sizes_of_its_kind_and_counts_as_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small_memory(case: DeviceCase, device: torch.device, *, repeats: int) -> tuple[list[float], int]:
        if case.batch > 2:
            raise torch.OutOfMemoryError
        return [0.5] * repeats, 0

    monkeypatch.setattr(device_speed, "step_times", small_memory)
    plan = dataclasses.replace(QUICK, batches=(2, 4, 8))
    found = list(training_speed(_CPU, TimeBudget(600.0), plan=plan, rate=1e12))
    assert [(finding.facts["kind"], finding.facts["batch"], finding.value) for finding in found] == [
        (kind, batch, rate) for kind in ("classification", "regression") for batch, rate in ((2, 4.0), (4, 0.0))
    ]
    fits, too_large = found[:2]
    assert fits.facts["mfu"] == pytest.approx(fits.facts["flops_per_task"] * 2 / 0.5 / 1e12)
    assert too_large.facts["out_of_memory"] and "mfu" not in too_large.facts
