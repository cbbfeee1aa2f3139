"""Muon for matrices and AdamW for the rest, or AdamW for all.

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest semi-orthogonal matrix, found by a quintic
Newton–Schulz iteration, scaled so that its root mean square matches AdamW's (Liu et al. 2025, Muon is Scalable, eq. 4).
Matrices of one shape are stacked and updated together.
"""

import math

import torch
from torch import Tensor, nn

from model.classification_head import SlotClassificationHead
from model.regression_heads import RegressionHead
from train.optimizer_config import OptimizerConfig, OptimizerKind

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalised(matrices: Tensor, *, steps: int = 5) -> Tensor:
    """Approximately U Vᵀ of each matrix U S Vᵀ in the stack [n, r, c]."""
    a, b, c = _NEWTON_SCHULZ
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).float()


class MuonAdamW:
    """Muon and AdamW over named parameters, or AdamW over all of them. The whole state is named tensors.

    Args:
        network: whose parameters move.
        config: its kind says which.
    """

    def __init__(self, network: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        matrices, self._rest = split_parameters(network)
        self._decayed: list[nn.Parameter] = []  # what AdamW decays; Muon decays its own
        if config.kind is OptimizerKind.ADAMW:
            self._decayed, matrices, self._rest = list(matrices.values()), {}, dict(network.named_parameters())
        self._groups: dict[tuple[int, int], dict[str, nn.Parameter]] = {}
        for name, parameter in matrices.items():
            self._groups.setdefault(tuple(parameter.shape), {})[name] = parameter
        self._momentum = {name: torch.zeros_like(parameter) for name, parameter in matrices.items()}
        self._first = {name: torch.zeros_like(parameter) for name, parameter in self._rest.items()}
        self._second = {name: torch.zeros_like(parameter) for name, parameter in self._rest.items()}
        self.num_updates = 0

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update from the gradients in place, at `factor` times the peak rates."""
        self.num_updates += 1
        for shape, group in self._groups.items():
            self._step_matrices(shape, group, factor * self.config.matrix_lr)
        self._step_rest(factor * self.config.vector_lr)

    def _step_matrices(self, shape: tuple[int, int], group: dict[str, nn.Parameter], rate: float) -> None:
        config = self.config
        parameters, momentum = list(group.values()), [self._momentum[name] for name in group]
        gradients = [parameter.grad for parameter in parameters]
        torch._foreach_lerp_(momentum, gradients, 1 - config.matrix_momentum)
        nesterov = torch._foreach_lerp(gradients, momentum, config.matrix_momentum)
        update = orthogonalised(torch.stack(nesterov)) * (0.2 * math.sqrt(max(shape)))
        torch._foreach_mul_(parameters, 1 - rate * config.weight_decay)
        torch._foreach_add_(parameters, list(update.unbind(0)), alpha=-rate)

    def _step_rest(self, rate: float) -> None:
        beta1, beta2 = self.config.betas
        parameters = list(self._rest.values())
        gradients = [parameter.grad for parameter in parameters]
        if self._decayed:
            torch._foreach_mul_(self._decayed, 1 - rate * self.config.weight_decay)
        first, second = list(self._first.values()), list(self._second.values())
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        correction1, correction2 = 1 - beta1**self.num_updates, 1 - beta2**self.num_updates
        denominator = torch._foreach_div(second, correction2)
        torch._foreach_sqrt_(denominator)
        torch._foreach_add_(denominator, 1e-8)
        torch._foreach_addcdiv_(parameters, first, denominator, -rate / correction1)

    def averaged(self) -> None:
        """This optimizer's weights are meant as they are: there is no average."""

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, beside the weights and `num_updates`."""
        return {f"{part}/{name}": tensor for part, table in self._parts().items() for name, tensor in table.items()}

    def load_state_tensors(self, tensors: dict[str, Tensor], *, num_updates: int) -> None:
        """Takes back what `state_tensors` gave.

        Raises:
            KeyError: for a tensor that is missing.
        """
        for part, table in self._parts().items():
            for name, tensor in table.items():
                tensor.copy_(tensors[f"{part}/{name}"])
        self.num_updates = num_updates

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        return {"momentum": self._momentum, "first": self._first, "second": self._second}


def split_parameters(network: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Weight matrices of hidden linear layers, and everything else (embeddings, tokens, vectors, output layers).

    The rows of an output layer are each a bucket, a quantile, a point or a class slot; a retrieval head has none.
    """
    heads = [module for module in network.modules() if isinstance(module, RegressionHead | SlotClassificationHead)]
    outputs = {id(_output_layer(head).weight) for head in heads}
    linear = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Linear)} - outputs
    matrices, rest = {}, {}
    for name, parameter in network.named_parameters():
        (matrices if id(parameter) in linear else rest)[name] = parameter
    return matrices, rest


def _output_layer(head: RegressionHead | SlotClassificationHead) -> nn.Linear:
    return head.layers if isinstance(head.layers, nn.Linear) else head.layers[-1]
