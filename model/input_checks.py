"""What the network and its stages refuse, each in one line that names the argument, the value and what is allowed.

Values of tensors are looked at on the CPU alone: asking a GPU would stall it, and look-ups fail there by themselves.
"""

import torch
from torch import Tensor

from model.cell_embedding import CATEGORY, NUMBER, ORDINAL
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


def check_shape(name: str, value: Tensor, *, shape: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape: some would broadcast and be silently wrong.

    Raises:
        BadInput: BAD_SHAPE.
    """
    if tuple(value.shape) != shape:
        raise BadInput(ExitCode.BAD_SHAPE, f"{name} has shape {tuple(value.shape)}: give {shape}")


def check_column_kinds(column_kinds: Tensor) -> None:
    """Refuses kinds above 2, and padding that stands before a real column.

    Raises:
        BadInput: BAD_FLAG, with the kind or the table.
    """
    if column_kinds.device.type != "cpu" or column_kinds.numel() == 0:
        return
    highest = int(column_kinds.max())
    if highest > CATEGORY:
        mend = f"give {NUMBER} number, {ORDINAL} ordinal, {CATEGORY} category, or a negative number for padding"
        raise BadInput(ExitCode.BAD_FLAG, f"column_kinds holds {highest}: {mend}")
    real = column_kinds >= 0
    early = (real[:, 1:] & ~real[:, :-1]).any(1)
    if early.any():
        table = int(early.nonzero()[0, 0])
        raise BadInput(
            ExitCode.BAD_FLAG, f"column_kinds of table {table} has padding before a column: move it to the end"
        )


def check_labels(context_labels: Tensor, num_classes: int, *, label_mask: Tensor | None = None) -> None:
    """Refuses class ids that are not 0..num_classes-1, where `label_mask` shows them.

    Raises:
        BadInput: OVER_LIMIT, with the id.
    """
    if context_labels.device.type != "cpu" or context_labels.numel() == 0:
        return
    shown = context_labels if label_mask is None else torch.where(label_mask, context_labels, 0.0)
    wrong = ~((shown >= 0) & (shown < num_classes) & (shown == shown.floor()))
    if wrong.any():
        mend = f"number the classes of each table 0..{num_classes - 1}"
        found = float(shown[wrong][0])
        raise BadInput(ExitCode.OVER_LIMIT, f"a context label is {found:g} with {num_classes} classes: {mend}")


def check_targets(context_targets: Tensor, *, label_mask: Tensor) -> None:
    """Refuses targets that are not finite, where `label_mask` shows them.

    Raises:
        BadInput: TABLE_LABELS, with how many.
    """
    if context_targets.device.type != "cpu":
        return
    wrong = int((label_mask & ~context_targets.isfinite()).sum())
    if wrong:
        raise BadInput(ExitCode.TABLE_LABELS, f"{wrong} context targets are not finite: drop those rows")
