"""What a prediction costs, over context rows and over query rows: wall-clock time, and floating-point operations.

Seed 1.6: attention makes the cost quadratic in the context in the end; it is linear in the queries. Two ways: `fast`,
one pass over context and queries; cached, where the context is passed through once (`remember`) and queries are then
predicted from it (`predict`), which costs linearly in both. Shapes: N context rows, M query rows.
"""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from model.icl_transformer import AttentionPath
from model.label_injection import LabelKind
from model.network import Network, NetworkInputs
from tools.failure import BadInput, ExitCode

_NUM_FEATURES = 10
_NUM_CLASSES = 3
# The fused kernel of CPUs, which the counter of this torch version does not know.
_FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *a, **b: sdpa_flop(q, k, v)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthConfig:
    """Which sizes are measured, and how often."""

    context_rows: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    """N, ascending, at `fixed_query_rows` query rows."""
    query_rows: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)
    """M, ascending, at `fixed_context_rows` context rows."""
    fixed_context_rows: int = 256
    """N while M grows."""
    fixed_query_rows: int = 64
    """M while N grows."""
    repeats: int = 5
    """Timings of each size, of which the median counts."""
    budget_seconds: float | None = None
    """Sizes that would take longer in all are left out, the largest first; None measures all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A way to predict: what is prepared untimed, and what is measured."""

    name: str
    prepare: Callable[[NetworkInputs], Callable[[], object]]


def growth(network: Network, *, config: GrowthConfig | None = None, with_flops: bool = False) -> dict[str, Any]:
    """Measures the fast path, on one thread, in fp32 on the network's device.

    Args:
        network: in evaluation mode; not changed. Its numbers do not matter, only its sizes.
        config: sizes; the default takes some seconds, or `budget_seconds`.
        with_flops: also count operations, one more pass for each size.

    Returns:
        context_rows and context_seconds, query_rows and query_seconds (lists of equal lengths), fixed_context_rows and
        fixed_query_rows; with_flops adds context_flops and query_flops.

    Raises:
        BadInput: BAD_FLAG for sizes that do not ascend, or are not positive.
    """
    return measured(network, way=fast_way(network), config=config or GrowthConfig(), with_flops=with_flops)


def fast_way(network: Network) -> Way:
    """One pass over context and queries."""
    return Way(name="fast", prepare=lambda inputs: lambda: network(inputs))


def remember_way(network: Network) -> Way:
    """The context alone, kept for later queries."""
    return Way(name="remember", prepare=lambda inputs: lambda: network.remember(inputs))


def predict_way(network: Network) -> Way:
    """Queries, from a context that was passed through before."""

    def prepare(inputs: NetworkInputs) -> Callable[[], object]:
        memory = network.remember(inputs)
        return lambda: network.predict(memory, inputs.x_query)

    return Way(name="predict", prepare=prepare)


@torch.no_grad()
def measured(network: Network, *, way: Way, config: GrowthConfig, with_flops: bool = False) -> dict[str, Any]:
    """One way's cost over N and over M; what `growth` returns."""
    _check(config)
    found: dict[str, Any] = {key: getattr(config, key) for key in ("fixed_context_rows", "fixed_query_rows")}
    plan = {
        "context": [(rows, config.fixed_query_rows) for rows in config.context_rows],
        "query": [(config.fixed_context_rows, rows) for rows in config.query_rows],
    }
    share = None if config.budget_seconds is None else config.budget_seconds / len(plan)
    with _ready(network):
        for axis, (side, sizes) in enumerate(plan.items()):
            stop = None if share is None else time.perf_counter() + share
            rows, seconds, flops = [], [], []
            for size in sizes:
                if not _has_time(rows, seconds, next_rows=size[axis], stop=stop, repeats=config.repeats):
                    break
                run = way.prepare(_inputs(network, *size))
                rows.append(size[axis])
                seconds.append(_median_seconds(run, repeats=config.repeats))
                flops += [count_flops(run)] if with_flops else []
            found |= {f"{side}_rows": rows, f"{side}_seconds": seconds} | ({f"{side}_flops": flops} if flops else {})
    return found


def count_flops(run: Callable[[], object]) -> int:
    """Floating-point operations of matrix products and attention in one call (a multiply-add is 2)."""
    with FlopCounterMode(display=False, custom_mapping=_FUSED) as counter:
        run()
    return counter.get_total_flops()


def slope(rows: Sequence[float], values: Sequence[float], *, last: int = 3) -> float | None:
    """The exponent a of values ~ rows^a: least squares on the logarithms of the last sizes; None below two sizes."""
    if min(len(rows), last) < 2:
        return None
    return round(float(np.polyfit(np.log(rows[-last:]), np.log(values[-last:]), 1)[0]), 6) + 0.0


def _check(config: GrowthConfig) -> None:
    for name in ("context_rows", "query_rows"):
        rows = getattr(config, name)
        if not rows or rows[0] < 1 or list(rows) != sorted(set(rows)):
            raise BadInput(ExitCode.BAD_FLAG, f"{name} is {list(rows)}: give ascending numbers from 1 on")
    for name in ("fixed_context_rows", "fixed_query_rows", "repeats"):
        if getattr(config, name) < 1:
            raise BadInput(ExitCode.BAD_FLAG, f"{name} is {getattr(config, name)}: give 1 or more")


# style: what was measured, and what remains
def _has_time(rows: list[int], seconds: list[float], *, next_rows: int, stop: float | None, repeats: int) -> bool:
    """Whether the next size fits before `stop`, if time grows with the square of the rows (a pessimist's guess)."""
    if stop is None or not seconds:
        return True
    guess = seconds[-1] * (next_rows / rows[-1]) ** 2 * (repeats + 1)
    return time.perf_counter() + guess < stop


def _median_seconds(run: Callable[[], object], *, repeats: int) -> float:
    """Median wall-clock seconds of a call, after one that warms up."""
    run()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def _inputs(network: Network, num_context: int, num_query: int) -> NetworkInputs:
    """One random table of numbers; every class is in its context where it has the rows."""
    generator = torch.Generator().manual_seed(num_context * 1_000_003 + num_query)
    columns = min(_NUM_FEATURES, network.config.max_features)
    classes = 0
    labels = torch.randn(1, num_context, generator=generator)
    if network.config.kind is LabelKind.CLASSIFICATION:
        classes = min(_NUM_CLASSES, network.config.icl.max_classes, num_context)
        labels = (torch.arange(num_context) % classes)[None].float()
    device = next(network.parameters()).device
    return NetworkInputs(
        x_context=torch.randn(1, num_context, columns, generator=generator).to(device),
        y_context=labels.to(device),
        x_query=torch.randn(1, num_query, columns, generator=generator).to(device),
        column_kinds=torch.zeros(1, columns, dtype=torch.int8, device=device),
        num_classes=classes,
    )


@contextlib.contextmanager
def _ready(network: Network) -> Iterator[None]:
    """Sets the fast path, one thread and no gradients (the counter of operations wants none), and puts all back."""
    threads, path = torch.get_num_threads(), network.icl.path
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    torch.set_num_threads(1)
    network.icl.path = AttentionPath.FAST
    network.requires_grad_(False)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        network.icl.path = path
        for weight in trained:
            weight.requires_grad_(True)
