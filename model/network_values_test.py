"""Odd tables: whatever stands in them, predictions are finite."""

import dataclasses
import math

import pytest
import torch

from model.cell_embedding import CATEGORY
from model.icl_transformer import AttentionPath
from model.label_injection import LabelKind
from model.network import Network, NetworkInputs
from model.specimens import distance, redraw, specimen_config, specimen_inputs, specimen_network, stack_padded, values
from model.target_scaling import SPREAD_FLOOR

KINDS = list(LabelKind)
ODD = [math.nan, math.inf, -math.inf, 1e30, -1e30, 3.4e38, -3.4e38, 1e-45, 0.0]


def _check(inputs: NetworkInputs, kind: LabelKind) -> torch.Tensor:
    """Predicts on both paths in training precision; asserts a finite, normalised distribution and finite gradients."""
    network = specimen_network(kind)
    for path in AttentionPath:
        network.icl.path = path
        network.zero_grad()
        prediction = network(inputs)
        found = values(prediction)
        assert found.isfinite().all()
        total = found[..., : found.shape[-1] - 2 if kind is LabelKind.REGRESSION else None].sum(-1)
        assert distance(total, torch.ones_like(total)) < 1e-5
        loss = prediction.nll(torch.zeros(inputs.x_query.shape[:2]))
        loss[loss.isfinite()].sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    return found


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_values_give_finite_predictions(kind: LabelKind, value: float) -> None:
    """5.11: in one query cell, in one context cell, in a whole column, in a whole row, everywhere."""
    inputs = specimen_inputs(kind)
    for column in (0, 1):
        for part in ("x_query", "x_context"):
            x = getattr(inputs, part).clone()
            x[:, 0, column] = value
            _check(dataclasses.replace(inputs, **{part: x}), kind)
            x[:, :, column] = value
            _check(dataclasses.replace(inputs, **{part: x}), kind)
    x = inputs.x_context.clone()
    x[:, 0] = value
    _check(dataclasses.replace(inputs, x_context=x), kind)
    everywhere = torch.full_like(inputs.x_context, value), torch.full_like(inputs.x_query, value)
    _check(dataclasses.replace(inputs, x_context=everywhere[0], x_query=everywhere[1]), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_one_query_s_odd_values_leave_the_others_alone(kind: LabelKind) -> None:
    """5.9: a NaN in one query is that query's matter."""
    inputs = specimen_inputs(kind)
    x = inputs.x_query.clone()
    x[:, 0] = torch.tensor([math.nan, math.inf, -math.inf, 1e30, 3.0])
    before, after = _check(inputs, kind), _check(dataclasses.replace(inputs, x_query=x), kind)
    assert distance(before[:, 1:], after[:, 1:]) < 1e-6
    assert distance(before[:, 0], after[:, 0]) > 1e-5


@pytest.mark.parametrize("sizes", [{"context": 1}, {"columns": 1}, {"columns": 100}, {"queries": 1}, {"tables": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_sizes_give_finite_predictions(kind: LabelKind, sizes: dict[str, int]) -> None:
    """One context row, one feature, 100 features, one query, one table."""
    _check(specimen_inputs(kind, **sizes), kind)


def test_a_context_of_one_class_predicts_that_class() -> None:
    """6.5: by structure."""
    inputs = specimen_inputs(LabelKind.CLASSIFICATION)
    inputs = dataclasses.replace(inputs, y_context=torch.full_like(inputs.y_context, 2.0))
    found = _check(inputs, LabelKind.CLASSIFICATION)
    assert (found == torch.tensor([0.0, 0.0, 1.0])).all()


@pytest.mark.parametrize("value", [0.0, 5.0, 1e30, -1e30])
def test_constant_targets_give_a_distribution_around_them(value: float) -> None:
    """6.9: the floor under the scale where the context's targets do not vary: 1, or what fp32 can tell apart."""
    inputs = specimen_inputs(LabelKind.REGRESSION)
    inputs = dataclasses.replace(inputs, y_context=torch.full_like(inputs.y_context, value))
    _check(inputs, LabelKind.REGRESSION)
    prediction = specimen_network(LabelKind.REGRESSION)(inputs)
    assert distance(prediction.location, torch.full_like(prediction.location, value)) <= abs(value) * 1e-6
    assert prediction.scale.flatten().tolist() == pytest.approx(2 * [max(1.0, SPREAD_FLOOR * abs(value))])


def test_huge_and_tiny_targets_are_scaled_away() -> None:
    """6.9: fp32 targets up to 1e37 and down to 1e-37."""
    inputs = specimen_inputs(LabelKind.REGRESSION)
    base = specimen_network(LabelKind.REGRESSION)(inputs).log_mass
    for factor in (1e37, 1e-37):
        scaled = dataclasses.replace(inputs, y_context=inputs.y_context * factor)
        _check(scaled, LabelKind.REGRESSION)
        assert distance(specimen_network(LabelKind.REGRESSION)(scaled).log_mass, base) < 1e-2


def test_a_category_that_the_context_lacks_is_its_own_case() -> None:
    """An unseen code differs from every seen one and from a missing value."""
    inputs = specimen_inputs(LabelKind.CLASSIFICATION, columns=1, queries=6)
    codes = torch.tensor([0.0, 1.0, 2.0] * 3)
    query = torch.tensor([0.0, 1.0, 2.0, 7.0, math.nan, 300.0])
    inputs = dataclasses.replace(
        inputs,
        x_context=codes.view(1, 9, 1).expand(2, -1, -1),
        x_query=query.view(1, 6, 1).expand(2, -1, -1),
        column_kinds=torch.full((2, 1), CATEGORY),
    )
    found = _check(inputs, LabelKind.CLASSIFICATION)
    for first in range(6):
        for second in range(first):
            assert distance(found[:, first], found[:, second]) > 1e-4, (first, second)


def test_a_column_missing_from_the_whole_context_is_ignored_but_for_its_flag() -> None:
    """Two query values of such a column look the same, a missing one does not."""
    inputs = specimen_inputs(LabelKind.CLASSIFICATION, queries=3)
    x_context, x_query = inputs.x_context.clone(), inputs.x_query[:, :1].expand(-1, 3, -1).clone()
    x_context[..., 0] = math.nan
    x_query[..., 0] = torch.tensor([1.0, -4.0, math.nan])
    found = _check(dataclasses.replace(inputs, x_context=x_context, x_query=x_query), LabelKind.CLASSIFICATION)
    assert distance(found[:, 0], found[:, 1]) < 1e-6
    assert distance(found[:, 0], found[:, 2]) > 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_real_columns_or_queries_stays_finite_and_harms_no_other(kind: LabelKind) -> None:
    """5.7: no columns, no queries: a finite answer, finite gradients, the other tables as before."""
    tables = [specimen_inputs(kind, tables=1, seed=seed) for seed in range(2)]
    batch = stack_padded([*tables, tables[0]])
    empty = torch.tensor([False, False, True])[:, None]
    batch = dataclasses.replace(
        batch, query_mask=batch.query_mask & ~empty, column_kinds=batch.column_kinds.masked_fill(empty, -1)
    )
    found = _check(batch, kind)
    for index, table in enumerate(tables):
        assert distance(found[[index], :4], values(specimen_network(kind)(table))) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_network_gives_finite_predictions(kind: LabelKind) -> None:
    """Before the first step, with its zero-initialised branches."""
    network = Network(specimen_config(kind))
    assert values(network(specimen_inputs(kind))).isfinite().all()
    redraw(network, seed=1)
    assert values(network(specimen_inputs(kind))).isfinite().all()
