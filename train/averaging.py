"""Weight averaging: what is deployed is a mean over the latest weights of training, which moves less than they do.

EMA: a ← r·a + (1 − r)·w after every update, with r = min(decay, (1 + t) / (10 + t)) at update t: the limit that
TensorFlow's `ExponentialMovingAverage(decay, num_updates)` documents. Early on it averages over about the last ninth of
the updates, so nothing is left of the initial weights in a short run, and no bias is to be corrected.

LATEST: the plain mean of the latest points, each the weights after `every`-th update (Izmailov et al. 2018, Averaging
Weights Leads to Wider Optima, keeps all; Kaddour 2022, Stop Wasting My Time, the latest k).
"""

import dataclasses
import enum
from typing import Protocol

import torch
from torch import Tensor, nn

from tools.failure import ExitCode, Failure

Weights = dict[str, Tensor]
"""Parameter's name → tensor."""


class AveragingKind(enum.StrEnum):
    """Which weights are deployed: validated, audited, predicted with."""

    NONE = "none"  # those that are trained
    EMA = "ema"  # their exponential moving average
    LATEST = "latest"  # the mean of their latest points


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragingConfig:
    """Averaging of weights."""

    kind: AveragingKind = AveragingKind.NONE
    """Which average."""
    decay: float = 0.999
    """Of the moving average: the share that an update leaves of it, once the run is long enough."""
    points: int = 10
    """Of the mean of the latest: how many."""
    every: int = 10
    """Updates between two points."""

    def __post_init__(self) -> None:
        """Refuses numbers with which there is no average.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        if not 0 <= self.decay < 1:
            raise Failure(ExitCode.BAD_FLAG, f"averaging.decay is {self.decay}: give 0 or more, below 1")
        for name in ("points", "every"):
            if getattr(self, name) < 1:
                raise Failure(ExitCode.BAD_FLAG, f"averaging.{name} is {getattr(self, name)}: give 1 or more")


class Average(Protocol):
    """A mean over the weights of training. Its whole state is named tensors."""

    def update(self, num_updates: int) -> None:
        """Takes in the weights as they are after update `num_updates`, counted from 1."""

    def weights(self) -> Weights | None:
        """The mean; None as long as there is none, which means the weights themselves."""

    def state_tensors(self) -> Weights:
        """Everything that later means depend on, beside the weights."""

    def load_state_tensors(self, tensors: Weights) -> None:
        """Takes back what `state_tensors` gave; without it, the mean begins anew with the weights as they are."""


def make_average(network: nn.Module, config: AveragingConfig) -> Average | None:
    """The average that the config names, of a network before its first step."""
    if config.kind is AveragingKind.EMA:
        return MovingMean(network, config)
    return LatestPoints(network, config) if config.kind is AveragingKind.LATEST else None


class MovingMean:
    """The exponential moving average."""

    def __init__(self, network: nn.Module, config: AveragingConfig) -> None:
        self._decay = config.decay
        self._live = dict(network.named_parameters())
        self._mean = {name: parameter.detach().clone() for name, parameter in self._live.items()}

    @torch.no_grad()
    def update(self, num_updates: int) -> None:
        """See `Average`."""
        rate = min(self._decay, (1 + num_updates) / (10 + num_updates))
        torch._foreach_lerp_(list(self._mean.values()), list(self._live.values()), 1 - rate)

    def weights(self) -> Weights:
        """See `Average`."""
        return self._mean

    def state_tensors(self) -> Weights:
        """See `Average`."""
        return {f"mean/{name}": tensor for name, tensor in self._mean.items()}

    def load_state_tensors(self, tensors: Weights) -> None:
        """See `Average`."""
        for name, tensor in self._mean.items():
            tensor.copy_(tensors.get(f"mean/{name}", self._live[name].detach()))


class LatestPoints:
    """The mean of the latest points. Each costs as much memory, and room in a checkpoint, as the weights do."""

    def __init__(self, network: nn.Module, config: AveragingConfig) -> None:
        self._config = config
        self._live = dict(network.named_parameters())
        self._points: list[Weights] = []  # the latest one last

    @torch.no_grad()
    def update(self, num_updates: int) -> None:
        """See `Average`."""
        if num_updates % self._config.every == 0:
            self._points = self._points[1 - self._config.points :] if self._config.points > 1 else []
            self._points.append({name: parameter.detach().clone() for name, parameter in self._live.items()})

    def weights(self) -> Weights | None:
        """See `Average`."""
        if not self._points:
            return None
        return {name: torch.stack([point[name] for point in self._points]).mean(0) for name in self._live}

    def state_tensors(self) -> Weights:
        """See `Average`."""
        return {
            f"point-{number:03d}/{name}": tensor
            for number, point in enumerate(self._points)
            for name, tensor in point.items()
        }

    def load_state_tensors(self, tensors: Weights) -> None:
        """See `Average`."""
        folders = sorted({name.split("/")[0] for name in tensors if name.startswith("point-")})
        self._points = [
            {name: tensors[f"{folder}/{name}"].to(live.device) for name, live in self._live.items()}
            for folder in folders[-self._config.points :]
        ]
