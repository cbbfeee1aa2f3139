"""Tests of initial weights."""

import torch

from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.specimens import specimen_config


def test_initial_weights_are_a_function_of_the_seed_and_leave_the_global_generator() -> None:
    config = specimen_config(LabelKind.REGRESSION)
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first, second, other = (initial_network(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
