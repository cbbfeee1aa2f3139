"""Schedule-free AdamW: no decay of the rate; an average that is kept along the way is what predicts.

Defazio et al. 2024, The Road Less Scheduled (arXiv 2405.15682), algorithm 1. The gradient is taken at

    y = (1 − β₁)·z + β₁·x

where z are the weights that the gradients move and x their average, weighted by the squares of the rates.
"""

import math

import torch
from torch import Tensor, nn

from train.muon import split_parameters
from train.optimizer_config import OptimizerConfig

_EPSILON = 1e-8


class ScheduleFreeAdamW:
    """Schedule-free AdamW over named parameters; the network's parameters are y. The whole state is named tensors.

    Args:
        network: whose parameters move.
        config: rate (`vector_lr`), β₁ and β₂, and the decay of the matrices.
    """

    def __init__(self, network: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        self._parameters = dict(network.named_parameters())
        decayed = split_parameters(network)[0]
        self._decays = [config.weight_decay if name in decayed else 0.0 for name in self._parameters]
        self._z = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._x = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._second = {name: torch.zeros_like(parameter) for name, parameter in self._parameters.items()}
        self._weights = torch.zeros((), dtype=torch.float64)  # the sum of squared rates
        self.num_updates = 0

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update from the gradients in place, at `factor` times the peak rate."""
        self.num_updates += 1
        beta1, beta2 = self.config.betas
        y, z, x = (list(table.values()) for table in (self._parameters, self._z, self._x))
        second, gradients = list(self._second.values()), [parameter.grad for parameter in y]
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        denominator = torch._foreach_sqrt(second)
        torch._foreach_add_(denominator, _EPSILON)
        # The paper leaves the second moment as it is and corrects the rate: γ_t = γ·√(1 − β₂ᵗ).
        rate = factor * self.config.vector_lr * math.sqrt(1 - beta2**self.num_updates)
        if self.config.weight_decay:
            torch._foreach_add_(z, torch._foreach_mul(y, self._decays), alpha=-rate)
        torch._foreach_addcdiv_(z, gradients, denominator, -rate)
        self._weights += rate**2
        share = rate**2 / float(self._weights)
        torch._foreach_lerp_(x, z, share)
        torch._foreach_copy_(y, torch._foreach_lerp(z, x, beta1))

    def averaged(self) -> dict[str, Tensor]:
        """x, by name: the weights to predict with."""
        return self._x

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, beside the network's weights and `num_updates`."""
        tables = {f"{part}/{name}": tensor for part, table in self._parts().items() for name, tensor in table.items()}
        return {**tables, "weights": self._weights}

    def load_state_tensors(self, tensors: dict[str, Tensor], *, num_updates: int) -> None:
        """Takes back what `state_tensors` gave.

        Raises:
            KeyError: for a tensor that is missing.
        """
        for name, tensor in self.state_tensors().items():
            tensor.copy_(tensors[name])
        self.num_updates = num_updates

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        return {"z": self._z, "x": self._x, "second": self._second}
