"""What a step of many GPUs loses to the slowest of them, to exchanging gradients, to uneven shares and to failures.

All tasks of a global batch come from one group, so they have one shape, and every GPU has the same work by design. What
remains is simulated from measured step times: each GPU's time is the one that its share should take times a factor
drawn from the measured ones, and the step takes as long as the slowest GPU.
"""

import dataclasses
import json
import math
import pathlib
import statistics
from typing import Any

import numpy as np
import torch

from bench.device_speed import DeviceCase, step_times
from model.label_injection import LabelKind
from tools.failure import ExitCode, Failure
from train.dry_step import dry_step

_MEASURED_SHAPES = ((64, 5), (128, 10), (256, 10), (256, 20))
_REPEATS = 12
_STEPS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimes:
    """How long steps take on one device.

    Args:
        label: where that was measured.
        overhead_seconds: of a step without tasks.
        flops_per_second: of the work beyond that.
        factors: measured times over the median of their kind; their spread is the jitter.
    """

    label: str
    overhead_seconds: float
    flops_per_second: float
    factors: np.ndarray

    @property
    def jitter(self) -> float:
        """Standard deviation of the factors."""
        return float(self.factors.std())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """What gradients travel over.

    Args:
        bytes_per_second: of each GPU, in one direction.
        latency_seconds: of one exchange between neighbours.
    """

    bytes_per_second: float
    latency_seconds: float

    def all_reduce_seconds(self, size: float, *, gpus: int) -> float:
        """2(W − 1)/W of the buffer over a link, the least there is (Thakur et al. 2005), and 2·log₂ W latencies."""
        return 2 * (gpus - 1) / gpus * size / self.bytes_per_second + 2 * math.log2(gpus) * self.latency_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses:
    """Shares of the GPUs' time that training does not use, each of the time that is left by those before it.

    Args:
        uneven: shares of a batch that differ by a task.
        jitter: waiting for the slowest GPU.
        exchange: the all-reduce of the gradients, which nothing hides.
        own_shapes: what waiting would be if every GPU drew its own shape of tables instead; not part of the training.
        step_seconds: mean length of a step.
    """

    uneven: float
    jitter: float
    exchange: float
    own_shapes: float
    step_seconds: float

    @property
    def efficiency(self) -> float:
        """Share of the time that is used."""
        return (1 - self.uneven) * (1 - self.jitter) * (1 - self.exchange)


def simulate(
    times: StepTimes, flops: np.ndarray, *, gpus: int, batch_size: int, gradient_bytes: float, link: Link
) -> Losses:
    """Steps of `gpus` GPUs on one batch each.

    Args:
        times: of one GPU.
        flops: of a task, for each of many drawn shapes.
        gpus: W.
        batch_size: tasks of a global batch, W or more.
        gradient_bytes: what is exchanged.
        link: over what.
    """
    generator = np.random.default_rng(0)
    drawn = generator.choice(flops, _STEPS)
    bounds = np.arange(gpus + 1) * batch_size // gpus
    shares = np.diff(bounds)

    def seconds(tasks: np.ndarray, work: np.ndarray) -> np.ndarray:
        return times.overhead_seconds + tasks * work / times.flops_per_second

    even = seconds(np.float64(batch_size / gpus), drawn).mean()
    uneven = seconds(shares[None, :], drawn[:, None])
    jittered = uneven * generator.choice(times.factors, uneven.shape)
    exchange = link.all_reduce_seconds(gradient_bytes, gpus=gpus)
    slowest, waited = uneven.max(1).mean(), jittered.max(1).mean()
    own = seconds(np.float64(batch_size / gpus), generator.choice(flops, uneven.shape)).max(1).mean()
    return Losses(
        uneven=1 - even / slowest,
        jitter=1 - slowest * times.factors.mean() / waited,
        exchange=exchange / (waited + exchange),
        own_shapes=1 - even / own,
        step_seconds=waited + exchange,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failures:
    """What failures and checkpoints cost.

    Args:
        interval_seconds: between checkpoints that loses least.
        lost_share: of the time: writing checkpoints, steps done again, and starting again.
    """

    interval_seconds: float
    lost_share: float


def failures(*, gpus: int, mtbf_seconds: float, checkpoint_seconds: float, restart_seconds: float) -> Failures:
    """Young's interval τ = √(2δM) (1974), and the loss δ/τ + (τ/2 + R)/M, to first order (Daly 2006).

    Args:
        gpus: that must all be well.
        mtbf_seconds: mean time between failures of one GPU with its share of a machine; M is that over `gpus`.
        checkpoint_seconds: δ, during which training stands.
        restart_seconds: R, from a failure until training goes on.
    """
    mean = mtbf_seconds / gpus
    interval = math.sqrt(2 * checkpoint_seconds * mean)
    lost = checkpoint_seconds / interval + (interval / 2 + restart_seconds) / mean
    return Failures(interval_seconds=interval, lost_share=min(lost, 1.0))


def read_times(path: pathlib.Path) -> StepTimes:
    """Step times of a JSON file that `tools/gpu_check.py` wrote.

    Raises:
        Failure: NOT_FOUND for a file that is not such a report, or holds too few steps.
    """
    try:
        report = json.loads(path.read_bytes())
        found = [finding["facts"] for finding in report["sections"]["speed"]["findings"]]
        label = f"{report['machine']['gpu']}, measured by tools/gpu_check.py on {report['machine']['date'][:10]}"
        measured = [_step_in(facts) for facts in found if facts.get("seconds")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        mend = "give a file that tools/gpu_check.py --json wrote"
        raise Failure(ExitCode.NOT_FOUND, f"--times {path} holds no step times ({error}): {mend}") from error
    if len(measured) < 2:
        mend = "give one whose section `speed` is whole"
        raise Failure(ExitCode.NOT_FOUND, f"--times {path} holds {len(measured)} measured steps: {mend}")
    return _fitted(label, measured)


def _step_in(facts: dict[str, Any]) -> tuple[float, list[float]]:
    """FLOPs and seconds of a finding."""
    flops, seconds = facts["flops_per_task"] * facts["batch"], facts["seconds"]
    for number in (flops, *seconds):
        if not 0 < number < math.inf:
            raise ValueError(f"a step of {flops} FLOPs and {seconds} s")
    return flops, seconds


def measure_times(label: str) -> StepTimes:
    """Steps of `tiny`, measured on one core of this machine: for a look at the method, not at any GPU."""
    measured = []
    for rows, features in _MEASURED_SHAPES:
        case = DeviceCase(preset="tiny", kind=LabelKind.CLASSIFICATION, rows=rows, features=features, batch=4)
        times, _ = step_times(case, torch.device("cpu"), repeats=_REPEATS)
        measured.append((dry_step(case.network, case.shape).flops, times))
    return _fitted(label, measured)


def _fitted(label: str, measured: list[tuple[float, list[float]]]) -> StepTimes:
    """A line through the median times over the FLOPs, by least squares, and the times around their medians."""
    medians = np.array([statistics.median(times) for _, times in measured])
    flops = np.array([count for count, _ in measured])
    slope, overhead = np.polyfit(flops, medians, 1, w=1 / medians)
    overhead, slope = max(overhead, 0.0), slope if slope > 0 else medians.mean() / flops.mean()
    factors = [np.array(times) / statistics.median(times) for _, times in measured]
    return StepTimes(
        label=label,
        overhead_seconds=float(overhead),
        flops_per_second=float(1 / slope),
        factors=np.concatenate(factors),
    )
