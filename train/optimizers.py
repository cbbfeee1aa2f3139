"""Optimizers by name, and what the loop asks of any of them."""

from typing import Protocol

from torch import Tensor, nn

from train.muon import MuonAdamW
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.schedule_free import ScheduleFreeAdamW


class Optimizer(Protocol):
    """Moves a network's parameters; its whole state is `num_updates` and named tensors."""

    config: OptimizerConfig
    num_updates: int

    def step(self, factor: float) -> None:
        """One update from the gradients in place, at `factor` times the peak rates."""

    def averaged(self) -> dict[str, Tensor] | None:
        """Its own average of the parameters, by name, where that is what predicts."""

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, beside the weights and `num_updates`."""

    def load_state_tensors(self, tensors: dict[str, Tensor], *, num_updates: int) -> None:
        """Takes back what `state_tensors` gave."""


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> Optimizer:
    """A fresh optimizer of the kind that the config names."""
    if config.kind is OptimizerKind.SCHEDULE_FREE:
        return ScheduleFreeAdamW(network, config)
    return MuonAdamW(network, config)
