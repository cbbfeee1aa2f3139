"""Early warning: signs that a training diverges, read off its own records while there is time to look into it.

Three signs, each told once for each episode. An episode ends when the figure is back within half of its bound, so that
one that hovers about the bound is told once too.

* **loss**: its moving average is above its lowest value by 3 standard deviations of one record, at least 0.02. The
  deviation is measured on the run itself, from differences of neighbouring records (median of their size, so that a
  jump does not widen the bound meant to catch it). The average over 20 records moves by 0.16 of that deviation by
  chance, so 3 deviations are 19 of its own: no plateau gets there by chance, however long it lasts.
* **gradient norm**: a record's is above 5 times the median of the 100 records before. Clipping bounds what such a step
  does, yet the norm moves before the loss does. Records of five runs of `tiny` stayed below 1.5 times.
* **validation**: not finite, or worse than its best value by 0.05 at two looks in a row. All looks see the same tasks,
  so sampling plays no part; in those five runs each look was better than the one before.

Loss and norm are not judged in the first 20 records, the loss neither in as many after a change of the training tasks
(a stage of a curriculum), where it jumps with good reason; validation has the same tasks throughout. Bounds are
differences, never shares: NLL of a density may be 0 or negative.
"""

import collections
import dataclasses
import enum
import math
import statistics
from collections.abc import Mapping
from typing import Any

_RECORDS = 20
_DEVIATIONS = 3.0
_LEAST_RISE = 0.02
_NOISE_RECORDS = 200
_NORM_RECORDS = 100
_NORM_FACTOR = 5.0
_VALIDATION_RISE = 0.05
_LOOKS = 2
_MAD_TO_DEVIATION = 1.4826  # of a normal distribution


class Sign(enum.StrEnum):
    """What is wrong."""

    LOSS = "loss"
    GRADIENT = "gradient norm"
    VALIDATION = "validation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Warned:
    """One early warning.

    Args:
        sign: which figure.
        step: at which record.
        value: the figure.
        bound: what it should have stayed below.
    """

    sign: Sign
    step: int
    value: float
    bound: float


class MovingAverage:
    """Exponential moving average without the pull of its start: Σ wᵢ xᵢ / Σ wᵢ (Kingma & Ba 2015, section 3).

    Args:
        records: its time constant n: the newest record has weight 1/n.
    """

    def __init__(self, records: int = _RECORDS) -> None:
        self._decay = 1 - 1 / records
        self._sum = self._weight = 0.0

    def add(self, value: float) -> float:
        """Takes one more value; returns the average."""
        self._sum = self._decay * self._sum + (1 - self._decay) * value
        self._weight = self._decay * self._weight + (1 - self._decay)
        return self._sum / self._weight


class EarlyWarning:
    """Reads the records of one training in order, across all of its sittings.

    Args:
        loss_name: of the validation figure that training minimises.
    """

    def __init__(self, loss_name: str) -> None:
        self._validation = f"validation/{loss_name}"
        self._norms: collections.deque[float] = collections.deque(maxlen=_NORM_RECORDS)
        self._under_way: set[Sign] = set()
        self._best_validation, self._looks_above = math.inf, 0
        self.new_tasks()

    def new_tasks(self) -> None:
        """From here on the training tasks are others: how low their loss was before says nothing."""
        self._average, self._best_average, self._num_losses = MovingAverage(), math.inf, 0
        self._last_loss = math.nan
        self._changes: collections.deque[float] = collections.deque(maxlen=_NOISE_RECORDS)
        self._under_way.discard(Sign.LOSS)

    def see(self, record: Mapping[str, Any]) -> list[Warned]:
        """The warnings that begin with this record."""
        judges = {
            "train/loss": self._see_loss,
            "train/gradient_norm": self._see_norm,
            self._validation: self._see_validation,
        }
        found = []
        for name, judge in judges.items():
            value = record.get(name)
            if value is not None and (math.isfinite(value) or name == self._validation):
                found += judge(int(record["step"]), float(value))
        return found

    def _see_loss(self, step: int, loss: float) -> list[Warned]:
        average = self._average.add(loss)
        if math.isfinite(self._last_loss):
            self._changes.append(abs(loss - self._last_loss))
        self._last_loss = loss
        self._num_losses += 1
        if self._num_losses < _RECORDS:
            return []
        self._best_average = min(self._best_average, average)
        deviation = _MAD_TO_DEVIATION * statistics.median(self._changes) / math.sqrt(2)
        rise = max(_LEAST_RISE, _DEVIATIONS * deviation)
        return self._judged(Sign.LOSS, step, value=average, best=self._best_average, rise=rise)

    def _see_norm(self, step: int, norm: float) -> list[Warned]:
        usual = statistics.median(self._norms) if len(self._norms) >= _RECORDS else math.inf
        self._norms.append(norm)
        return self._judged(Sign.GRADIENT, step, value=norm, best=usual, rise=(_NORM_FACTOR - 1) * usual)

    def _see_validation(self, step: int, loss: float) -> list[Warned]:
        if not math.isfinite(loss):  # above any bound, at the first look
            was_told = Sign.VALIDATION in self._under_way
            self._under_way.add(Sign.VALIDATION)
            bound = self._best_validation + _VALIDATION_RISE
            return [] if was_told else [Warned(sign=Sign.VALIDATION, step=step, value=loss, bound=bound)]
        self._best_validation = min(self._best_validation, loss)
        self._looks_above = self._looks_above + 1 if loss > self._best_validation + _VALIDATION_RISE else 0
        found = self._judged(Sign.VALIDATION, step, value=loss, best=self._best_validation, rise=_VALIDATION_RISE)
        if found and self._looks_above < _LOOKS:  # not yet
            self._under_way.discard(Sign.VALIDATION)
            return []
        return found

    def _judged(self, sign: Sign, step: int, *, value: float, best: float, rise: float) -> list[Warned]:
        """Begins an episode where the value is above best + rise, ends it below best + rise / 2."""
        if value <= best + rise / 2:
            self._under_way.discard(sign)
        if value <= best + rise or sign in self._under_way:
            return []
        self._under_way.add(sign)
        return [Warned(sign=sign, step=step, value=value, bound=best + rise)]
