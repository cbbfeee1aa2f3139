"""Leaks that no comparison of runs shows are caught by their data flow, on every way to predict; innocents are not."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import torch

from eval.audits import AUDITS, judge
from eval.case import Case
from eval.certificate import certificate
from eval.mutant_flows import dormant_query_adapter, empty_rows_borrow_from_queries, sorted_queries_are_smoothed
from eval.small_network import rerandomised_network
from eval.specimens import specimens, with_queries
from eval.subject import Subject
from eval.tracing import Stage
from model.class_distribution import ClassLogProbabilities
from model.network import ContextMemory, Hidden, Network, NetworkInputs
from model.regression_heads import RegressionPrediction
from priors.task import TaskKind


def _case(subject: Subject) -> Case:
    return Case(subject=subject, episodes=())


@pytest.mark.parametrize(
    ("make", "stage", "kind"),
    [
        (empty_rows_borrow_from_queries, Stage.ROW, TaskKind.CLASSIFICATION),
        (dormant_query_adapter, Stage.HEAD, TaskKind.REGRESSION),
        (sorted_queries_are_smoothed, Stage.HEAD, TaskKind.CLASSIFICATION),
    ],
)
def test_a_leak_without_an_effect_is_caught_by_the_certificate_alone(
    make: Callable[[Subject], Subject], stage: Stage, kind: TaskKind
) -> None:
    """An audit beyond the seeds must catch what no other does: here no value moves on any specimen."""
    case = Case.of(make(Subject(network=rerandomised_network(kind))))
    others = [judge(name, case) for name in AUDITS if name != "certificate"]
    assert {result.name: result.message for result in others if not result.passed} == {}
    result = certificate(case)
    assert not result.passed and result.stage == stage, result.message


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_leak_without_an_effect_is_one(kind: TaskKind) -> None:
    """A query row without a value answers otherwise when the other queries differ; in the clean network it does not."""
    clean = Subject(network=rerandomised_network(kind))
    episode = specimens(kind)[0]
    query = episode.evidence().x_query.copy()
    query[0] = np.nan
    for subject, leaks in ((clean, False), (empty_rows_borrow_from_queries(clean), True)):
        found = []
        for others in (query[1:], query[1:] + 1):
            table = with_queries(episode, np.concatenate([query[:1], others]), answers=episode.answers())
            found.append(subject.fresh().run([table]).readout[0, 0])
        assert bool((found[0] != found[1]).any()) == leaks


@pytest.mark.parametrize("kind", list(TaskKind))
def test_smoothing_of_sorted_queries_is_a_leak(kind: TaskKind) -> None:
    """A query in such an order answers otherwise when a later one moves; in the clean network it does not."""
    clean = Subject(network=rerandomised_network(kind))
    episode = specimens(kind)[0]
    query = episode.evidence().x_query.copy()
    query[:, 0] = np.arange(len(query))
    other = query.copy()
    other[0, 1:] += 1
    for subject, leaks in ((clean, False), (sorted_queries_are_smoothed(clean), True)):
        tables = [with_queries(episode, rows, answers=episode.answers()) for rows in (query, other)]
        found = [subject.fresh().run([table]).readout[0, 1] for table in tables]
        assert bool((found[0] != found[1]).any()) == leaks


class _LeaksInHalf(Network):
    def hidden(self, inputs: NetworkInputs, labels: torch.Tensor | None = None) -> Hidden:
        found = super().hidden(inputs, labels)
        if not torch.is_autocast_enabled("cpu"):
            return found
        return Hidden(context=found.context, query=found.query + 1e-6 * found.query.mean(1, keepdim=True))


class _LeaksInMemory(Network):
    def predict(
        self, memory: ContextMemory, x_query: torch.Tensor, *, query_mask: torch.Tensor | None = None
    ) -> ClassLogProbabilities | RegressionPrediction:
        near = x_query + 1e-6 * x_query.nan_to_num().mean(1, keepdim=True)
        return super().predict(memory, near, query_mask=query_mask)


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize(
    ("mistake", "words"), [(_LeaksInHalf, "under bf16 autocast: "), (_LeaksInMemory, "on the cached path: ")]
)
def test_a_leak_of_half_precision_or_of_a_remembered_context_is_caught(
    mistake: type, words: str, kind: TaskKind
) -> None:
    """5.1, 5.G: other ways to predict take other operations, however small the leak."""
    subject = Subject(network=rerandomised_network(kind)).fresh()
    subject.network.__class__ = mistake
    result = certificate(_case(subject))
    assert not result.passed and result.message.startswith(words) and "depends on query row" in result.message


class _Unfollowed(Network):
    def hidden(self, inputs: NetworkInputs, labels: torch.Tensor | None = None) -> Hidden:
        found = super().hidden(inputs, labels)
        with contextlib.suppress(RuntimeError):
            found.query.view(torch.int16)
        return found


def test_what_cannot_be_followed_fails_the_audit_by_name_though_the_network_goes_on() -> None:
    """5.G: a verdict, not a crash."""
    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION)).fresh()
    subject.network.__class__ = _Unfollowed
    result = certificate(_case(subject))
    assert not result.passed and result.message.startswith("the data flow is hidden: aten.view")


class _ByMask(Network):
    def hidden(self, inputs: NetworkInputs, labels: torch.Tensor | None = None) -> Hidden:
        found = super().hidden(inputs, labels)
        real = torch.ones(found.query.shape[:2], dtype=torch.bool) if inputs.query_mask is None else inputs.query_mask
        query, rows = torch.zeros_like(found.query), torch.arange(found.query.shape[1])
        query[real] = found.query[real]
        query[:, rows] = query[:, rows].repeat_interleave(torch.ones_like(rows), dim=1)
        return Hidden(context=found.context, query=query)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_rows_that_are_picked_by_a_known_mask_or_index_stay_apart(kind: TaskKind) -> None:
    """An innocent network that packs its real rows is not accused."""
    subject = Subject(network=rerandomised_network(kind)).fresh()
    subject.network.__class__ = _ByMask
    result = certificate(_case(subject))
    assert result.passed, result.message
    assert result.figures["branches_on_values"] == 0 and result.figures["operations_mixed"] == 0
