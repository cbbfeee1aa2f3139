"""Tests of the checks of a device, with the CPU as the device: what is right passes, and what is not is found."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from bench import device_correctness
from bench.device_correctness import check_network, check_prior, check_steps, random_network
from bench.findings import Finding, TimeBudget
from model import presets
from model.label_injection import LabelKind
from model.network import Network
from priors.group import TaskGroup

_CPU = torch.device("cpu")


def _first_case() -> list[Finding]:
    """What is found of the first head in the first precision: a budget that is used up allows one measurement."""
    return list(check_network(_CPU, TimeBudget(0.0)))


def test_a_device_that_computes_what_the_cpu_does_passes_on_every_path() -> None:
    found = _first_case()
    assert [finding.name.split(",")[0] for finding in found] == ["output"] * 3 + ["loss", "gradient"]
    assert all(finding.passed for finding in found), found
    (steps,) = check_steps(_CPU, TimeBudget(0.0))
    assert steps.passed and steps.value == pytest.approx(0.0, abs=1e-6)


def test_a_norm_that_is_another_on_the_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = copy.deepcopy

    def spoiled(value: Any, *rest: Any) -> Any:
        found = whole(value, *rest)
        if isinstance(found, Network):
            with torch.no_grad():
                found.icl.norm.weight.mul_(1.5)
        return found

    monkeypatch.setattr(device_correctness.copy, "deepcopy", spoiled)
    found = _first_case()
    assert len(found) == 5 and not any(finding.passed for finding in found), found


def test_a_prior_that_is_another_on_the_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = device_correctness.sample_group

    def full_of_holes(*arguments: Any, seed: int, **options: Any) -> TaskGroup:
        group = draw(*arguments, seed=seed, **options)
        holes = np.where(np.arange(group.rows)[:, None] % 4, group.x, np.nan)
        return dataclasses.replace(group, x=holes.astype(np.float32)) if seed == 1 else group

    same = {finding.name: finding for finding in check_prior(_CPU, TimeBudget(0.0), count=64)}
    assert same["missing cells, classification"].passed
    monkeypatch.setattr(device_correctness, "sample_group", full_of_holes)
    other = {finding.name: finding for finding in check_prior(_CPU, TimeBudget(0.0), count=64)}
    assert set(other) == set(same) and other["missing cells, classification"].passed is False


@pytest.mark.parametrize("kind", list(LabelKind))
def test_every_weight_of_a_random_network_matters_and_is_the_same_again(kind: LabelKind) -> None:
    one, again = (random_network(presets.tiny(kind)) for _ in range(2))
    assert all(parameter.any() for parameter in one.parameters())
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in one.state_dict().items())
