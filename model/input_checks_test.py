"""What the network, its ICL stage and its heads refuse: one line with the argument, the value and what is allowed."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from model.icl_transformer import ICLConfig, ICLTransformer
from model.input_checks import check_context_mask, check_labels, check_mask, check_rows
from model.label_injection import LabelKind
from model.specimens import specimen_inputs, specimen_network
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
        "context has 0 rows: give",
        ExitCode.TABLE_EMPTY,
    ),
    ({"x_query": torch.zeros(2, 0, 5)}, "query has 0 rows: give one or more", ExitCode.TABLE_EMPTY),
    ({"context_mask": torch.ones(2, 8).bool()}, r"context_mask has shape \(2, 8\): give \(2, 9\)", ExitCode.BAD_MASK),
    ({"context_mask": torch.ones(2, 9)}, "context_mask has dtype torch.float32: give torch.bool", ExitCode.BAD_MASK),
    ({"query_mask": torch.ones(2, 9).bool()}, r"query_mask has shape \(2, 9\): give \(2, 4\)", ExitCode.BAD_MASK),
    ({"query_mask": torch.ones(2, 4).int()}, "query_mask has dtype torch.int32", ExitCode.BAD_MASK),
    ({"label_mask": torch.ones(9).bool()}, r"label_mask has shape \(9,\)", ExitCode.BAD_MASK),
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
