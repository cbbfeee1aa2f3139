"""Initial weights as a pure function of a seed, although torch.nn takes no generator for them."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from model.network import Network, NetworkConfig

_Module = TypeVar("_Module", bound=nn.Module)


def initialised(make: Callable[[], _Module], *, seed: int) -> _Module:
    """The module that `make` builds, its layers drawn from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # style: torch.nn takes no generator for initial values
        return make()


def initial_network(config: NetworkConfig, *, seed: int) -> Network:
    """The network at initialisation: a pure function of config and seed."""
    return initialised(lambda: Network(config), seed=seed)
