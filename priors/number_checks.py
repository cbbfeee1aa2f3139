"""Numbers of a config that cannot be meant, told by the flag: one rule for every field of every family."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, get_type_hints

import tyro

_SHARES = ("max_copied", "max_duplicates", "max_flip", "max_missing", "most_noise", "most_strangers")
_LEAST = {"max_imbalance": 1.0, "rows_per_level": 1.0}


def impossible_numbers(config: Any, *, prefix: str = "--") -> Iterator[str]:
    """Yields a complaint for each field of a config, and of the configs in it, that cannot be drawn from.

    Counts (int) are 1 or more, other numbers finite and 0 or more; shares are at most 1; a list holds a
    number above 0, and `min_x` is not above `max_x`.
    """
    hints = get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from impossible_numbers(value, prefix=prefix if _is_flat(hints[field.name]) else f"{flag}.")
        elif mend := _mend(field.name, value):
            yield f"{flag} {_text(value)} is impossible: give {mend}"
        elif field.name.startswith("min_"):
            most = getattr(config, "max_" + field.name.removeprefix("min_"), None)
            if most is not None and most < value:
                yield f"{flag} {value} is above {flag.replace('min-', 'max-')} {most}: lower it"


def _is_flat(hint: Any) -> bool:
    """Whether the flags of a nested config lack its name (`tyro.conf.arg(name="")`)."""
    blank = tyro.conf.arg(name="")
    return blank in getattr(hint, "__metadata__", ())


def _mend(name: str, value: Any) -> str | None:
    """What would be possible; None where the value is."""
    if isinstance(value, tuple):
        numbers = [item for item in value if isinstance(item, int | float)]
        bad = numbers and not (min(numbers) >= 0 and math.isfinite(sum(numbers)) and sum(numbers) > 0)
        return "none below 0 and one above" if bad else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name.endswith("_share") or name in _SHARES:
        return None if 0 <= value <= 1 else "a share from 0 to 1"
    if name in _LEAST:
        return None if _LEAST[name] <= value < math.inf else f"{_LEAST[name]:g} or more"
    if isinstance(value, int):
        return None if value >= 1 else "1 or more"
    return None if math.isfinite(value) and value >= 0 else "a number from 0 on"


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
