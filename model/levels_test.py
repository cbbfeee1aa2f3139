"""Levels of quantiles, and the loss that finds them."""

import math

import pytest
import torch

from model.levels import check_levels, pinball_losses, tail_level
from tools.failure import BadInput, ExitCode


@pytest.mark.parametrize("level", [0.0, 1.0, -1e-9, 2.0, math.nan, math.inf])
def test_a_level_that_is_not_inside_0_and_1_is_refused_by_name(level: float) -> None:
    """Bad input: a ValueError that names argument, value and what is allowed."""
    for call in (lambda: check_levels("taus", torch.tensor([0.5, level])), lambda: tail_level(level)):
        with pytest.raises(ValueError, match=rf"(taus|level) holds {level:g}: give levels inside \(0, 1\)") as caught:
            call()
        assert isinstance(caught.value, BadInput) and caught.value.code is ExitCode.BAD_LEVEL


def test_levels_inside_pass_and_so_do_none_at_all() -> None:
    """A forecast may be asked for its mean alone."""
    check_levels("taus", torch.tensor([5e-324, 0.5, 1 - 1e-16], dtype=torch.float64))
    check_levels("taus", torch.zeros(0))
    assert tail_level(0.9) == pytest.approx(0.05)


def test_pinball_losses_weigh_both_sides_by_the_level() -> None:
    """6.10: τ per unit below the answer and 1 − τ per unit above it; shape [B, M, S]."""
    levels = torch.tensor([0.1, 0.5], dtype=torch.float64)
    found = pinball_losses(torch.tensor([[[1.0, 1.0]]]).double(), torch.tensor([[3.0]]).double(), levels=levels)
    assert found.tolist() == [[[pytest.approx(0.2), 1.0]]]
    found = pinball_losses(torch.tensor([[[1.0, 1.0]]]).double(), torch.tensor([[-1.0]]).double(), levels=levels)
    assert found.tolist() == [[[pytest.approx(1.8), 1.0]]]
