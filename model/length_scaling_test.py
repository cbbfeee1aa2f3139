"""Length scaling: a fresh one does nothing, and its factor is computed in full precision whatever the weights are."""

import pytest
import torch

from model.length_scaling import QASSMax
from model.specimens import distance, redraw


def _query(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0)).to(dtype)


def _steep() -> QASSMax:
    """A scaling whose factor is 64 log n - 528: about 3 at 4,000 rows."""
    scaling = QASSMax(num_heads=3, head_width=4)
    with torch.no_grad():
        first, last = scaling.base[0], scaling.base[2]
        first.weight.fill_(64.0), first.bias.fill_(-528.0)
        last.weight.zero_(), last.bias.zero_()
        last.weight[:, 0] = 1.0
    return scaling


def test_a_fresh_one_leaves_queries_as_they_are() -> None:
    """Whatever the length."""
    query = _query()
    assert torch.equal(QASSMax(num_heads=3, head_width=4)(query, torch.tensor([1, 5000])), query)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_lengths_that_half_precision_cannot_tell_apart_scale_differently(dtype: torch.dtype) -> None:
    """Log 4000 and log 4007 are one number in bf16; weights stored in it do not round them."""
    assert torch.tensor(4000.0).log().bfloat16() == torch.tensor(4007.0).log().bfloat16()
    scaling, query = _steep().to(dtype), _query()
    factors = [scaling(query, torch.tensor([rows])).detach() / query for rows in (4000, 4007)]
    for factor, rows in zip(factors, (4000.0, 4007.0), strict=True):
        exact = torch.nn.functional.gelu(64 * torch.tensor(rows).double().log() - 528)
        assert distance(factor.double(), exact.expand_as(factor)) < 1e-3
    assert float((factors[1] - factors[0]).min()) > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_taken_as_they_are_and_the_result_is_cast_once(dtype: torch.dtype) -> None:
    """Equal to the same rounded weights in fp32, and of the query's type."""
    scaling, query, count = QASSMax(num_heads=3, head_width=4), _query(dtype), torch.tensor([7, 90_000])
    redraw(scaling)
    low = scaling.to(dtype)(query, count)
    exact = scaling.float()(query.float(), count)
    assert low.dtype is dtype
    assert torch.equal(low, exact.to(dtype))


def test_autocast_does_not_reach_the_factor() -> None:
    """Log n and tanh stay in fp32 inside a bf16 forward pass."""
    scaling, query = _steep(), _query()
    outside = scaling(query, torch.tensor([4003]))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(scaling(query, torch.tensor([4003])), outside)
