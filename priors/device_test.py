"""Tests that the prior runs on a GPU by the same code: no tensor is made without saying where.

No GPU is needed: what would fail there is a constant made on the CPU and mixed with tensors elsewhere, and every
function of torch that makes tensors from nothing is watched while tasks are drawn.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from priors.draws import Draws
from priors.families import Family
from priors.mixture import PriorConfig, draw_group
from priors.task import TaskKind

_FACTORIES = {
    torch.arange,
    torch.as_tensor,
    torch.empty,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.randperm,
    torch.tensor,
    torch.zeros,
}


class Watch(TorchFunctionMode):
    """Collects the places where a tensor is made without a device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Looks at the call, then makes it."""
        if func in _FACTORIES and (kwargs or {}).get("device") is None:
            frame = sys._getframe(1)
            self.found.add(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {func.__name__}")
        return func(*args, **(kwargs or {}))


def cases() -> Iterator[tuple[Family, TaskKind]]:
    """Every family with every kind of task that it makes."""
    return ((family, kind) for family in Family for kind in TaskKind if family.makes(kind) and not family.exact)


@pytest.mark.parametrize(("family", "kind"), list(cases()))
def test_every_tensor_of_a_family_says_where_it_is_made(family: Family, kind: TaskKind) -> None:
    config = PriorConfig(kind=kind, only=(family,))
    with Watch() as watch:
        for seed in range(3):
            draw_group(config, seed=seed, rows=64, features=7, count=24)
    assert not watch.found, sorted(watch.found)


def test_the_watch_sees_a_constant_without_a_device() -> None:
    with Watch() as watch:
        Draws(0).uniform((3,)) + torch.ones(3)
        torch.zeros(3, device="cpu")
    assert len(watch.found) == 1 and "ones" in next(iter(watch.found))


def test_draws_live_on_their_device() -> None:
    draws = Draws(0, device="cpu")
    made = [
        draws.arange(2),
        draws.tensor([1.0]),
        draws.full((2,), 1.0),
        draws.normal((2,)),
        draws.choice((2,), weights=(1, 1)),
    ]
    assert {tensor.device for tensor in made} == {draws.device}
