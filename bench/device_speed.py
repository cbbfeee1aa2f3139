"""How fast a device trains, draws tasks and is fed: rates beside what its matrix units can do.

FLOPs are counted, not guessed (see `dry_step`); a share of the peak (MFU) is over the published dense bf16 rate of the
chip where its name is known, and over the rate of a large bf16 matrix product measured in the same run.
"""

import dataclasses
import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from bench.device_correctness import prior_batch, random_network
from bench.findings import Finding, TimeBudget
from model import presets
from model.label_injection import LabelKind
from model.network import NetworkConfig
from priors.mixture import PriorConfig, sample_group
from priors.task import TaskBatch, TaskKind
from train.compilation import can_compile, compile_blocks
from train.device_feed import DeviceFeed, staged
from train.dry_step import TableShape, dry_step
from train.optimizer_config import OptimizerConfig
from train.optimizers import make_optimizer
from train.step import compute_dtype, training_step

# Published dense bf16 rates in FLOP/s, the more special name first.
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10": 125e12,
    "L4": 121e12,
    "RTX 5090": 209e12,
    "RTX 4090": 165e12,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """What is measured.

    Args:
        presets: of networks.
        shapes: rows and features of tables, half of the rows as context.
        batches: tasks of a step, in ascending order.
        num_steps: timed steps, of which the median counts.
        gemm: size of the matrix product.
        draws: tasks that are drawn together.
    """

    presets: tuple[str, ...] = ("small", "base")
    shapes: tuple[tuple[int, int], ...] = ((256, 20), (1024, 50))
    batches: tuple[int, ...] = (32, 64, 128, 256, 512)
    num_steps: int = 8
    gemm: int = 8192
    draws: tuple[int, ...] = (256, 1024)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceCase:
    """A training step: which network, tables of which size, how many of them, and whether blocks are compiled."""

    preset: str
    kind: LabelKind
    rows: int
    features: int
    batch: int
    is_compiled: bool = False

    def __str__(self) -> str:
        mode = "compiled" if self.is_compiled else "plain"
        return f"{self.preset} {self.kind}, {self.rows:,} × {self.features}, batch {self.batch}, {mode}"

    @property
    def network(self) -> NetworkConfig:
        """The network's config."""
        return NETWORKS[self.preset](self.kind)

    @property
    def shape(self) -> TableShape:
        """Half of the rows are context."""
        context = self.rows // 2
        return TableShape(tasks=self.batch, context=context, queries=self.rows - context, features=self.features)


NETWORKS = {"tiny": presets.tiny, "small": presets.small, "base": presets.base, "large": presets.large}
_COMPILE_SECONDS = 40.0  # a kind of block is compiled in some seconds, forward and backward
QUICK = SpeedPlan(presets=("tiny",), shapes=((64, 5),), batches=(2, 4), num_steps=2, gemm=256, draws=(16,))


