"""Cells, columns and rows together: what odd tables do, what order does, what is formed before a row is compressed."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model import presets
from model.attention import Norm
from model.cell_embedding import CATEGORY, NUMBER, CellEmbedding, CellFeatures, context_statistics
from model.class_distribution import LogForm
from model.column_embedding import ColumnBlock
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkConfig, NetworkInputs
from model.row_embedding import RowBlock
from model.specimens import distance, redraw, specimen_config, specimen_inputs, take, values
from tools import config as configs
from tools.failure import BadInput, ExitCode

KINDS = list(LabelKind)
MARKS = (math.nan, math.inf, -math.inf)
NO_GROUP = (0,)


def _network(
    kind: LabelKind,
    *,
    dtype: torch.dtype = torch.float64,
    max_features: int = 100,
    sketch_width: int | None = None,
    **cell: Any,
) -> Network:
    """A small network, every parameter random, with changes of its configuration."""
    config = specimen_config(kind)
    config = dataclasses.replace(config, max_features=max_features, cell=dataclasses.replace(config.cell, **cell))
    if sketch_width is not None:
        readout = dataclasses.replace(config.readout, sketch_width=sketch_width)
        config = dataclasses.replace(config, readout=readout)
    network = Network(config)
    redraw(network)
    return (network.double() if dtype is torch.float64 else network).eval()


@torch.no_grad()
def _rows(network: Network, inputs: NetworkInputs) -> Tensor:
    """Row tokens [B, T, D]: what the early stages make of a table."""
    return network.rows(inputs, network._labels(inputs)[0])


@torch.no_grad()
def _predict(network: Network, inputs: NetworkInputs) -> Tensor:
    return values(network(inputs))


def _inputs(kind: LabelKind, *, dtype: torch.dtype = torch.float64, **sizes: int) -> NetworkInputs:
    return specimen_inputs(kind, dtype=dtype, **sizes)


def _reordered(inputs: NetworkInputs, order: Tensor) -> NetworkInputs:
    """The same tables with their columns in another order."""
    changes = {name: getattr(inputs, name)[..., order] for name in ("x_context", "x_query", "column_kinds")}
    return dataclasses.replace(inputs, **changes)


def _with_column(inputs: NetworkInputs, value: float, *, kind: int = NUMBER) -> NetworkInputs:
    """The same tables with one more column, which is `value` everywhere."""

    def grown(x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x[..., :1], value)], dim=-1)

    kinds = torch.cat([inputs.column_kinds, torch.full_like(inputs.column_kinds[:, :1], kind)], dim=-1)
    changes = {"x_context": grown(inputs.x_context), "x_query": grown(inputs.x_query), "column_kinds": kinds}
    return dataclasses.replace(inputs, **changes)


def _of_columns(inputs: NetworkInputs, *, columns: list[float], kind: int = NUMBER) -> NetworkInputs:
    """The same labels beside columns each of which holds one value everywhere."""
    x = [torch.tensor(columns, dtype=part.dtype).expand(*part.shape[:2], -1) for part in _parts(inputs)]
    kinds = torch.full((len(x[0]), len(columns)), kind)
    return dataclasses.replace(inputs, x_context=x[0], x_query=x[1], column_kinds=kinds)


def _parts(inputs: NetworkInputs) -> tuple[Tensor, Tensor]:
    return inputs.x_context, inputs.x_query


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_both_infinities_are_three_values(kind: LabelKind) -> None:
    """5.11: three queries that differ in one cell alone, NaN, +inf or -inf, and a number get four predictions."""
    inputs = _inputs(kind, queries=4)
    x = inputs.x_query[:, :1].repeat(1, 4, 1)
    x[..., 0] = torch.tensor([*MARKS, 0.5], dtype=x.dtype)
    found = _predict(_network(kind), dataclasses.replace(inputs, x_query=x))
    for first, second in itertools.combinations(range(4), 2):
        assert distance(found[:, first], found[:, second]) > 1e-4, (first, second)


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_in_the_context_is_read_too(mark: float) -> None:
    """5.11: one cell of one context row that becomes NaN or infinite moves the predictions of other rows."""
    network, inputs = _network(LabelKind.CLASSIFICATION), _inputs(LabelKind.CLASSIFICATION)
    x = inputs.x_context.clone()
    x[:, 0, 0] = mark
    changed = _predict(network, dataclasses.replace(inputs, x_context=x))
    assert changed.isfinite().all()
    assert distance(changed, _predict(network, inputs)) > 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_not_told_apart_by_columns_that_hold_one_value(kind: LabelKind) -> None:
    """5.11: constant, all-missing and all-infinite columns give every query of a table the same finite prediction."""
    network, inputs = _network(kind), _inputs(kind)
    for column_kind in (NUMBER, CATEGORY):
        found = _predict(network, _of_columns(inputs, columns=[5.0, 0.0, *MARKS, -3e30], kind=column_kind))
        assert found.isfinite().all()
        assert distance(found, found[:, :1].expand_as(found)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_which_constant_a_column_holds_does_not_matter(kind: LabelKind) -> None:
    """5.11: an added constant column says that it is constant, and nothing of its value: predictions are bit-equal.

    That it is there does move predictions, as an all-missing one does: a column is a column. Only a padded one is none.
    """
    network, inputs = _network(kind), _inputs(kind)
    constants = [_predict(network, _with_column(inputs, value)) for value in (1.0, 0.0, -7.5, 3e30)]
    assert all(torch.equal(constants[0], found) for found in constants[1:])
    missing, alone = _predict(network, _with_column(inputs, math.nan)), _predict(network, inputs)
    absent = _predict(network, _with_column(inputs, 1.0, kind=-1))
    assert constants[0].isfinite().all() and missing.isfinite().all()
    assert distance(absent, alone) < 1e-12
    gaps = [distance(*pair) for pair in itertools.combinations([constants[0], missing, alone], 2)]
    assert min(gaps) > 1e-5


def test_a_category_is_never_z_scored() -> None:
    """5.11: code 768, far off, in place of 0 (their signatures are equal) changes nothing; as a number it does."""
    for column_kind in (CATEGORY, NUMBER):
        inputs = _inputs(LabelKind.CLASSIFICATION)
        kinds = inputs.column_kinds.clone()
        kinds[:, 1] = column_kind  # its values are 0, 1, 2, 3 and NaN
        inputs = dataclasses.replace(inputs, column_kinds=kinds)
        far = [torch.cat([x[..., :1], torch.where(x == 0, 768.0, x)[..., 1:2], x[..., 2:]], -1) for x in _parts(inputs)]
        network = _network(LabelKind.CLASSIFICATION)
        changed = _predict(network, dataclasses.replace(inputs, x_context=far[0], x_query=far[1]))
        assert torch.equal(changed, _predict(network, inputs)) == (column_kind == CATEGORY)


def test_an_unseen_level_is_a_case_of_its_own() -> None:
    """5.11: code 256 has the signature of 0; a context that holds 0 but not 256 tells them, and NaN, apart."""
    inputs = _of_columns(_inputs(LabelKind.CLASSIFICATION, queries=3), columns=[0.0, 0.0], kind=CATEGORY)
    x = inputs.x_query.clone()
    x[..., 0] = torch.tensor([0.0, 256.0, math.nan], dtype=x.dtype)
    found = _predict(_network(LabelKind.CLASSIFICATION), dataclasses.replace(inputs, x_query=x))
    for first, second in itertools.combinations(range(3), 2):
        assert distance(found[:, first], found[:, second]) > 1e-4, (first, second)


@pytest.mark.parametrize("columns", [1, 2, 500])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_1_to_500_features_are_read_to_their_last_column(kind: LabelKind, columns: int) -> None:
    """5.11: finite predictions and gradients, and each of the first and last columns moves them."""
    network, inputs = _network(kind, max_features=500), _inputs(kind, columns=columns, context=7, queries=2)
    prediction = network(inputs)
    found = values(prediction)
    prediction.nll(inputs.y_context[:, :2]).mean().backward()
    assert found.isfinite().all() and all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)
    for column in (0, columns - 1):
        x = inputs.x_query.clone()
        x[..., column] = math.inf
        assert distance(_predict(network, dataclasses.replace(inputs, x_query=x)), found.detach()) > 1e-8


def test_a_table_beyond_the_limit_of_features_is_refused() -> None:
    """501 features, 500 allowed: one line with both numbers."""
    network = _network(LabelKind.REGRESSION, max_features=500)
    with pytest.raises(BadInput, match="501 features, the model takes 500") as caught:
        network(_inputs(LabelKind.REGRESSION, columns=501))
    assert caught.value.code is ExitCode.OVER_LIMIT


@pytest.mark.parametrize("form", list(LogForm))
@pytest.mark.parametrize("context", [1, 6])
def test_a_context_of_one_class_gives_it_probability_1(form: LogForm, context: int) -> None:
    """6.5: in every log form, whether the context is one row or many; other classes have exactly 0."""
    network, inputs = _network(LabelKind.CLASSIFICATION), _inputs(LabelKind.CLASSIFICATION, context=context)
    network.config = dataclasses.replace(
        network.config, classification=dataclasses.replace(network.config.classification, log_form=form)
    )
    found = _predict(network, dataclasses.replace(inputs, y_context=torch.full_like(inputs.y_context, 1.0)))
    assert distance(found[..., 1], torch.ones_like(found[..., 1])) < 1e-12
    assert (found[..., [0, 2]] == 0).all()


def test_one_context_row_places_the_distribution_on_its_target() -> None:
    """6.9, 6.12: N = 1 in regression: location y, scale 1, whatever the features; every number finite."""
    network, inputs = _network(LabelKind.REGRESSION), _inputs(LabelKind.REGRESSION, context=1)
    with torch.no_grad():
        prediction = network(inputs)
    assert torch.equal(prediction.location, inputs.y_context)
    assert torch.equal(prediction.scale, torch.ones_like(inputs.y_context))
    assert values(prediction).isfinite().all() and prediction.icdf(torch.tensor([0.01, 0.99])).isfinite().all()


@pytest.mark.parametrize("target_aware", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_without_groups_and_sketch_column_order_does_not_matter(kind: LabelKind, target_aware: bool) -> None:
    """1.4: no column carries a position: row tokens and predictions stay to rounding, in every order."""
    network = _network(kind, feature_offsets=NO_GROUP, sketch_width=0, target_aware=target_aware)
    inputs = _inputs(kind)
    rows, found = _rows(network, inputs), _predict(network, inputs)
    for order in ([4, 3, 2, 1, 0], [1, 0, 2, 3, 4], [2, 4, 0, 3, 1]):
        other = _reordered(inputs, torch.tensor(order))
        assert distance(_rows(network, other), rows) < 1e-11
        assert distance(_predict(network, other), found) < 1e-11


@pytest.mark.parametrize("kind", KINDS)
def test_with_groups_only_the_order_around_the_table_matters(kind: LabelKind) -> None:
    """1.4: designed in: another neighbourhood moves predictions; turning the table around does not, beyond rounding."""
    network, inputs = _network(kind, sketch_width=0), _inputs(kind)
    found = _predict(network, inputs)
    for shift in range(1, 5):
        turned = _reordered(inputs, (torch.arange(5) + shift) % 5)
        assert distance(_predict(network, turned), found) < 1e-11
    assert distance(_predict(network, _reordered(inputs, torch.tensor([4, 3, 2, 1, 0]))), found) > 1e-4
    assert distance(_predict(network, _reordered(inputs, torch.tensor([1, 0, 2, 3, 4]))), found) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_sketch_every_order_is_another_reading_of_the_table(kind: LabelKind) -> None:
    """1.4: designed in: the sketch binds a cell to the place of its column; estimators average over orders."""
    network, inputs = _network(kind, feature_offsets=NO_GROUP), _inputs(kind)
    found = _predict(network, inputs)
    for order in ([1, 2, 3, 4, 0], [4, 3, 2, 1, 0], [1, 0, 2, 3, 4]):
        assert distance(_predict(network, _reordered(inputs, torch.tensor(order))), found) > 1e-4


@pytest.mark.parametrize("target_aware", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_context_order_moves_no_row_token(kind: LabelKind, target_aware: bool) -> None:
    """1.4: context rows permuted with their labels: their tokens move along, those of queries stay, to rounding."""
    network, inputs = _network(kind, target_aware=target_aware), _inputs(kind)
    order = torch.tensor([8, 3, 0, 5, 1, 7, 4, 2, 6])
    before, after = _rows(network, inputs), _rows(network, take(inputs, context=order))
    assert distance(after, torch.cat([before[:, :9][:, order], before[:, 9:]], dim=1)) < 1e-11
    assert distance(after[:, :9], before[:, :9]) > 1e-2


@pytest.mark.parametrize("make", [presets.tiny, presets.small, presets.base, presets.large, presets.official])
def test_columns_are_target_aware_unless_a_configuration_says_no_and_it_is_recorded(make: Any) -> None:
    """5.11: on by default; a run's configuration holds which, and a network built from the record has it."""
    for kind, aware in itertools.product(KINDS, (True, False)):
        config = make(kind)
        assert config.cell.target_aware and CellConfig().target_aware
        config = dataclasses.replace(config, cell=dataclasses.replace(config.cell, target_aware=aware))
        record = configs.to_json(config)
        assert record["cell"]["target_aware"] is aware
        with torch.device("meta"):
            network = Network(configs.from_json(NetworkConfig, record))
        assert (network.column_labels is not None) == aware


