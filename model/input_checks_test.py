"""What the network, its ICL stage and its heads refuse: one line with the argument, the value and what is allowed."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from model.icl_transformer import AttentionPath, ICLConfig, ICLTransformer
from model.input_checks import check_context_mask, check_labels, check_mask, check_rows
from model.label_injection import LabelKind
from model.specimens import redraw, specimen_inputs, specimen_network, values
from tools.failure import ExitCode, Failure

_BAD_INPUTS: list[tuple[dict[str, Any], str, ExitCode]] = [
    (
        {"y_context": torch.full((2, 9), 7.0)},
        "context label is 7 with 3 classes: number the classes",
        ExitCode.OVER_LIMIT,
    ),
    ({"y_context": torch.full((2, 9), -1.0)}, "context label is -1 with 3 classes", ExitCode.OVER_LIMIT),
    (
        {"x_context": torch.zeros(2, 0, 5), "y_context": torch.zeros(2, 0)},
        "context has 0 rows",
        ExitCode.TABLE_EMPTY,
    ),
    ({"x_query": torch.zeros(2, 0, 5)}, "query has 0 rows: give one or more", ExitCode.TABLE_EMPTY),
    ({"context_mask": torch.ones(2, 8).bool()}, r"context_mask has shape \(2, 8\): give \(2, 9\)", ExitCode.BAD_MASK),
    ({"context_mask": torch.ones(2, 9)}, "context_mask has dtype torch.float32: give torch.bool", ExitCode.BAD_MASK),
    ({"query_mask": torch.ones(2, 9).bool()}, r"query_mask has shape \(2, 9\): give \(2, 4\)", ExitCode.BAD_MASK),
    ({"query_mask": torch.ones(2, 4).int()}, "query_mask has dtype torch.int32", ExitCode.BAD_MASK),
    ({"label_mask": torch.ones(9).bool()}, r"label_mask has shape \(9,\)", ExitCode.BAD_MASK),
    ({"y_context": torch.full((2, 9), 1.5)}, "context label is 1.5 with 3 classes", ExitCode.OVER_LIMIT),
    ({"y_context": torch.zeros(2, 1)}, r"y_context has shape \(2, 1\): give \(2, 9\)", ExitCode.BAD_SHAPE),
    ({"x_query": torch.zeros(2, 4, 3)}, r"x_query has shape \(2, 4, 3\): give \(2, 4, 5\)", ExitCode.BAD_SHAPE),
    ({"x_query": torch.zeros(1, 4, 5)}, r"x_query has shape \(1, 4, 5\)", ExitCode.BAD_SHAPE),
    ({"column_kinds": torch.zeros(2, 1).long()}, r"column_kinds has shape \(2, 1\)", ExitCode.BAD_SHAPE),
    ({"column_kinds": torch.full((2, 5), 7)}, "column_kinds holds 7: give 0 number", ExitCode.BAD_FLAG),
    (
        {"column_kinds": torch.tensor([[0, 0, 0, 0, 0], [-1, 0, 0, 0, 0]])},
        "column_kinds of table 1 has padding before a column",
        ExitCode.BAD_FLAG,
    ),
    (
        {"context_mask": torch.tensor([[True] * 9, [False] * 9])},
        "context_mask hides all rows of table 1: leave one or more",
        ExitCode.BAD_MASK,
    ),
]


@pytest.mark.parametrize(("changes", "message", "code"), _BAD_INPUTS)
def test_a_network_refuses_what_it_cannot_predict_from(changes: dict[str, Any], message: str, code: ExitCode) -> None:
    """A ValueError for users of the library, and a failure with an exit code for programs."""
    network = specimen_network(LabelKind.CLASSIFICATION)
    inputs = dataclasses.replace(specimen_inputs(LabelKind.CLASSIFICATION), **changes)
    with pytest.raises(ValueError, match=message) as caught:
        network(inputs)
    assert isinstance(caught.value, Failure) and caught.value.code is code
    if "x_query" not in changes:  # a context is remembered whatever is asked of it later
        with pytest.raises(ValueError, match=message):
            network.remember(inputs)


def test_targets_that_are_no_numbers_are_refused_where_they_are_shown() -> None:
    """NaN in a context target; where the label is hidden, whatever stands there does not matter."""
    network, inputs = specimen_network(LabelKind.REGRESSION), specimen_inputs(LabelKind.REGRESSION)
    y = inputs.y_context.clone()
    y[0, 2] = torch.nan
    with pytest.raises(ValueError, match="1 context targets are not finite"):
        network(dataclasses.replace(inputs, y_context=y))
    hidden = torch.ones(y.shape, dtype=torch.bool)
    hidden[0, 2] = False
    assert network(dataclasses.replace(inputs, y_context=y, label_mask=hidden)).mean().isfinite().all()


def test_a_prediction_from_memory_refuses_other_tables_and_masks() -> None:
    """The memory's tables and columns are those of the queries."""
    network, inputs = specimen_network(LabelKind.CLASSIFICATION), specimen_inputs(LabelKind.CLASSIFICATION)
    memory = network.remember(inputs)
    with pytest.raises(ValueError, match=r"x_query has shape \(2, 4, 3\): give \(2, 4, 5\)"):
        network.predict(memory, inputs.x_query[..., :3])
    with pytest.raises(ValueError, match="query_mask has dtype torch.int32"):
        network.predict(memory, inputs.x_query, query_mask=torch.full((2, 4), 5, dtype=torch.int32))
    with pytest.raises(ValueError, match="the query has 0 rows"):
        network.predict(memory, inputs.x_query[:, :0])


