"""What should not matter, and how much it does: sizes from views.json, beside their meaning (seeds 1.4, 6.3)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

_MEANINGS = {
    "column_order": (
        "columns in another order",
        "A cell looks at the columns of its group, so their order counts; without groups only rounding is expected.",
    ),
    "class_slots": (
        "classes under other numbers",
        "Label embeddings belong to class numbers, which say nothing; predictions are mapped back and compared.",
    ),
    "context_order": (
        "context rows in another order",
        "Rows carry no position: only rounding is expected.",
    ),
}
UNITS = {
    "classification": "total variation distance of the class probabilities, from 0 to 1",
    "regression": "distance of the predictive means, in standard deviations of the context's targets",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change that alters no answer, and how far it moved predictions.

    Args:
        name: of the change.
        meaning: one line.
        sizes: mean and largest, for each of the table's numbers of orders.
    """

    name: str
    meaning: str
    sizes: Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Symmetry:
    """The table of one model.

    Args:
        num_orders: over how many of the estimator's random orders a prediction is averaged, ascending.
        changes: one row each.
        unit: of the sizes.
    """

    num_orders: Sequence[int]
    changes: Sequence[Change]
    unit: str


def symmetry_of(views: Mapping[str, Any], *, kind: str) -> Symmetry | None:
    """What views.json holds under "symmetry" (`CHANGE/NUM/mean` and `CHANGE/NUM/max`), or None."""
    found = views.get("symmetry")
    if not found:
        return None
    numbers = sorted({int(key.split("/")[1]) for key in found})
    changes = [
        Change(
            name=name,
            meaning=meaning,
            sizes=[(found[f"{key}/{number}/mean"], found[f"{key}/{number}/max"]) for number in numbers],
        )
        for key, (name, meaning) in _MEANINGS.items()
        if f"{key}/{numbers[0]}/mean" in found
    ]
    return Symmetry(num_orders=numbers, changes=changes, unit=UNITS[kind])
