"""Random draws for whole batches of tasks from one explicit generator, and the tensor moves that families share.

Families work on tensors laid out `[B, C, R]` (rows last), so that one column of one task is contiguous and different
columns of different tasks can be treated differently by indexing the flat list of B·C columns.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Shape = Sequence[int]


class Draws:
    """A seeded source of random tensors.

    Args:
        seed: 0 … 2^63 − 1; equal seeds give equal tensors on machines with the same CPU features.
        device: where every tensor is made. A GPU draws from a generator of its own kind: other tasks of the same prior.
    """

    def __init__(self, seed: int, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def arange(self, stop: int) -> torch.Tensor:
        """int64 0 … stop − 1."""
        return torch.arange(stop, device=self.device)

    def tensor(self, values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Constants."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def full(self, shape: Shape, value: float, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        """One constant everywhere."""
        return torch.full(tuple(shape), value, dtype=dtype, device=self.device)

    def uniform(self, shape: Shape, *, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Uniform on [low, high)."""
        return self._uniform(shape).mul_(high - low).add_(low)

    def log_uniform(self, shape: Shape, *, low: float, high: float) -> torch.Tensor:
        """exp of a uniform between log low and log high."""
        return self.uniform(shape, low=math.log(low), high=math.log(high)).exp_()

    def normal(self, shape: Shape) -> torch.Tensor:
        """Standard normal."""
        return torch.randn(tuple(shape), generator=self.generator, device=self.device)

    def integers(self, shape: Shape, *, low: int, high: int) -> torch.Tensor:
        """int64, uniform on low … high, both included."""
        return torch.randint(low, high + 1, tuple(shape), generator=self.generator, device=self.device)

    def happens(self, shape: Shape, *, share: float) -> torch.Tensor:
        """bool, True with probability `share`."""
        return self._uniform(shape) < share

    def choice(self, shape: Shape, *, weights: Sequence[float]) -> torch.Tensor:
        """int64 indices into `weights`, drawn in proportion to them."""
        bounds = self.tensor(weights, dtype=torch.float64).cumsum(0)
        spots = self._uniform(shape, torch.float64) * bounds[-1]
        return torch.searchsorted(bounds, spots, right=True).clamp_(max=len(weights) - 1)

    def pick(self, scores: torch.Tensor, *, count: int) -> torch.Tensor:
        """`count` distinct indices per row of `scores` [..., n], in proportion to exp(score) (Gumbel top-k)."""
        return (scores + self.gumbel(scores.shape)).topk(count, dim=-1).indices

    def gumbel(self, shape: Shape) -> torch.Tensor:
        """Standard Gumbel: the largest of scores + Gumbel is a draw in proportion to exp(score)."""
        return self._uniform(shape).clamp_(1e-9, 1 - 1e-7).log_().neg_().log_().neg_()

    def multinomial(self, weights: torch.Tensor, count: int) -> torch.Tensor:
        """int64 [B, count] indices into the rows of `weights` [B, n], in proportion to them, with replacement."""
        return torch.multinomial(weights, count, replacement=True, generator=self.generator)

    def counts(self, shape: Shape, *, low: int, high: torch.Tensor | int) -> torch.Tensor:
        """int64 on low … high (a tensor may give each its own bound), log-uniform: small numbers are common."""
        top = torch.as_tensor(high, dtype=torch.float32, device=self.device).clamp(min=low)
        spread = (top + 1) / low
        return (low * spread ** self.uniform(shape)).floor().long().minimum(top.long())

    def _uniform(self, shape: Shape, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.rand(tuple(shape), generator=self.generator, dtype=dtype, device=self.device)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside: sums do not depend on the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def standardised(values: torch.Tensor) -> torch.Tensor:
    """Mean 0 and variance 1 over the last axis (the rows); a constant becomes 0.

    Rows stay exchangeable: the statistic treats all rows alike, so any split of them into context and query is fair.
    """
    mean = values.mean(-1, keepdim=True)
    centred = values - mean
    noise = mean.square().mul_(1e-9).add_(1e-12)  # of rounding: what varies less is a constant
    variance = centred.square().mean(-1, keepdim=True)
    return centred * (variance > noise) / variance.add_(noise).sqrt_()


def below(counts: torch.Tensor, *, size: int) -> torch.Tensor:
    """bool [..., size]: True at positions smaller than `counts` [...]."""
    return torch.arange(size, device=counts.device) < counts.unsqueeze(-1)


def apply_by_code(
    values: torch.Tensor, codes: torch.Tensor, *, functions: Sequence[Callable[[torch.Tensor], torch.Tensor]]
) -> torch.Tensor:
    """Applies functions[codes[i]] to values[i] for every i.

    Args:
        values: [n, R]; changed in place.
        codes: [n] int64.
        functions: each maps [m, R] to [m, R].
    """
    for code, function in enumerate(functions):
        chosen = (codes == code).nonzero().squeeze(-1)
        if len(chosen):
            values[chosen] = function(values[chosen])
    return values
