"""What the network and its stages refuse, each in one line that names the argument, the value and what is allowed.

Values of tensors are looked at on the CPU alone: asking a GPU would stall it, and look-ups fail there by themselves.
"""

import torch
from torch import Tensor

from tools.failure import BadInput, ExitCode


def check_rows(num_context: int, num_query: int) -> None:
    """Refuses an empty context or no queries.

    Raises:
        BadInput: TABLE_EMPTY.
    """
    for name, count in (("context", num_context), ("query", num_query)):
        if count < 1:
            raise BadInput(ExitCode.TABLE_EMPTY, f"the {name} has {count} rows: give one or more")


def check_mask(name: str, mask: Tensor | None, *, shape: tuple[int, int]) -> None:
    """Refuses a mask that is not bool of the rows' shape.

    Raises:
        BadInput: BAD_MASK.
    """
    if mask is None:
        return
    if mask.dtype is not torch.bool:
        raise BadInput(ExitCode.BAD_MASK, f"{name} has dtype {mask.dtype}: give torch.bool, True where a row is real")
    if tuple(mask.shape) != shape:
        raise BadInput(ExitCode.BAD_MASK, f"{name} has shape {tuple(mask.shape)}: give {shape}, as its rows have")


def check_context_mask(mask: Tensor | None, *, shape: tuple[int, int]) -> None:
    """Refuses, besides, a mask that hides every context row of a table.

    Raises:
        BadInput: BAD_MASK, with the table.
    """
    check_mask("context_mask", mask, shape=shape)
    if mask is None or mask.device.type != "cpu" or mask.any(1).all():
        return
    table = int((~mask.any(1)).nonzero()[0, 0])
    raise BadInput(ExitCode.BAD_MASK, f"context_mask hides all rows of table {table}: leave one or more")


def check_labels(context_labels: Tensor, num_classes: int) -> None:
    """Refuses class ids that are not 0..num_classes-1.

    Raises:
        BadInput: OVER_LIMIT, with the id.
    """
    if context_labels.device.type != "cpu" or context_labels.numel() == 0:
        return
    low, high = (float(bound) for bound in context_labels.aminmax())
    if not (low >= 0 and high < num_classes):
        wrong = low if low < 0 else high
        mend = f"number the classes of each table 0..{num_classes - 1}"
        raise BadInput(ExitCode.OVER_LIMIT, f"a context label is {wrong:g} with {num_classes} classes: {mend}")
