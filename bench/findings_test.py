"""Tests of findings and budgets."""

import math
import time

from bench.findings import Finding, TimeBudget


def test_a_finding_passes_within_its_bound_and_not_as_nan() -> None:
    assert Finding(name="error", value=0.1, bound=0.1).passed is True
    assert Finding(name="error", value=0.2, bound=0.1).passed is False
    assert Finding(name="error", value=math.nan, bound=0.1).passed is False
    assert Finding(name="rate", value=5.0).passed is None
    assert Finding(name="rate", value=5.0, facts={"batch": 2}).record()["facts"] == {"batch": 2}


def test_a_budget_allows_the_first_measurement_and_none_after_its_end() -> None:
    spent = TimeBudget(0.0)
    assert spent.allows_more() and not spent.allows_more() and spent.left <= 0 and spent.share == 1.0
    ample = TimeBudget(1000.0)
    time.sleep(0.01)
    assert ample.allows_more() and ample.allows_more() and 999 < ample.left < 1000 and 0 < ample.share < 0.01
