"""When a training is looked at besides its validation: a schedule by steps, from configuration, data and workers."""

import dataclasses
import math
from collections.abc import Iterable

from torch import nn

from model.network import Network
from tools.failure import ExitCode, Failure

_FORWARDS_IN_STEP = 2  # at least: a backward pass is counted as two forward ones, and takes from 1.1 on a CPU


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """What is watched during training, beside the validation that chooses the checkpoint; nothing here chooses any."""

    budget_share: float = 0.05
    """Share of the training time that validation and looks may take together; looks are spaced by it (0: none)."""
    num_regret_tasks: int = 8
    """Tasks in a look from each family with a known posterior (0: none)."""
    num_tables: int = 12
    """Real tables in a look: the bundled ones, then the first ones of --tables (0: none)."""
    max_rows: int = 256
    """Rows of a real table that a look takes, half of them as context."""

    def __post_init__(self) -> None:
        """Refuses shares and numbers that are none.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        if not 0 <= self.budget_share < 1:
            raise Failure(ExitCode.BAD_FLAG, f"watch.budget_share is {self.budget_share}: give 0 or more, below 1")
        for name, least in (("num_regret_tasks", 0), ("num_tables", 0), ("max_rows", 32)):
            if getattr(self, name) < least:
                raise Failure(ExitCode.BAD_FLAG, f"watch.{name} is {getattr(self, name)}: give {least} or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """What training and looking cost, in multiplications of a forward pass (see `forward_work`).

    Args:
        step: of one training step, as far as one worker computes it.
        validation: of one validation.
        look: of one look.
    """

    step: float
    validation: float
    look: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which validations are followed by a look.

    Args:
        every: steps between two looks, a multiple of the steps between two validations; None for no look at all.
        expected_share: of the training time, for validation and looks.
    """

    every: int | None
    expected_share: float

    def is_due(self, step: int) -> bool:
        """Whether a look belongs to this step: the same ones at equal worker count, however a training is cut."""
        return self.every is not None and step > 0 and step % self.every == 0


def forward_work(network: Network, shapes: Iterable[tuple[int, int]]) -> float:
    """Multiplications of weights in a forward pass over tasks of (rows, features), attention left out.

    Every weight of the transformer over rows, of the head and of what mixes a row's token is used once a row, every
    other one once a cell, the sketch's too.
    """
    readout = network.row_readout
    per_row = sum(_num_weights(part) for part in (readout.norm_row, readout.mix, network.icl, network.head))
    per_cell = _num_weights(network) - per_row
    return float(sum(rows * (per_row + features * per_cell) for rows, features in shapes))


def _num_weights(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def schedule_of(costs: Costs, *, budget_share: float, validate_every: int, overhead: float) -> Schedule:
    """As many looks as the budget has room for.

    Evaluation that costs e beside training that costs t takes the share e / (t + e), so a budget of b leaves
    b / (1 − b) · t.

    Args:
        costs: counted.
        budget_share: of the time, for validation and looks together.
        validate_every: steps between two validations.
        overhead: how many times longer a multiplication takes in a look than in a training step.
    """
    training = costs.step * _FORWARDS_IN_STEP * validate_every
    look = costs.look * overhead
    room = training * budget_share / (1 - budget_share) - costs.validation
    if look <= 0 or room <= 0:
        return Schedule(every=None, expected_share=costs.validation / (training + costs.validation))
    stride = max(1, math.ceil(look / room))
    taken = costs.validation + look / stride
    return Schedule(every=stride * validate_every, expected_share=taken / (training + taken))
