"""Tests of the metrics of the machine."""

import pathlib

import torch

from train.machine import Machine


def test_a_sample_has_plausible_figures_under_the_names_that_mlflow_shows(tmp_path: pathlib.Path) -> None:
    found = Machine(torch.device("cpu"), folder=tmp_path, interval_seconds=0.0).sample()
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= set(found)
    assert all(
        0 <= value <= 100 for name, value in found.items() if name.endswith("_percentage") and "process" not in name
    )
    process, machine = (found[f"system/{name}_memory_usage_megabytes"] for name in ("process", "system"))
    assert 10 < process < 10 * machine


def test_samples_are_not_taken_more_often_than_asked_for(tmp_path: pathlib.Path) -> None:
    machine = Machine(torch.device("cpu"), folder=tmp_path, interval_seconds=1000.0)
    assert machine.sample() == {} and machine.sample() == {}
