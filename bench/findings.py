"""What a check of a device found, and how long it may go on looking."""

import dataclasses
import time
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One figure.

    Args:
        name: what was measured.
        value: of it.
        unit: of the value.
        bound: what the value may be at most, where it is a check.
        facts: what else belongs to it, as JSON values.
    """

    name: str
    value: float
    unit: str = ""
    bound: float | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool | None:
        """Whether the value is within its bound (NaN is not); None where there is none."""
        return None if self.bound is None else bool(self.value <= self.bound)

    def record(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return {**dataclasses.asdict(self), "passed": self.passed}


class TimeBudget:
    """Seconds that a section may take; it looks between two measurements and stops early.

    Args:
        seconds: how many, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._start, self._asked = seconds, time.monotonic(), False

    @property
    def left(self) -> float:
        """Seconds left; negative when it is used up."""
        return self._seconds - (time.monotonic() - self._start)

    def allows_more(self) -> bool:
        """Asked before every measurement: whether time is left. The first one is always allowed."""
        first, self._asked = not self._asked, True
        return first or self.left > 0

    @property
    def share(self) -> float:
        """Share that is used, from 0 to 1."""
        return min(1.0, 1.0 - self.left / self._seconds) if self._seconds > 0 else 1.0
