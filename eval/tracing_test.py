"""Readings of every stage, in order, and their comparison."""

import dataclasses
import math

import pytest
import torch

from eval.small_network import rerandomised_network
from eval.specimens import specimens
from eval.subject import Subject
from eval.tracing import (
    AttentionCall,
    Axis,
    Reading,
    Rows,
    Stage,
    Trace,
    differences,
    first_moved,
    largest_gap,
    tracing,
)
from model.icl_transformer import AttentionPath, ContextView
from priors.task import TaskKind


def _reading(value: torch.Tensor, *, name: str = "a", stage: Stage = Stage.HEAD, axis: Axis = Axis.QUERY) -> Reading:
    return Reading(stage=stage, name=name, value=value, axes={1: axis})


@pytest.mark.parametrize("kind", list(TaskKind))
@pytest.mark.parametrize("path", [AttentionPath.REFERENCE, AttentionPath.FAST])
def test_stages_are_read_in_the_order_of_the_data_flow(kind: TaskKind, path: AttentionPath) -> None:
    """5.F: collate → normalisation → … → injection → mask → blocks → slices → head."""
    run = Subject(network=rerandomised_network(kind), path=path).fresh().run(specimens(kind))
    first = {}
    for index, reading in enumerate(run.trace.readings):
        first.setdefault(reading.stage, index)
    order = [Stage.COLLATE, Stage.NORMALISATION, Stage.CELL, Stage.COLUMN, Stage.ROW, Stage.INJECTION, Stage.MASK]
    assert sorted(first, key=first.__getitem__) == [*order, Stage.BLOCKS, Stage.SLICES, Stage.HEAD]
    names = [reading.name for reading in run.trace.readings]
    assert len(names) == len(set(names)), "readings are found by name"
    assert len(run.trace.attention) == 2


def test_every_field_of_the_inputs_and_the_normalised_labels_are_read() -> None:
    """5.A: the input before injection is among what is compared."""
    run = Subject(network=rerandomised_network(TaskKind.REGRESSION)).fresh().run(specimens(TaskKind.REGRESSION))
    for name in ("inputs.x_query", "inputs.y_context", "cell_features.statistics.mean", "icl.injection.labels"):
        run.trace.find(name)
    with pytest.raises(KeyError, match="icl.memory"):
        run.trace.find("icl.memory")


def test_hooks_are_removed_even_after_an_error() -> None:
    """A judged network is left clean."""
    network = rerandomised_network(TaskKind.REGRESSION)
    with pytest.raises(ZeroDivisionError), tracing(network):
        assert network.head._forward_hooks
        raise ZeroDivisionError
    assert not any(module._forward_hooks for module in network.modules())


def test_equal_nans_and_infinities_are_equal_and_others_are_infinitely_far() -> None:
    """Element by element, special values included."""
    a = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert largest_gap(a, a.clone()) == 0.0
    assert largest_gap(a, torch.tensor([1.5, math.nan, math.inf, -math.inf])) == 0.5
    assert largest_gap(a, torch.tensor([1.0, 0.0, math.inf, -math.inf])) == math.inf
    assert largest_gap(a, torch.tensor([1.0, math.nan, -math.inf, -math.inf])) == math.inf
    assert largest_gap(a, a[:3]) == math.inf


def test_rows_pick_tables_context_and_queries_of_a_sequence() -> None:
    """N = 3 context rows, then the queries."""
    value = torch.arange(10.0).reshape(2, 5)
    rows = Rows(tables=(1,), context=(2, 0), query=(1,), num_context=3)
    assert rows.take(_reading(value, axis=Axis.SEQUENCE)).tolist() == [[7.0, 5.0, 9.0]]
    assert Rows(query=(0,), num_context=3).take(_reading(value, axis=Axis.SEQUENCE)).tolist() == [
        [0.0, 1.0, 2.0, 3.0],
        [5.0, 6.0, 7.0, 8.0],
    ]
    assert rows.take(_reading(value, axis=Axis.CONTEXT)).tolist() == [[7.0, 5.0]]


def test_the_first_reading_that_moved_is_named() -> None:
    """In the order of the first trace, above the tolerance."""
    one, two = torch.ones(1, 2), torch.ones(1, 2) + 1e-7
    first = (_reading(one), _reading(one, name="b"), _reading(one, name="c"))
    second = (_reading(one), _reading(two, name="b"), _reading(one * 3, name="c"))
    before, after = (Trace(readings=found, attention=(), num_thinking=0) for found in (first, second))
    found = differences(before, after, rows_before=Rows(), rows_after=Rows())
    exact, loose = first_moved(found), first_moved(found, tolerance=1e-3)
    assert exact is not None and loose is not None
    assert (exact.name, loose.name) == ("b", "c")
    assert first_moved(differences(before, before, rows_before=Rows(), rows_after=Rows())) is None


def test_a_part_that_did_not_run_was_answered_from_memory() -> None:
    """5.F: the cache's stage, unless it is a mask that came or went."""
    one = torch.ones(1, 2)
    cell, mask = _reading(one, stage=Stage.CELL), _reading(one, name="m", stage=Stage.MASK)
    before, after = (Trace(readings=found, attention=(), num_thinking=0) for found in ((cell, mask), ()))
    found = differences(before, after, rows_before=Rows(), rows_after=Rows())
    assert [(item.stage, item.absolute) for item in found] == [(Stage.BLOCKS, math.inf), (Stage.MASK, math.inf)]


def test_visibility_is_read_from_what_reached_the_attention() -> None:
    """5.D: only minus infinity hides a key; keys beyond the source do not exist."""
    x = torch.zeros(1, 3, 2)
    bias = torch.tensor([[[[0.0, -math.inf]]]])
    view = ContextView(num_context=2, bias=bias, count=torch.tensor([2]), path=AttentionPath.FAST)
    call = AttentionCall(name="a", x=x, source=x[:, :2], view=view, output=x)
    assert call.visible().tolist() == [[[True, False, False]] * 3]
    assert call.clean()
    finite = dataclasses.replace(call, view=dataclasses.replace(view, bias=bias.clamp_min(-1e9)))
    assert not finite.clean()
