"""What Ray and a second worker cost, as a subject of the bench (T8)."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from bench.rows import BenchRow
from tools import progress
from tools.failure import ExitCode, Failure

TITLE, PEER = "Training on Ray: the same steps in one run", "without"
Save = Callable[[Sequence[BenchRow]], None]
_QUICK_STEPS, _FEWEST_STEPS = 30, 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayBenchConfig:
    """What is measured, and how often."""

    json: pathlib.Path | None = None
    """Write everything here."""
    quick: bool = False
    """One short round: rates mean little."""
    num_steps: int = 200
    """Steps of each sitting; the first ten count nowhere."""
    rounds: int = 2
    """How often each side trains."""

    def __post_init__(self) -> None:
        """Refuses numbers with which there is no rate.

        Raises:
            Failure: BAD_FLAG, naming flag and value.
        """
        if self.num_steps < _FEWEST_STEPS or self.rounds < 1:
            raise Failure(
                ExitCode.BAD_FLAG,
                f"--num-steps {self.num_steps}, --rounds {self.rounds}: give {_FEWEST_STEPS} or more, and 1 or more",
            )


def ray() -> RayBenchConfig:
    """Steps of `tiny` bare, on Ray with one worker, and with two: about 5 minutes on 2 cores."""
    return RayBenchConfig()


def measure(config: RayBenchConfig, *, save: Save) -> list[BenchRow]:
    """Measures what the config names; `save` is called after every round."""
    from bench.overhead import measure_overhead  # it brings ray, which reads its settings while it is imported

    num_steps, rounds = (_QUICK_STEPS, 1) if config.quick else (config.num_steps, config.rounds)
    rows: list[BenchRow] = []
    with progress.meter("Ray", total=rounds, unit="rounds") as meter:
        for done, found in enumerate(measure_overhead(num_steps=num_steps, rounds=rounds), start=1):
            rows = list(found)
            save(rows)
            meter(done)
    return rows
