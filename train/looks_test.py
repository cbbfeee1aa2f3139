"""Tests of the schedule of looks."""

import pytest
import torch

from model.label_injection import LabelKind
from model.network import Network
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
    wider = forward_work(network, [(1, 2)])
    assert total < wider < 2 * total


@pytest.mark.parametrize(
    ("field", "value"), [("budget_share", 1.0), ("budget_share", -0.1), ("num_tables", -1), ("max_rows", 31)]
)
def test_what_is_no_share_or_number_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(Failure) as caught:
        WatchConfig(**{field: value})
    assert caught.value.code is ExitCode.BAD_FLAG
    assert f"watch.{field} is {value}" in caught.value.message
