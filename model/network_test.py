"""The whole network: what a prediction may depend on, and what it may not."""

import dataclasses

import pytest
import torch
from torch import Tensor

from model.class_distribution import ClassLogProbabilities
from model.icl_transformer import AttentionPath, Visibility
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkInputs
from model.specimens import (
    distance,
    redraw,
    specimen_config,
    specimen_inputs,
    specimen_network,
    stack_padded,
    take,
    values,
)
from tools.failure import ExitCode, Failure

KINDS = list(LabelKind)
PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
SIZES = [(9, 4, 5), (3, 2, 5), (6, 4, 2)]  # context rows, queries, columns


def _tables(kind: LabelKind, *, dtype: torch.dtype = torch.float64) -> list[NetworkInputs]:
    """Tables of different sizes, one a batch."""
    return [
        specimen_inputs(kind, tables=1, context=n, queries=m, columns=c, seed=seed, dtype=dtype)
        for seed, (n, m, c) in enumerate(SIZES)
    ]


def _predict(network: Network, inputs: NetworkInputs, *, path: AttentionPath = AttentionPath.FAST) -> Tensor:
    network.icl.path = path
    with torch.no_grad():
        return values(network(inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_reference_and_fast_paths_agree(kind: LabelKind, padded: bool, dtype: torch.dtype, tolerance: float) -> None:
    """5.5 and 5.7: for the whole network, with and without padded rows and absent columns."""
    network = specimen_network(kind, dtype=dtype)
    inputs = stack_padded(_tables(kind, dtype=dtype)) if padded else specimen_inputs(kind, dtype=dtype)
    fast, reference = (_predict(network, inputs, path=path) for path in (AttentionPath.FAST, AttentionPath.REFERENCE))
    assert fast.isfinite().all()
    assert distance(fast, reference) < tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_the_agreement_of_paths_notices_queries_that_see_queries(kind: LabelKind) -> None:
    """5.5: control of the test above: with a wrong mask in the reference path, predictions part visibly."""

    class QuerySeesQuery(Visibility):
        def forward(self, context_mask: Tensor, num_query: int) -> Tensor:
            bias = super().forward(context_mask, num_query).clone()
            bias[..., context_mask.shape[1] :, context_mask.shape[1] :] = 0
            return bias

    network, inputs = specimen_network(kind, dtype=torch.float64), specimen_inputs(kind, dtype=torch.float64)
    network.icl.visibility = QuerySeesQuery()
    paths = [_predict(network, inputs, path=path) for path in (AttentionPath.FAST, AttentionPath.REFERENCE)]
    assert distance(*paths) > 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("path", list(AttentionPath))
@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_equals_each_table_alone(
    kind: LabelKind, path: AttentionPath, dtype: torch.dtype, tolerance: float
) -> None:
    """5.7: padded context rows, query rows and columns change nothing."""
    network, tables = specimen_network(kind, dtype=dtype), _tables(kind, dtype=dtype)
    together = _predict(network, stack_padded(tables), path=path)
    for index, table in enumerate(tables):
        alone = _predict(network, table, path=path)
        assert distance(together[[index], : alone.shape[1]], alone) < tolerance, index


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_the_padding_does_not_matter(kind: LabelKind) -> None:
    """5.7: the padding may hold anything, NaN included."""
    network, inputs = specimen_network(kind, dtype=torch.float64), stack_padded(_tables(kind))
    junk = dataclasses.replace(
        inputs,
        x_context=torch.where(inputs.context_mask[..., None], inputs.x_context, 1e9),
        x_query=torch.where(inputs.query_mask[..., None], inputs.x_query, torch.nan),
        y_context=torch.where(inputs.context_mask, inputs.y_context, 1.0),
    )
    absent = (inputs.column_kinds < 0)[:, None, :]
    junk = dataclasses.replace(junk, x_context=junk.x_context.masked_fill(absent, -5.0))
    real = inputs.query_mask
    assert distance(_predict(network, junk)[real], _predict(network, inputs)[real]) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_queries_may_come_in_any_batches(kind: LabelKind) -> None:
    """5.9: one query at a time, all at once, permuted, duplicated, beside other queries: always the same."""
    network, inputs = specimen_network(kind, dtype=torch.float64), specimen_inputs(kind, queries=5, dtype=torch.float64)
    together = _predict(network, inputs)
    for chosen in ([0], [1], [4], [4, 2, 0, 3, 1], [2, 2, 2], [0, 3]):
        index = torch.tensor(chosen)
        assert distance(_predict(network, take(inputs, queries=index)), together[:, index]) < 1e-10, chosen
    others = inputs.x_query.clone()
    others[:, 1:] = torch.tensor([torch.nan, 1e30, -torch.inf, 7.0]).double()[:, None]
    changed = _predict(network, dataclasses.replace(inputs, x_query=others))
    assert distance(changed[:, :1], together[:, :1]) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_context_order_does_not_matter(kind: LabelKind) -> None:
    """1.4: context rows permuted with their labels leave predictions unchanged to rounding."""
    network, inputs = specimen_network(kind, dtype=torch.float64), specimen_inputs(kind, dtype=torch.float64)
    order = torch.tensor([8, 3, 0, 5, 1, 7, 4, 2, 6])
    assert distance(_predict(network, take(inputs, context=order)), _predict(network, inputs)) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_move_with_every_part_of_the_context(kind: LabelKind) -> None:
    """5.1: p(y | x, context): each context label, each context row and the query itself count; no parameter changes."""
    network, inputs = specimen_network(kind, dtype=torch.float64), specimen_inputs(kind, dtype=torch.float64)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = _predict(network, inputs)
    for row in range(inputs.x_context.shape[1]):
        labels = inputs.y_context.clone()
        labels[:, row] = (labels[:, row] + 1) % 3
        assert distance(_predict(network, dataclasses.replace(inputs, y_context=labels)), before) > 1e-5
        values_changed = inputs.x_context.clone()
        values_changed[:, row, 0] = 1.7
        assert distance(_predict(network, dataclasses.replace(inputs, x_context=values_changed)), before) > 1e-5
    query = inputs.x_query.clone()
    query[:, 0, 0] = -1.3
    moved = (_predict(network, dataclasses.replace(inputs, x_query=query)) - before).abs().amax((0, 2))
    assert float(moved[0]) > 1e-5
    assert float(moved[1:].max()) < 1e-12
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("target_aware", [False, True])
def test_feature_encoding_and_label_injection_are_separate_steps(target_aware: bool) -> None:
    """5.11: row tokens come before injection; labels enter them only where columns are declared target-aware."""
    config = specimen_config(LabelKind.CLASSIFICATION)
    config = dataclasses.replace(config, cell=dataclasses.replace(config.cell, target_aware=target_aware))
    network, inputs = Network(config), specimen_inputs(LabelKind.CLASSIFICATION)
    redraw(network)
    assert (network.column_labels is not None) == target_aware == network.config.cell.target_aware
    labels = inputs.y_context
    moved = distance(network.rows(inputs, labels), network.rows(inputs, (labels + 1) % 3))
    assert (moved > 1e-3) if target_aware else (moved == 0.0)
    assert network.rows(inputs, labels).shape == (2, 9 + 4, config.icl.width)


def test_labels_reach_predictions_without_target_aware_columns_too() -> None:
    """5.11: the option may be off; injection and the head still read labels."""
    config = dataclasses.replace(specimen_config(LabelKind.REGRESSION), cell=CellConfig(width=8, target_aware=False))
    network, inputs = Network(config), specimen_inputs(LabelKind.REGRESSION)
    redraw(network)
    flipped = dataclasses.replace(inputs, y_context=inputs.y_context.flip(1))
    assert distance(_predict(network, inputs), _predict(network, flipped)) > 1e-4


def test_tables_with_fewer_classes_have_probability_zero_beyond_their_own() -> None:
    """6.5: class padding in a batch of several tasks."""
    tables = _tables(LabelKind.CLASSIFICATION)
    tables[1] = dataclasses.replace(tables[1], y_context=tables[1].y_context.clamp_max(1))
    tables[2] = dataclasses.replace(tables[2], y_context=tables[2].y_context.clamp_max(0), num_classes=5)
    network = specimen_network(LabelKind.CLASSIFICATION, dtype=torch.float64)
    prediction = network(stack_padded(tables))
    assert isinstance(prediction, ClassLogProbabilities)
    probabilities = prediction.probabilities()
    assert probabilities.shape[-1] == 5
    for table, classes in enumerate((3, 2, 1)):
        present = tables[table].y_context.unique().long()
        absent = [k for k in range(5) if k not in present.tolist()]
        assert len(present) <= classes
        assert (probabilities[table][:, absent] == 0).all()
        assert (prediction.log_p[table][:, absent] == -torch.inf).all()
        assert distance(probabilities[table].sum(-1), torch.ones(len(probabilities[table]))) < 1e-10
    assert (probabilities[2, :, 0] == 1).all()


@pytest.mark.parametrize(("factor", "shift"), [(1000.0, -5.0), (1e-3, 20.0)])
def test_the_unit_of_targets_does_not_matter(factor: float, shift: float) -> None:
    """6.9 and 6.12: normalisation by context targets: predictions follow y → a·y + b."""
    network = specimen_network(LabelKind.REGRESSION, dtype=torch.float64)
    inputs = specimen_inputs(LabelKind.REGRESSION, dtype=torch.float64)
    moved = dataclasses.replace(inputs, y_context=inputs.y_context * factor + shift)
    taus = torch.tensor([0.05, 0.5, 0.95])
    before, after = network(inputs), network(moved)
    assert distance(after.log_mass, before.log_mass) < 1e-7
    assert distance((after.icdf(taus) - shift) / factor, before.icdf(taus)) < 1e-7


def test_the_unit_of_features_does_not_matter() -> None:
    """5.11: numbers are measured against their own column's context."""
    network = specimen_network(LabelKind.CLASSIFICATION, dtype=torch.float64)
    inputs = specimen_inputs(LabelKind.CLASSIFICATION, dtype=torch.float64)
    factor = torch.where(inputs.column_kinds[:1] == 0, 1e3, 1.0).double()
    scaled = dataclasses.replace(inputs, x_context=inputs.x_context * factor, x_query=inputs.x_query * factor)
    assert distance(_predict(network, scaled), _predict(network, inputs)) < 1e-7


@pytest.mark.parametrize(
    ("changes", "message", "code"),
    [
        ({"num_classes": 6}, "6 classes, the model takes 5", ExitCode.OVER_LIMIT),
        ({"num_classes": 2}, "label is 2 with 2 classes", ExitCode.OVER_LIMIT),
        ({"columns": 101}, "101 features, the model takes 100", ExitCode.OVER_LIMIT),
        ({"context": 0}, "the context has 0 rows", ExitCode.TABLE_EMPTY),
        ({"columns": 0}, "9 rows and 0 columns", ExitCode.TABLE_EMPTY),
    ],
)
def test_tables_beyond_the_limits_are_refused(changes: dict[str, int], message: str, code: ExitCode) -> None:
    """6.5: slicing to K_max: one line with thing, value and limit."""
    sizes = {name: value for name, value in changes.items() if name != "num_classes"}
    inputs = specimen_inputs(LabelKind.CLASSIFICATION, **sizes)
    inputs = dataclasses.replace(inputs, num_classes=changes.get("num_classes", 3))
    with pytest.raises(Failure, match=message) as caught:
        specimen_network(LabelKind.CLASSIFICATION)(inputs)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("icl", {"num_heads": 3}, "icl.width 16 is no multiple of icl.num_heads 3"),
        ("cell", {"num_heads": 3}, "cell.width 8 is no multiple of cell.num_heads 3"),
        ("cell", {"num_heads": 0}, "cell.num_heads 0"),
    ],
)
def test_widths_that_do_not_divide_are_refused(part: str, changes: dict[str, int], message: str) -> None:
    """A config that cannot be built says which two numbers disagree."""
    config = specimen_config(LabelKind.CLASSIFICATION)
    config = dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **changes)})
    with pytest.raises(Failure, match=message) as caught:
        Network(config)
    assert caught.value.code is ExitCode.BAD_FLAG


@pytest.mark.parametrize(
    ("part", "field", "least"),
    [("cell", name, 1) for name in ("num_rounds", "num_inducing", "num_tokens")]
    + [("icl", name, 1) for name in ("num_blocks", "feed_forward_factor", "max_classes")]
    + [("", "max_features", 1), ("icl", "num_thinking_rows", 0)]
    + [("readout", "num_summaries", 1), ("readout", "sketch_width", 0)],
)
def test_numbers_of_parts_that_are_none_are_refused(part: str, field: str, least: int) -> None:
    """One line names field, value and what is allowed, when the config is made and not by a traceback later."""
    config = specimen_config(LabelKind.CLASSIFICATION)
    config = getattr(config, part) if part else config
    assert getattr(dataclasses.replace(config, **{field: least}), field) == least
    name = f"{part}.{field}" if part else field
    for value in (least - 1, -3):
        with pytest.raises(Failure, match=f"^{name} is {value}: give {least} or more$") as caught:
            dataclasses.replace(config, **{field: value})
        assert caught.value.code is ExitCode.BAD_FLAG and not isinstance(caught.value, ValueError)
