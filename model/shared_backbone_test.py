"""Tests of the shared backbone: what is one tensor, what is not, and what it costs."""

import dataclasses
import re
from collections.abc import Callable

import pytest
import torch

from model import presets
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from model.shared_backbone import SharedBackbone, share_backbone, slender
from model.specimens import specimen_config, specimen_inputs, specimen_network, values
from tools.failure import BadInput, ExitCode

_C, _R = LabelKind.CLASSIFICATION, LabelKind.REGRESSION


def _singles() -> dict[LabelKind, Network]:
    return {kind: specimen_network(kind, seed=seed) for seed, kind in enumerate(LabelKind)}


def _shared(backbone: LabelKind = _C) -> SharedBackbone:
    singles = _singles()
    return share_backbone(singles[_C], singles[_R], backbone=backbone)


@pytest.mark.parametrize("trained", LabelKind)
def test_a_step_on_one_task_moves_the_others_backbone_but_neither_its_head_nor_its_label_encoders(
    trained: LabelKind,
) -> None:
    """6.11: shared backbone, separate heads."""
    shared = _shared()
    other = shared.network(_R if trained is _C else _C)
    before = {name: parameter.detach().clone() for name, parameter in other.named_parameters()}
    network = shared.network(trained)
    gradients = torch.autograd.grad(values(network(specimen_inputs(trained))).sum(), list(network.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter -= 0.1 * gradient.sign() + 0.01
    moved = {name for name, parameter in other.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == set(shared.shared())
    still = set(before) - moved
    assert {name.split(".")[0] for name in still} == {"head", "column_labels", "icl"}
    assert all(".injection." in name for name in still if name.startswith("icl."))


@pytest.mark.parametrize("backbone", LabelKind)
def test_the_network_that_gives_the_backbone_predicts_what_it_did(backbone: LabelKind) -> None:
    """1.7: joint training starts from single-task weights; the other keeps its own head and label encoders."""
    singles, shared = _singles(), _shared(backbone)
    for kind, single in singles.items():
        inputs = specimen_inputs(kind)
        same = torch.equal(values(single(inputs)), values(shared.network(kind)(inputs)))
        assert same == (kind is backbone)
    own = singles[_R].state_dict()
    kept = {name for name, tensor in shared.network(_R).state_dict().items() if torch.equal(tensor, own[name])}
    assert {"head.borders", "icl.injection.unknown_label"} <= kept


def test_the_given_networks_stay_apart() -> None:
    singles = _singles()
    shared = share_backbone(singles[_C], singles[_R])
    before = singles[_C].state_dict()["icl.norm.weight"].clone()
    with torch.no_grad():
        for parameter in shared.parameters():
            parameter += 1
    assert torch.equal(singles[_C].state_dict()["icl.norm.weight"], before)


def test_what_is_shared_is_counted_once() -> None:
    shared = _shared()
    counts = shared.counts()
    assert counts.joint == sum(parameter.numel() for parameter in shared.parameters())
    assert counts.joint == sum(counts.single.values()) - counts.shared
    alone = {kind: sum(p.numel() for p in network.parameters()) for kind, network in _singles().items()}
    assert counts.single == alone
    assert counts.excess(_C) == pytest.approx((alone[_R] - counts.shared) / alone[_C])


def _built(make: Callable[[LabelKind], NetworkConfig]) -> SharedBackbone:
    with torch.device("meta"):
        return share_backbone(Network(make(_C)), Network(make(_R)))


def test_the_joint_preset_stays_within_five_percent_of_either_single_task_network() -> None:
    """1.7: within 5 % of the parameters of both single-task baselines."""
    counts = _built(slender).counts()
    assert 0 < counts.excess(_C) < 0.05 and 0 < counts.excess(_R) < 0.05


def test_the_networks_of_the_main_job_do_not() -> None:
    """An honest figure: their bar heads alone are more than 5 % of the classification network."""
    counts = _built(presets.small).counts()
    assert counts.excess(_C) > 0.05


def test_stages_hold_every_shared_parameter_once_in_the_order_of_a_forward_pass() -> None:
    shared = _shared()
    stages = shared.stages()
    names = [name for group in stages.values() for name in group]
    assert sorted(names) == sorted(shared.shared()) and len(set(names)) == len(names)
    assert list(stages) == [
        "cell_embedding",
        "column_blocks.0",
        "column_blocks.1",
        "row_blocks.0",
        "row_blocks.1",
        "row_readout",
        "icl.injection",
        "icl.blocks.0",
        "icl.blocks.1",
        "icl.norm",
    ]


def test_networks_of_other_sizes_are_refused_with_both_values() -> None:
    left, right = specimen_config(_C), specimen_config(_R)
    longer = dataclasses.replace(right, cell=dataclasses.replace(right.cell, num_rounds=1))
    with pytest.raises(
        BadInput, match=re.escape("cell.num_rounds is 2 in the classification network and 1")
    ) as refusal:
        share_backbone(Network(left), Network(longer))
    assert refusal.value.code is ExitCode.CONFIG_MISMATCH and "\n" not in str(refusal.value)


def test_two_networks_of_one_kind_are_refused() -> None:
    with pytest.raises(BadInput, match="the regression network is of kind classification"):
        share_backbone(Network(specimen_config(_C)), Network(specimen_config(_C)))
