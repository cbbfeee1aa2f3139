"""What makes training harder on purpose: context rows and context labels left out (seed 5.H), and smoothed labels.

A query's label is in no forward pass with any of them. What is left out is a pure function of (seed, step, task), so it
is the same for any number of workers and after any resume.
"""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from model.network import NetworkInputs
from tools.failure import ExitCode, Failure

_STREAM = 5  # apart from every other use of a run's seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegularisationConfig:
    """Options of training; all off by default."""

    dropped_rows: float = 0.0
    """Share of the context rows that a task goes without in a step."""
    dropped_labels: float = 0.0
    """Share of the context rows that are shown without their label."""
    label_smoothing: float = 0.0
    """Share of a class label's mass that is spread over the classes present (costs NLL)."""

    def __post_init__(self) -> None:
        """Refuses shares that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for field in dataclasses.fields(self):
            share = getattr(self, field.name)
            if not 0 <= share < 1:
                raise Failure(ExitCode.BAD_FLAG, f"regularisation.{field.name} is {share}: give 0 or more, below 1")


def thinned(
    inputs: NetworkInputs, config: RegularisationConfig, *, seed: int, step: int, first_task: int
) -> NetworkInputs:
    """Inputs without some context rows and context labels; every table keeps a row that has its label.

    What the inputs' own masks hide stays hidden.

    Args:
        inputs: this worker's share of a batch.
        config: how much is left out.
        seed: of the run.
        step: global step.
        first_task: place of the share's first task in the global batch.
    """
    if not config.dropped_rows and not config.dropped_labels:
        return inputs
    tables, rows = inputs.y_context.shape
    drawn = np.stack([_drawn(rows, seed=(seed, _STREAM, step, first_task + table)) for table in range(tables)])
    real, known = (_own(mask, inputs.y_context) for mask in (inputs.context_mask, inputs.label_mask))
    row_draw, label_draw = (torch.from_numpy(drawn[:, part]) for part in range(2))
    kept = real & ((row_draw >= config.dropped_rows) | _lucky(row_draw, rows=real, known=known))
    labelled = known & ((label_draw >= config.dropped_labels) | _lucky(label_draw, rows=kept, known=known))
    device = inputs.y_context.device
    return dataclasses.replace(
        inputs,
        context_mask=kept.to(device) if config.dropped_rows else inputs.context_mask,
        label_mask=labelled.to(device) if config.dropped_labels else inputs.label_mask,
    )


def _drawn(rows: int, *, seed: tuple[int, ...]) -> np.ndarray:
    """[2, rows] uniform numbers of one task in one step."""
    return np.random.default_rng(np.random.SeedSequence(seed)).random((2, rows))


def _own(mask: Tensor | None, y_context: Tensor) -> Tensor:
    """[B, N] on the CPU: the mask that the inputs came with."""
    return torch.ones(y_context.shape, dtype=torch.bool) if mask is None else mask.cpu()


def _lucky(draw: Tensor, *, rows: Tensor, known: Tensor) -> Tensor:
    """[B, N] the one row of each table that stays whatever the share: one of `rows`, with a known label if any has."""
    best = (draw + known).masked_fill(~rows, -1.0).argmax(1, keepdim=True)
    return torch.zeros_like(rows).scatter(1, best, True)