@pytest.mark.parametrize("target_aware", [True, False])
def test_row_tokens_of_queries_hold_context_labels_only_where_columns_are_target_aware(target_aware: bool) -> None:
    """5.11: values are encoded apart from labels: without target-aware columns no label reaches a row token."""
    network, inputs = _network(LabelKind.CLASSIFICATION, target_aware=target_aware), _inputs(LabelKind.CLASSIFICATION)
    other = dataclasses.replace(inputs, y_context=(inputs.y_context + 1) % 3)
    moved = distance(_rows(network, other), _rows(network, inputs))
    assert (moved > 1e-3) if target_aware else (moved == 0)


def test_a_cell_meets_other_columns_of_its_row_before_the_readout() -> None:
    """5.11: refinement before compression: without groups, cell j after a round depends on every column of its row.

    Not as a sum: the mixed difference of two columns is no rounding, so an interaction stands in single cells. Before
    the first row block it depends on its own column alone.
    """
    network, inputs = _network(LabelKind.REGRESSION, feature_offsets=NO_GROUP), _inputs(LabelKind.REGRESSION, tables=1)
    seen: dict[str, Tensor] = {}
    network.column_blocks[0].register_forward_hook(lambda *call: seen.update(column=call[2].transpose(1, 2)))
    network.row_blocks[0].register_forward_hook(lambda *call: seen.update(row=call[2]))

    def cells(first: float, third: float) -> dict[str, Tensor]:
        x = inputs.x_query.clone()
        x[:, 0, 0], x[:, 0, 2] = first, third
        _rows(network, dataclasses.replace(inputs, x_query=x))
        return {stage: cell[0, 9].clone() for stage, cell in seen.items()}  # the first query's, [C, E]

    low, high, left, both = (cells(*pair) for pair in itertools.product((-1.0, 1.0), repeat=2))
    moved = {stage: (left[stage] - low[stage]).abs().amax(-1) > 1e-9 for stage in low}
    assert moved["column"].tolist() == [True, False, False, False, False] and bool(moved["row"].all())
    mixed = {stage: (both[stage] - left[stage] - high[stage] + low[stage]).abs().amax(-1) for stage in low}
    assert float(mixed["column"].max()) < 1e-12 and float(mixed["row"].min()) > 1e-4


