"""Tests of the optimizer's config and of the schedule."""

import math
import re
from typing import Any

import pytest

from tools.failure import ExitCode, Failure
from train.optimizer_config import Decay, OptimizerConfig, schedule


def test_schedule_rises_over_the_warmup_and_falls_to_the_final_factor() -> None:
    """1.5: linear warm-up over 1 to 5 % of the steps, then decay."""
    config = OptimizerConfig(warmup_share=0.05, decay_share=0.5, final_factor=0.1)
    factors = [schedule(step, num_steps=100, config=config) for step in range(100)]
    assert factors[0] == 0.2
    assert factors[5:50] == [1.0] * 45
    assert all(later < earlier for earlier, later in zip(factors[50:], factors[51:], strict=False))
    assert math.isclose(factors[99], 0.1 + 0.9 / 50)
    assert 0.01 <= OptimizerConfig().warmup_share <= 0.05


def test_cosine_and_inverse_square_root_decays_exist() -> None:
    """1.5: both fall from the peak; cosine to the final factor, inverse square root as 1/√step."""
    cosine = OptimizerConfig(decay=Decay.COSINE, warmup_share=0.05, decay_share=0.95, final_factor=0.1)
    factors = [schedule(step, num_steps=100, config=cosine) for step in range(101)]
    assert factors[5] == pytest.approx(1.0) and factors[100] == pytest.approx(0.1)
    assert factors[52] == pytest.approx(0.1 + 0.9 * (0.5 - 0.5 * math.cos(math.pi * 48 / 95)))
    root = OptimizerConfig(decay=Decay.INVERSE_SQRT, warmup_share=0.04)
    factors = [schedule(step, num_steps=100, config=root) for step in range(100)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[15] == pytest.approx(0.5) and factors[63] == pytest.approx(0.25)


@pytest.mark.parametrize(("steps", "last"), [(10, 0.216), (100, 0.0396), (1000, 0.02196)])
def test_the_last_step_stands_one_step_above_the_final_factor(steps: int, last: float) -> None:
    """1.5: with the default of .02 over half of the steps; the factor is met one step after the last."""
    config = OptimizerConfig()
    assert schedule(steps - 1, num_steps=steps, config=config) == pytest.approx(last, rel=1e-12)
    assert schedule(steps, num_steps=steps, config=config) == pytest.approx(config.final_factor, rel=1e-12)


def test_the_inverse_square_root_has_no_final_factor_and_no_share() -> None:
    """1.5: as its fields say."""
    made = [OptimizerConfig(decay=Decay.INVERSE_SQRT, decay_share=a, final_factor=b) for a, b in ((0.5, 0.02), (1, 1))]
    found = [[schedule(step, num_steps=100, config=config) for step in range(100)] for config in made]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("field", "values", "mend"),
    [
        ("betas", [(1.0, 1.0), (0.9, 1.0), (-0.1, 0.9), (math.nan, 0.9)], "give two numbers of 0 or more, below 1"),
        ("warmup_share", [5.0, -0.1, math.nan], "give a number from 0 to 1"),
        ("decay_share", [-1.0, 1.1], "give a number from 0 to 1"),
        ("final_factor", [-0.1, 2.0], "give a number from 0 to 1"),
        ("clip_norm", [-1.0, 0.0, math.nan], "give a number above 0"),
        ("matrix_lr", [math.nan, math.inf, 0.0, -1e-3], "give a number above 0"),
        ("vector_lr", [math.nan, -1e-3], "give a number above 0"),
        ("matrix_momentum", [1.0, -0.5, math.nan], "give 0 or more, below 1"),
        ("weight_decay", [-0.1, math.nan, math.inf], "give 0 or more"),
    ],
)
def test_rates_and_shares_that_mean_nothing_are_refused(field: str, values: list[Any], mend: str) -> None:
    """One line names field, value and what is allowed."""
    for value in values:
        with pytest.raises(Failure, match=f"^{re.escape(f'optimizer.{field} is {value}: {mend}')}$") as caught:
            OptimizerConfig(**{field: value})
        assert caught.value.code is ExitCode.BAD_FLAG


def test_without_warm_up_and_fall_the_rate_stays_at_its_peak() -> None:
    config = OptimizerConfig(warmup_share=0.0, decay_share=0.0, final_factor=1.0)
    assert [schedule(step, num_steps=9, config=config) for step in range(9)] == [1.0] * 9
