"""The influence map: how far each row that leaves the ICL stage moves with each row that enters it, measured.

Beside the mask, which says who may read whom, stand the sizes of the Jacobian's blocks: exactly 0 where reading is
forbidden, not 0 where it is allowed. Shapes: N context rows, M query rows, T = N + M, D row width, P probes.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from eval.subject import Subject, rerandomise, zero_tensors
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import Episode


def influence_map(
    network: Network,
    episode: Episode,
    *,
    path: AttentionPath = AttentionPath.REFERENCE,
    num_probes: int = 4,
    seed: int = 0,
) -> np.ndarray:
    """Sizes [T, T] of ∂h_t/∂z_s in fp64: h_t leaves the ICL stage, z_s is the row token that enters label injection.

    A block's size is its Frobenius norm, estimated by P orthonormal probes of its D output dimensions,
    √(D/P · Σ_p ‖v_pᵀJ‖²): exact for P = D, unbiased in the square for less, and 0 only where every probe gives exactly
    0. Tensors of weights that are all zero are drawn anew first: an untrained network reads nothing.

    Args:
        network: not changed.
        episode: one table.
        path: of the attention; reference has the printed mask.
        num_probes: P, at most D.
        seed: of the probes and of re-drawn weights.

    Raises:
        ValueError: for a number of probes that is not 1..D.
    """
    own = network if not zero_tensors(network) else rerandomise(network, seed=seed)
    subject = Subject(network=own, path=path).fresh(dtype=torch.float64)
    stage = subject.network.icl.requires_grad_(False)
    (context, labels, query, *masks), others = _entering(subject, episode)
    width, num_rows = context.shape[2], context.shape[1] + query.shape[1]
    if not 1 <= num_probes <= width:
        raise ValueError(f"num_probes is {num_probes}: give 1 to {width}, the width of a row")
    # One copy of the table for each output row, so that one backward pass gives the gradients of all of them.
    context, query = (_copies(rows, num_rows).clone().requires_grad_(True) for rows in (context, query))
    rest = [_copies(item, num_rows) for item in (labels, *masks)]
    leaving = stage(
        context, rest[0], query, *rest[1:], **{key: _copies(item, num_rows) for key, item in others.items()}
    )
    hidden = torch.cat(leaving, dim=1)[range(num_rows), range(num_rows)]
    squares = torch.zeros((num_rows, num_rows), dtype=torch.float64)
    for probe in _probes(width, num_probes, seed=seed):
        gradients = torch.autograd.grad((hidden @ probe).sum(), (context, query), retain_graph=True)
        squares += torch.cat(gradients, dim=1).square().sum(-1)
    return (squares * (width / num_probes)).sqrt().numpy()


@torch.no_grad()
def _entering(subject: Subject, episode: Episode) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the ICL stage is called with."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def note(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((args, kwargs))

    handle = subject.network.icl.register_forward_pre_hook(note, with_kwargs=True)
    try:
        subject.run([episode])
    finally:
        handle.remove()
    return calls[0]


def _copies(value: Any, count: int) -> Any:
    return value.expand(count, *value.shape[1:]) if isinstance(value, Tensor) else value


# style: a matrix has two sizes
def _probes(width: int, count: int, *, seed: int) -> Tensor:
    """[P, D] orthonormal rows."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn((width, width), generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q[:count]