class _AdditiveReader(nn.Module):
    """Cells of two columns, one round, and a readout that can only add what the cells say."""

    def __init__(self, *, has_row_block: bool) -> None:
        super().__init__()
        self.features = CellFeatures()
        self.embedding = CellEmbedding(16, norm=Norm.LAYER, offsets=NO_GROUP)
        self.column = ColumnBlock(16, num_heads=2, num_inducing=4, norm=Norm.LAYER)
        self.row = RowBlock(16, num_heads=2, num_tokens=2, norm=Norm.LAYER) if has_row_block else None
        self.readout = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        statistics = context_statistics(x, torch.ones(x.shape[:2], dtype=torch.bool))
        cells = self.embedding(self.features(x, torch.full((1, 2), NUMBER), statistics), None).transpose(1, 2)
        cells = self.column(cells, None, num_context=x.shape[1], bias=None).transpose(1, 2)
        if self.row is not None:
            cells = self.row(cells, bias=None)
        return self.readout(cells.mean(2))[0]


@pytest.mark.parametrize("has_row_block", [True, False])
def test_exclusive_or_is_formed_before_the_row_is_compressed(has_row_block: bool) -> None:
    """5.11: learned by one round whose cells are then only added; without the row block no sum of cells can tell it.

    On the four balanced cases every additive log-odds has a loss of log 2 or more.
    """
    reader = _AdditiveReader(has_row_block=has_row_block)
    redraw(reader, gain=1.0)
    x = torch.tensor([[[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]])
    labels = torch.tensor([0, 1, 1, 0])
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-2)
    for _ in range(150):
        loss = nn.functional.cross_entropy(reader(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = float(loss.detach())
    assert (found < 0.05) if has_row_block else (found > math.log(2) - 1e-4)
