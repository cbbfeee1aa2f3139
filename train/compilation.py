"""Compiled blocks: on a GPU, a block of the network as a few kernels instead of dozens.

The blocks of a stage share their code, so each kind of block is compiled once, for any number of rows, columns and
tasks. Names and values of the weights stay as they are; the last bits of results do not.
"""

import enum
import importlib.util
import shutil

import torch
from torch import nn

from model.network import Network


class Compilation(enum.StrEnum):
    """Whether the blocks of the network are compiled."""

    AUTO = "auto"  # on a GPU where what the compiler needs is installed
    ON = "on"
    OFF = "off"


def is_wanted(choice: Compilation, device: torch.device) -> bool:
    """Whether blocks are compiled on `device`: on a CPU it does not pay, since training is over before it is done."""
    if choice is not Compilation.AUTO:
        return choice is Compilation.ON
    return device.type == "cuda" and can_compile()


def can_compile() -> bool:
    """Whether what the compiler for GPUs needs is installed: Triton, and a C compiler for its launchers."""
    has_compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    return has_compiler and importlib.util.find_spec("triton") is not None


def blocks(network: Network) -> list[nn.Module]:
    """What is compiled: nearly all of the time is spent in these."""
    return [*network.column_blocks, *network.row_blocks, network.row_readout, *network.icl.blocks]


def compile_blocks(network: Network, *, backend: str = "inductor") -> None:
    """Has every block compiled when it is first called, for all sizes of tables (one column is a size of its own)."""
    for block in blocks(network):
        block.compile(dynamic=True, backend=backend)
