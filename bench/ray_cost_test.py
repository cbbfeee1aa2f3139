"""Tests of bench/ray_cost.py: a short round on a real Ray instance."""

import pytest

from bench.ray_cost import LEAST_OF_TWO, LEAST_ON_RAY, measure_overhead
from train.toy_job import toy_pretraining

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings


def test_each_side_trains_the_same_steps_and_the_rows_name_their_goals() -> None:
    """T8, but for its goals: a busy machine says nothing about Ray, so no ratio is judged here, only that it is told.

    It fails where a side does not train all its steps, a rate is missing, or the rows name other goals.
    """
    ((one, two),) = measure_overhead(num_steps=30, rounds=1, config=toy_pretraining())
    assert (one.goal, two.goal) == (f"≥ {LEAST_ON_RAY} ×", f"≥ {LEAST_OF_TWO} ×")
    assert one.ours == two.peer > 0 and one.peer is not None and one.peer > 0 and two.ours > 0
    assert "2 rates of 10 steps" in one.note
