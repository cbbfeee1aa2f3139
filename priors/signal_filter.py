"""Is there signal in a task? Random oblivious trees with leave-one-out leaf means, for a whole batch of tasks at once.

A task whose answers cannot be told from its features, at the rows it has, teaches a network nothing but the constant.
Extra trees with out-of-bag predictions find such tasks, at 50 to 200 ms a task; this does the same in a thousandth of
the time: a few dozen random questions about random columns, trees that each ask a few of them in the same order on
every path, and for each row the mean of all other rows in its leaves. Rows are compared as they come: categories by
code, missing cells as an answer of their own. `//priors:calibrate_filter` compares the verdicts with extra trees.
"""

import dataclasses
import math

import torch

from priors.draws import Draws, below
from priors.task import ColumnKind
from tools.failure import BadInput, ExitCode

_STEPS = 256  # of a regression target: sums of such numbers are exact in any order
_LEAST_SPREAD = 0.0064  # of a product of answers: below, few rows decide (answers of half and half have 1/16)
_PAIR_DISCOUNT = 1.5  # so that shuffled answers pass by a pair about as often as by trees


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignalFilterConfig:
    """Which tasks are kept."""

    enabled: bool = True
    """Whether tasks without signal are dropped."""
    threshold: float = 1.6
    """Least strength of a task that is kept: standard errors by which predictions beat the constant."""
    questions: int = 48
    """Random questions that the trees of a task choose from."""
    trees: int = 32
    """Trees of a task."""
    depth: int = 5
    """Questions of a tree, 1 to 8."""
    max_rows: int = 256
    """Most rows that are looked at: the first ones, since rows are exchangeable."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signal:
    """Args: strength [B] float32, in standard errors; passed [B] bool, True where the task is to be kept."""

    strength: torch.Tensor
    passed: torch.Tensor


def measure_signal(
    draws: Draws,
    config: SignalFilterConfig,
    *,
    x: torch.Tensor,
    y: torch.Tensor,
    column_kinds: torch.Tensor,
    num_classes: torch.Tensor,
) -> Signal:
    """Measures by how much trees beat the constant in each of B tasks.

    Args:
        draws: the random source of questions and trees, on the device of the tensors.
        config: the criterion; where it is not `enabled`, all tasks pass, their strength is NaN and nothing is drawn.
        x: [B, C, R] features; NaN is missing, ±inf is legal, ordinals and categories are codes.
        y: [B, R] class ids 0 … K−1, or finite regression targets.
        column_kinds: [B, C] of `ColumnKind`.
        num_classes: [B] K, or 0 for regression.

    Returns:
        The strength is mean ÷ standard error over rows of (error of the constant − error of the trees), both left out
        of their own row; the error is the squared one, of class shares (Brier) or of the target clipped to 4
        standard deviations. Two columns that tell only together (parity) are looked for as well, and count where they
        are the stronger evidence.

    Raises:
        BadInput: BAD_FLAG, for numbers that no tree can be made of.
    """
    check_filter(config)
    if not config.enabled:
        return Signal(strength=draws.full((len(x),), math.nan), passed=draws.full((len(x),), 1, dtype=torch.bool))
    x, y = x[..., : config.max_rows], y[:, : config.max_rows]
    shares = _Shares.of(y, num_classes=num_classes)
    answers = _answers(draws, config, x=x, column_kinds=column_kinds)
    totals = _totals(_leaves(draws, config, answers), shares, leaves=2**config.depth)
    by_trees = _gain(totals, shares=shares, trees=config.trees)
    strength = by_trees.maximum(_best_pair(draws, answers, shares=shares))
    return Signal(strength=strength, passed=strength >= config.threshold)


def check_filter(config: SignalFilterConfig) -> None:
    """Refuses numbers that no tree can be made of.

    Raises:
        BadInput: BAD_FLAG, naming the flag, its value and what is possible.
    """
    for name, value, least, most in (
        ("trees", config.trees, 1, 1024),
        ("depth", config.depth, 1, 8),
        ("questions", config.questions, config.depth, 1024),
        ("max-rows", config.max_rows, 16, 65_536),
    ):
        if not least <= value <= most:
            raise BadInput(ExitCode.BAD_FLAG, f"--filter.{name} {value} is impossible: give {least} to {most}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shares:
    """What each row adds to its leaves: `weight` [B, R] to `channel` [B, R], and 1 − weight to channel 0.

    A class is a whole member of its channel, a regression target between −4 and 4 deviations a partial one of channel
    1, so that squared errors of the target are those of the shares but for a factor.
    """

    channel: torch.Tensor
    weight: torch.Tensor
    dense: torch.Tensor  # [B, R, K]
    channels: torch.Tensor  # [B] how many of the K are the task's
    partial: bool

    @classmethod
    def of(cls, y: torch.Tensor, *, num_classes: torch.Tensor) -> "_Shares":
        is_class = (num_classes > 0).unsqueeze(-1)
        centred = (y - y[:, :1]).double()
        centred = centred - centred.mean(-1, keepdim=True)
        deviation = centred.square().mean(-1, keepdim=True).sqrt().add(1e-300)
        part = (centred / deviation).clamp(-4, 4).add(4).mul(_STEPS / 8).round().div(_STEPS).float()
        channel = torch.where(is_class, y, 1.0).int()
        weight = torch.where(is_class, 1.0, part)
        size = max(2, int(num_classes.max()))
        dense = torch.zeros((*y.shape, size), device=y.device).scatter_(
            2, channel.unsqueeze(-1).long(), weight.unsqueeze(-1)
        )
        dense[..., 0] += 1 - weight
        return cls(
            channel=channel,
            weight=weight,
            dense=dense,
            channels=num_classes.clamp(min=2),
            partial=bool((num_classes == 0).any()),
        )


def _answers(draws: Draws, config: SignalFilterConfig, *, x: torch.Tensor, column_kinds: torch.Tensor) -> torch.Tensor:
    """[B, Q, R] uint8 0 or 1: is the cell above (or not below) the middle of three random rows' cells?

    Half of the questions about categories ask for that one level. All columns are asked about equally often. A missing
    cell is the highest of all, so that a column of many missing cells is asked "is it missing?".
    """
    count, features, rows = x.shape
    size = max(config.questions, features)
    column = draws.uniform((-(-size // features), features)).argsort(-1).view(-1)[:size]
    cells = x.nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf).index_select(1, column)
    border = cells.gather(2, draws.integers((count, size, 3), low=0, high=rows - 1)).median(-1, keepdim=True).values
    half = draws.happens(border.shape, share=0.5)
    level = half & (column_kinds.index_select(1, column) == ColumnKind.CATEGORY).unsqueeze(-1)
    low = torch.where(half, border.nextafter(draws.full((), -math.inf)), border)
    high = torch.where(level, border, math.inf)
    return (cells > low).logical_and_(cells <= high).view(torch.uint8)


def _leaves(draws: Draws, config: SignalFilterConfig, answers: torch.Tensor) -> torch.Tensor:
    """[B, R, T] uint8, the leaf 0 … 2^depth − 1 of each row in each tree of distinct random questions.

    Trees choose among questions by number, alike in all tasks: what a question is differs between tasks.
    """
    asked = draws.uniform((config.trees, answers.shape[1])).topk(config.depth, dim=-1).indices
    leaf = answers.index_select(1, asked[:, 0])
    for level in range(1, config.depth):
        leaf.add_(answers.index_select(1, asked[:, level]), alpha=2**level)
    return leaf.transpose(1, 2).contiguous()


def _totals(leaf: torch.Tensor, shares: _Shares, *, leaves: int) -> torch.Tensor:
    """[B, R, K] the shares of all rows in a row's leaves, summed over trees."""
    count, rows, trees = leaf.shape
    size = shares.dense.shape[-1]
    first = torch.arange(0, count * trees * leaves, leaves, dtype=torch.int32, device=leaf.device)
    index = leaf.int().add_(first.view(count, 1, trees))
    table = torch.zeros(count * trees * leaves * size, device=leaf.device)
    spot = torch.add(shares.channel.unsqueeze(-1), index, alpha=size)
    table.scatter_add_(0, spot.view(-1).long(), shares.weight.unsqueeze(-1).expand(leaf.shape).reshape(-1))
    if shares.partial:
        rest = (1 - shares.weight).unsqueeze(-1).expand(leaf.shape)
        table.scatter_add_(0, index.view(-1).long().mul_(size), rest.reshape(-1))
    bags = torch.nn.functional.embedding_bag(index.view(-1, trees), table.view(-1, size), mode="sum")
    return bags.view(count, rows, size)


