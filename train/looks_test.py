"""Tests of the schedule of looks."""

import dataclasses

import pytest
import torch

from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from tools.failure import ExitCode, Failure
from train.looks import Costs, WatchConfig, forward_work, schedule_of
from train.toy import small_network


def _schedule(*, look: float, budget: float = 0.05, validate_every: int = 100) -> tuple[int | None, float]:
    costs = Costs(step=1.0, validation=1.0, look=look)
    found = schedule_of(costs, budget_share=budget, validate_every=validate_every, overhead=3.0)
    return found.every, found.expected_share


def test_a_cheap_look_follows_every_validation_and_a_dear_one_as_few_as_the_budget_pays() -> None:
    every, share = _schedule(look=0.1)
    assert every == 100 and share < 0.05
    every, share = _schedule(look=100.0)
    assert every is not None and every > 1000 and every % 100 == 0
    assert 0.045 < share <= 0.05


@pytest.mark.parametrize(("look", "budget"), [(0.0, 0.05), (1.0, 0.0), (1.0, 0.004)])
def test_there_is_no_look_without_something_to_see_a_budget_or_what_validation_leaves_of_it(
    look: float, budget: float
) -> None:
    every, share = _schedule(look=look, budget=budget)
    assert every is None and share == pytest.approx(1 / 201)


def test_looks_belong_to_steps_and_to_nothing_else() -> None:
    """T11: the same steps, whenever and however often a training is cut and resumed."""
    found = schedule_of(Costs(step=1.0, validation=1.0, look=20.0), budget_share=0.05, validate_every=50, overhead=1.0)
    assert [step for step in range(0, 701, 50) if found.is_due(step)] == [250, 500]


def test_work_counts_every_weight_once_for_a_row_or_for_a_cell() -> None:
    with torch.device("meta"):
        network = Network(small_network(LabelKind.CLASSIFICATION))
    total = sum(parameter.numel() for parameter in network.parameters())
    assert forward_work(network, [(1, 1)]) == total
    assert forward_work(network, [(10, 1), (20, 1)]) == 30 * total


def _work(network: NetworkConfig) -> tuple[float, float]:
    """Multiplications for a row, and for each of its cells."""
    with torch.device("meta"):
        made = Network(network)
    per_cell = forward_work(made, [(1, 2)]) - forward_work(made, [(1, 1)])
    return forward_work(made, [(1, 1)]) - per_cell, per_cell


@pytest.mark.parametrize(
    ("part", "change", "per_row", "per_cell"),
    [
        ("icl", {"num_blocks": 2}, 2 * 2 * 16 + 4 * 16 * 16 + 2 * 16 * 32, 0),
        ("readout", {"num_summaries": 5}, 8 * 16 + 2 * 8, 8),
        ("readout", {"sketch_width": 12}, 12 * 16 + 2 * 12, 8 * 12),
        ("cell", {"num_tokens": 3}, 0, 8),
    ],
    ids=str,
)
def test_what_makes_a_row_and_what_follows_is_counted_once_a_row_and_what_reads_cells_once_a_cell(
    part: str, change: dict[str, int], per_row: int, per_cell: int
) -> None:
    """Cells are 8 wide and rows 16; a sketch costs E·S a cell, and what mixes it into the row D·S a row."""
    small = small_network(LabelKind.CLASSIFICATION)
    plain = dataclasses.replace(small, readout=dataclasses.replace(small.readout, num_summaries=4, sketch_width=0))
    grown = dataclasses.replace(plain, **{part: dataclasses.replace(getattr(plain, part), **change)})
    before, after = _work(plain), _work(grown)
    assert (after[0] - before[0], after[1] - before[1]) == (per_row, per_cell)


@pytest.mark.parametrize(
    ("field", "value"), [("budget_share", 1.0), ("budget_share", -0.1), ("num_tables", -1), ("max_rows", 31)]
)
def test_what_is_no_share_or_number_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(Failure) as caught:
        WatchConfig(**{field: value})
    assert caught.value.code is ExitCode.BAD_FLAG
    assert f"watch.{field} is {value}" in caught.value.message