@pytest.mark.parametrize("label", [7.0, -1.0, float("nan")])
@pytest.mark.parametrize("kind", list(LabelKind))
def test_whatever_stands_in_padded_labels_does_not_matter(kind: LabelKind, label: float) -> None:
    """5.7: a class that does not exist, or NaN, in a row that is padding."""
    network, inputs = specimen_network(kind), specimen_inputs(kind)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 5:] = False
    padded = dataclasses.replace(inputs, context_mask=mask)
    odd = dataclasses.replace(padded, y_context=torch.where(mask, inputs.y_context, label))
    assert torch.equal(values(network(odd)), values(network(padded)))


@pytest.mark.parametrize("content", [float("inf"), float("nan"), 1e38])
@pytest.mark.parametrize("path", list(AttentionPath))
def test_whatever_stands_in_padded_rows_of_the_icl_stage_does_not_matter(path: AttentionPath, content: float) -> None:
    """5.7: a weight of 0 times infinity is NaN, so padded rows are cleared; padded queries come out as 0."""
    stage = ICLTransformer(LabelKind.CLASSIFICATION, ICLConfig(width=16, num_blocks=2))
    redraw(stage)
    stage.path = path
    generator = torch.Generator().manual_seed(0)
    context, query = (torch.randn(1, rows, 16, generator=generator) for rows in (4, 3))
    masks = torch.tensor([[True, True, True, False]]), torch.tensor([[True, True, False]])
    labels = torch.tensor([[0.0, 1.0, 2.0, 0.0]])
    clean = stage(context, labels, query, *masks)
    context[:, 3], query[:, 2] = content, content
    odd = stage(context, labels, query, *masks)
    assert torch.equal(odd[1], clean[1]) and (odd[1][:, 2] == 0).all()
    assert torch.equal(odd[0][:, :3], clean[0][:, :3])


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, torch.zeros(1, 0, 16), "the context has 0 rows"),
        (2, torch.zeros(1, 0, 16), "the query has 0 rows"),
        (3, torch.ones(1, 4).bool(), r"context_mask has shape \(1, 4\): give \(1, 3\)"),
        (3, torch.ones(1, 3), "context_mask has dtype torch.float32"),
        (3, torch.zeros(1, 3).bool(), "context_mask hides all rows of table 0"),
        (4, torch.ones(1, 3).bool(), r"query_mask has shape \(1, 3\): give \(1, 2\)"),
    ],
)
def test_the_icl_stage_refuses_the_same(position: int, value: Tensor, message: str) -> None:
    """5.8: also where it is called by itself, with the course's interface."""
    stage = ICLTransformer(LabelKind.CLASSIFICATION, ICLConfig(width=16, num_blocks=1))
    parts: list[Tensor | None] = [torch.zeros(1, 3, 16), torch.zeros(1, 3), torch.zeros(1, 2, 16), None, None]
    stage(*parts)
    parts[position] = value
    with pytest.raises(ValueError, match=message):
        stage(*parts)


def test_what_is_legal_passes() -> None:
    """Control: the checks let legal input through."""
    check_rows(1, 1)
    check_mask("query_mask", None, shape=(1, 2))
    check_mask("query_mask", torch.zeros(1, 2).bool(), shape=(1, 2))
    check_context_mask(torch.tensor([[True, False]]), shape=(1, 2))
    check_labels(torch.tensor([[0.0, 2.0]]), 3)
    check_labels(torch.zeros(0), 0)