def _gain(totals: torch.Tensor, *, shares: _Shares, trees: int) -> torch.Tensor:
    """[B] mean ÷ standard error of the gain over the constant; each leaf counts one more row of average answer."""
    own = shares.dense
    rows = own.shape[1]
    constant = (own.sum(1, keepdim=True) - own) / (rows - 1)
    others = totals + trees * (constant - own)
    predicted = others / others.sum(-1, keepdim=True)
    gain = (own - constant).square().sum(-1) - (own - predicted).square().sum(-1)
    error = gain.std(-1).div(math.sqrt(rows)).add(1e-9)
    return gain.mean(-1) / error


def _best_pair(draws: Draws, answers: torch.Tensor, *, shares: _Shares) -> torch.Tensor:
    """[B] how much more the products of two answers tell than chance lets the best of so many tell.

    The largest z of n products of independent noise has z² of 2 ln n and a little more. Several classes are first put
    into two heaps at random.
    """
    size, rows = answers.shape[1:]
    own = below(shares.channels, size=shares.dense.shape[-1])
    heap = draws.uniform(own.shape).masked_fill(~own, 2.0).argsort(-1).argsort(-1) % 2
    target = (shares.dense @ heap.unsqueeze(-1).float()).squeeze(-1)
    target = (target - target.mean(-1, keepdim=True)).unsqueeze(1)
    centred = answers.float()
    centred -= centred.mean(-1, keepdim=True)
    product = (centred * target) @ centred.transpose(1, 2)
    squared = centred.square_()
    spread = squared @ squared.transpose(1, 2)
    spread = torch.where(spread < _LEAST_SPREAD * rows, math.inf, spread)
    evidence = product.square_().div_(spread).amax((1, 2)) / target.square().mean((1, 2)).add(1e-9)
    excess = evidence - 2 * math.log(size * (size + 1) / 2) - _PAIR_DISCOUNT
    return excess.abs().sqrt() * excess.sign()
