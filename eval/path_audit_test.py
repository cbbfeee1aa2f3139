"""The audit of cached and bf16 predictions: what it measures, and the ways in which it fails."""

import dataclasses

import pytest
import torch

from eval.case import Case
from eval.mutants import mutated
from eval.path_audit import paths
from eval.small_network import rerandomised_network, small_network, trained_network
from eval.subject import Prediction, Subject
from eval.tracing import Stage
from model.network import Network, NetworkInputs
from priors.task import TaskKind


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_trained_network_passes_with_its_roundings_measured(kind: TaskKind) -> None:
    """5.9, 5.10: from a memory to 1e-5, in bf16 to 2e-2 in probabilities, and not without rounding."""
    network, _ = trained_network(kind, num_steps=60)
    result = paths(Case.of(Subject(network=network)))
    assert result.passed, result.message
    assert result.figures["cached"] <= 1e-5
    assert 0 < result.figures["bf16"] <= 2e-2
    for way in ("cached", "bf16", "training"):
        assert result.figures[f"{way}_moved"] == 0.0
        assert result.figures[f"{way}_control"] > 0.01


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_memory_of_another_table_is_seen(kind: TaskKind) -> None:
    """5.E: stale label in a cache, here the cache of a whole context."""
    subject = Subject(network=rerandomised_network(kind))
    result = paths(Case.of(mutated("memory_of_another_table", subject)))
    assert (result.passed, result.stage) == (False, Stage.BLOCKS) and result.message.startswith(
        "cached: predictions differ"
    )


class _InBf16(Network):
    """Does something only where autocast is on."""

    def forward(self, inputs: NetworkInputs) -> Prediction:
        return super().forward(self.changed(inputs) if torch.is_autocast_enabled("cpu") else inputs)

    def changed(self, inputs: NetworkInputs) -> NetworkInputs:
        raise NotImplementedError


class _Coarse(_InBf16):
    def changed(self, inputs: NetworkInputs) -> NetworkInputs:
        return dataclasses.replace(inputs, x_query=inputs.x_query.round())


class _Centred(_InBf16):
    def changed(self, inputs: NetworkInputs) -> NetworkInputs:
        numbers = (inputs.column_kinds == 0)[:, None, :]  # a category's code must stay whole
        shift = 1e-3 * numbers * inputs.x_query.nan_to_num(0, 0, 0).mean(1, keepdim=True)
        return dataclasses.replace(inputs, x_query=inputs.x_query - shift)


def test_bf16_that_computes_something_else_is_seen() -> None:
    """5.10: coarser than rounding."""
    network, _ = trained_network(TaskKind.CLASSIFICATION, num_steps=60)
    network.__class__ = _Coarse
    result = paths(Case.of(Subject(network=network)))
    assert (result.passed, result.stage) == (False, Stage.BLOCKS) and result.message.startswith(
        "bf16: predictions differ"
    )


def test_a_leak_in_bf16_alone_is_seen_bit_by_bit() -> None:
    """5.C: smaller than bf16's rounding, but another query's features move a prediction."""
    network, _ = trained_network(TaskKind.CLASSIFICATION, num_steps=60)
    network.__class__ = _Centred
    result = paths(Case.of(Subject(network=network)))
    assert not result.passed and "other queries were replaced" in result.message
    assert result.figures["bf16"] <= 2e-2


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("name", ["queries_meet_in_memory", "queries_meet_in_training"])
def test_a_leak_in_memory_or_training_alone_is_seen(name: str, kind: TaskKind) -> None:
    """5.C: queries centred on each other, in one way of predicting only."""
    result = paths(Case.of(mutated(name, Subject(network=rerandomised_network(kind)))))
    assert (result.passed, result.stage) == (False, Stage.BLOCKS)
    assert result.message.startswith("cached" if name.endswith("memory") else "training")


@pytest.mark.parametrize("last", [False, True])
def test_a_causal_leak_in_bf16_is_seen_though_the_first_query_sees_nobody(last: bool) -> None:
    """5.C: each query is moved a little by the one before it (or after it)."""

    class _Neighbour(_InBf16):
        def changed(self, inputs: NetworkInputs) -> NetworkInputs:
            x = inputs.x_query.nan_to_num(0, 0, 0)
            beside = torch.cat([x[:, 1:], 0 * x[:, :1]], 1) if last else torch.cat([0 * x[:, :1], x[:, :-1]], 1)
            numbers = (inputs.column_kinds == 0)[:, None, :]
            return dataclasses.replace(inputs, x_query=inputs.x_query + 1e-3 * numbers * beside)

    network, _ = trained_network(TaskKind.CLASSIFICATION, num_steps=60)
    network.__class__ = _Neighbour
    result = paths(Case.of(Subject(network=network)))
    assert not result.passed and "other queries were replaced" in result.message


def test_a_double_precision_subject_is_judged() -> None:
    """5.G: a verdict in fp64."""
    subject = Subject(network=rerandomised_network(TaskKind.REGRESSION), dtype=torch.float64)
    assert paths(Case.of(subject)).passed


def test_a_network_that_ignores_labels_in_bf16_is_called_blind() -> None:
    """A fresh network's retrieval is nearly uniform, and its class probabilities hardly move."""

    class _Deaf(_InBf16):
        def changed(self, inputs: NetworkInputs) -> NetworkInputs:
            return dataclasses.replace(inputs, y_context=torch.zeros_like(inputs.y_context))

    network = small_network(TaskKind.REGRESSION)
    network.__class__ = _Deaf
    result = paths(Case.of(Subject(network=network)))
    assert not result.passed