def published_peak(device: torch.device) -> float | None:
    """FLOP/s of dense bf16 products, or None for a chip that is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rate for known, rate in PEAKS.items() if known in name), None)


def gemm_rate(device: torch.device, plan: SpeedPlan) -> float:
    """FLOP/s of a large bf16 matrix product, measured."""
    left, right = (torch.randn(plan.gemm, plan.gemm, device=device).bfloat16() for _ in range(2))
    seconds = statistics.median(_times(lambda: left @ right, device=device, repeats=10))
    return 2 * plan.gemm**3 / seconds


def training_speed(device: torch.device, budget: TimeBudget, *, plan: SpeedPlan, rate: float) -> Iterator[Finding]:
    """Tasks per second of training steps over batch sizes, plain; then compiled at the fastest batch size.

    Args:
        device: on which.
        budget: when to stop.
        plan: what is measured.
        rate: FLOP/s that MFU is a share of.
    """
    for (rows, features), preset, kind in itertools.product(plan.shapes, plan.presets, LabelKind):
        best, fastest = None, 0.0
        for size in plan.batches:
            if not budget.allows_more():
                return
            case = DeviceCase(preset=preset, kind=kind, rows=rows, features=features, batch=size)
            finding = _trained(case, device, plan=plan, rate=rate)
            yield finding
            if not finding.value:
                break
            if finding.value > fastest:
                best, fastest = case, finding.value
        if best and device.type == "cuda" and can_compile() and budget.left > _COMPILE_SECONDS:
            yield _trained(dataclasses.replace(best, is_compiled=True), device, plan=plan, rate=rate)


def drawing_speed(device: torch.device, budget: TimeBudget, *, plan: SpeedPlan) -> Iterator[Finding]:
    """Tasks per second that are drawn from the default prior on the device."""
    for kind in TaskKind:
        for count in plan.draws:
            if not budget.allows_more():
                return
            rows, features = plan.shapes[0]
            draw = functools.partial(_draw, kind, itertools.count(), rows=rows, features=features, count=count)
            work = functools.partial(draw, device=str(device))
            seconds = statistics.median(_times(work, device=device, repeats=plan.num_steps))
            name = f"{kind} tasks drawn, {rows:,} × {features}, {count} together"
            yield Finding(name=name, value=count / seconds, unit="tasks/s")


def feeding_speed(device: torch.device, budget: TimeBudget, *, plan: SpeedPlan) -> Iterator[Finding]:
    """Training on batches that lie in host memory: copied when they are needed, and staged ahead."""
    (rows, features), size = plan.shapes[0], plan.batches[min(2, len(plan.batches) - 1)]
    network = random_network(NETWORKS[plan.presets[-1]](LabelKind.CLASSIFICATION)).to(device)
    optimizer, dtype = make_optimizer(network, OptimizerConfig()), compute_dtype(device)
    host = [table_batch(network.config, rows=rows, features=features, size=size, seed=seed) for seed in range(4)]
    num_steps = 4 * plan.num_steps
    for name, is_staged in (("copied when needed", False), ("staged ahead", True)):
        if not budget.allows_more():
            return
        with DeviceFeed(lambda step: host[step % len(host)], device=device, num_steps=num_steps + 2) as feed:
            source = feed.batch if is_staged else lambda step: host[step % len(host)]
            for step in range(num_steps + 2):
                if step == 2:
                    _settle(device)
                    start = time.perf_counter()
                training_step(network, optimizer, batch=source(step), factor=0.01, dtype=dtype)
            _settle(device)
        value = num_steps * size / (time.perf_counter() - start)
        yield Finding(name=f"batches of {size} in host memory, {name}", value=value, unit="tasks/s")


def _draw(kind: TaskKind, seeds: Iterator[int], *, rows: int, features: int, count: int, device: str) -> None:
    prior = PriorConfig(kind=kind)
    sample_group(prior, seed=next(seeds), rows=rows, features=features, count=count, device=device)


def table_batch(config: NetworkConfig, *, rows: int, features: int, size: int, seed: int = 0) -> TaskBatch:
    """`size` tables of one shape: a few tasks of the prior, repeated (what is in them costs nothing)."""
    few = prior_batch(TaskKind(config.kind.value), rows=rows, features=features, count=min(size, 8), seed=seed)
    again = np.resize(np.arange(len(few.families)), size)
    fields = {field.name: getattr(few, field.name) for field in dataclasses.fields(few)}
    arrays = {name: value[again] for name, value in fields.items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(few, **arrays, families=tuple(few.families[index] for index in again))


def _trained(case: DeviceCase, device: torch.device, *, plan: SpeedPlan, rate: float) -> Finding:
    """The rate of one case; 0 where it does not fit into memory."""
    facts = {**dataclasses.asdict(case), "kind": case.kind.value}
    try:
        times, peak_bytes = step_times(case, device, repeats=plan.num_steps)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return Finding(name=str(case), value=0.0, unit="tasks/s", facts={**facts, "out_of_memory": True})
    flops, seconds = dry_step(case.network, case.shape).flops, statistics.median(times)
    facts |= {"seconds": times, "flops_per_task": flops / case.batch, "mfu": flops / seconds / rate}
    facts["peak_bytes"] = peak_bytes
    return Finding(name=str(case), value=case.batch / seconds, unit="tasks/s", facts=facts)


def step_times(case: DeviceCase, device: torch.device, *, repeats: int) -> tuple[list[float], int]:
    """Seconds of each of `repeats` steps, and the most bytes of memory that were in use (0 on a CPU)."""
    config = case.network
    network = random_network(config).to(device)
    if case.is_compiled:
        compile_blocks(network)
    optimizer, dtype = make_optimizer(network, OptimizerConfig()), compute_dtype(device)
    host = table_batch(config, rows=case.rows, features=case.features, size=case.batch)
    batch = staged(host, lambda tensor: tensor.to(device))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def step() -> None:
        training_step(network, optimizer, batch=batch, factor=0.01, dtype=dtype)

    times = _times(step, device=device, repeats=repeats)
    return times, torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _times(work: Callable[[], object], *, device: torch.device, repeats: int) -> list[float]:
    """Seconds of each of `repeats` runs, each waited for, after two that do not count."""
    times = []
    for number in range(-2, repeats):
        _settle(device)
        start = time.perf_counter()
        work()
        _settle(device)
        if number >= 0:
            times.append(time.perf_counter() - start)
    return times


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
