"""The influence map is the Jacobian: exactly 0 where reading is forbidden, and not where it is allowed."""

import numpy as np
import pytest
import torch

from eval.influence import influence_map
from eval.mutants import mutated
from eval.small_network import rerandomised_network, small_network
from eval.specimens import Shape, specimen
from eval.subject import Subject
from model.icl_transformer import AttentionPath
from priors.task import Episode, TaskKind

_N, _M = 6, 3


def _episode(kind: TaskKind) -> Episode:
    return specimen(kind, Shape(num_context=_N, num_query=_M, num_features=3, num_classes=2), seed=0)


def _allowed() -> np.ndarray:
    """Every row reads the context, and keeps itself."""
    return (np.arange(_N + _M) < _N)[None, :] | np.eye(_N + _M, dtype=bool)


@pytest.mark.parametrize("path", [AttentionPath.REFERENCE, AttentionPath.FAST])
@pytest.mark.parametrize("kind", list(TaskKind))
def test_forbidden_blocks_are_exactly_zero_and_allowed_ones_are_not(kind: TaskKind, path: AttentionPath) -> None:
    """5.5, 5.D: C→Q and Q→Q are 0 bit by bit, the diagonal aside; everything else is measured."""
    found = influence_map(rerandomised_network(kind), _episode(kind), path=path)
    assert found.shape == (_N + _M, _N + _M)
    assert (found[~_allowed()] == 0).all()
    assert (found[_allowed()] > 1e-4).all()


def test_it_is_the_norm_of_the_jacobians_blocks() -> None:
    """With as many probes as dimensions, against the whole Jacobian; with fewer, near it."""
    kind = TaskKind.CLASSIFICATION
    network, episode = rerandomised_network(kind), _episode(kind)
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh(dtype=torch.float64)
    run = subject.run([episode])
    rows, labels = run.trace.find("row_readout"), run.inputs.y_context

    def stage(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat(subject.network.icl(rows[:, :_N], labels, rows[:, _N:]), dim=1)

    jacobian = torch.autograd.functional.jacobian(stage, rows)[0, :, :, 0]  # [T, D, T, D]
    expected = jacobian.square().sum((1, 3)).sqrt().numpy()
    assert np.allclose(influence_map(network, episode, num_probes=32), expected, rtol=1e-10, atol=0)
    some = influence_map(network, episode, num_probes=8)
    near = some[expected > 0] / expected[expected > 0]
    assert (near > 0.3).all() and (near < 2).all() and not np.allclose(near, 1, rtol=1e-3)


def test_a_leaking_mask_shows_in_its_block() -> None:
    """5.E: queries that read queries fill Q→Q and leave C→Q at 0."""
    subject = mutated("query_reads_query", Subject(network=rerandomised_network(TaskKind.REGRESSION)))
    found = influence_map(subject.network, _episode(TaskKind.REGRESSION))
    assert (found[_N:, _N:] > 1e-4).all() and (found[:_N, _N:] == 0).all()


def test_an_untrained_network_is_drawn_anew_where_it_is_zero() -> None:
    """Its output projections are 0, so that it would read nothing."""
    network = small_network(TaskKind.CLASSIFICATION)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = influence_map(network, _episode(TaskKind.CLASSIFICATION))
    assert (found[_allowed()] > 1e-4).all()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(value.requires_grad for value in network.parameters())


@pytest.mark.parametrize("num_probes", [0, 33])
def test_probes_are_counted(num_probes: int) -> None:
    """One to the width of a row."""
    with pytest.raises(ValueError, match=f"num_probes is {num_probes}.*1 to 32"):
        influence_map(small_network(TaskKind.REGRESSION), _episode(TaskKind.REGRESSION), num_probes=num_probes)
