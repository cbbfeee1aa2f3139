"""Tests of the bench of training steps: which forms and tasks count. No model is trained; the clock is made up."""

from collections.abc import Callable
from typing import Any

import pytest

from bench import step_rates
from bench.rows import BenchRow
from bench.step_rates import TrainBenchConfig, measure
from bench.step_team import StepCase, StepPlan

_CORES = 8


class _Team:
    """Steps at a made-up rate, the higher the more processes.

    Args:
        processes: how many; each needs a task.
        threads: of each.
    """

    def __init__(self, *, processes: int, threads: int) -> None:
        self.processes, self.threads = processes, threads

    def __enter__(self) -> "_Team":
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def tasks_per_second(self, plan: StepPlan, case: StepCase) -> float:
        assert self.processes <= case.batch, f"{self.processes} processes have {case.batch} tasks of {plan.model}"
        return 100.0 * self.processes


class _Peer:
    """Answers that a step took a second for each task.

    Args:
        command: not used.
    """

    def __init__(self, command: list[str]) -> None:
        self._asked: list[dict[str, Any]] = []

    def __enter__(self) -> "_Peer":
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def send(self, request: dict[str, Any]) -> None:
        self._asked.append(request)

    def receive(self) -> dict[str, Any]:
        return {"seconds": float(self._asked.pop()["batch"])}


@pytest.fixture
def rows_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, BenchRow]]:
    """The rows, by name, of a run with 8 cores and fields of its config."""
    monkeypatch.setattr(step_rates, "StepTeam", _Team)
    monkeypatch.setattr(step_rates, "PeerProcess", _Peer)
    monkeypatch.setattr(step_rates, "peer_command", lambda python, server: [])
    monkeypatch.setattr(step_rates, "flops_per_task", lambda model, case: 1.0)
    monkeypatch.setattr(step_rates, "num_parameters", lambda model: 1)
    monkeypatch.setattr(step_rates, "product_flops_per_second", lambda threads: 1e3)
    monkeypatch.setattr(step_rates.os, "cpu_count", lambda: _CORES)

    def measured(**fields: Any) -> dict[str, BenchRow]:
        config = TrainBenchConfig(presets=("tiny",), rounds=1, **fields)
        return {row.name: row for row in measure(config, save=lambda rows: None)}

    return measured


@pytest.mark.parametrize(
    ("rows", "batch", "form"),
    [
        (16, 8, "8 × 1"),
        (16, 7, "1 × 8"),
        (1024, 64, "8 × 1"),
        (1024, 32, "1 × 8"),  # an eighth of them: four tasks
        (1024, 1, "1 × 8"),
    ],
)
def test_a_form_with_more_processes_than_tasks_is_left_out(
    rows_of: Callable[..., dict[str, BenchRow]], rows: int, batch: int, form: str
) -> None:
    """It would give some no task, and end the run."""
    row = rows_of(shapes=(f"{rows}x2",), batch=batch)[f"tiny, regression, {rows:,} × 2"]
    assert row.note.endswith(f"processes × threads {form}")


@pytest.mark.parametrize(("batch", "rate"), [(16, 8.0), (19, 8.0), (7, 1.0)])
def test_tasks_that_the_other_was_not_given_are_not_counted_for_it(
    rows_of: Callable[..., dict[str, BenchRow]], batch: int, rate: float
) -> None:
    """Of 19 tasks each of 8 processes gets 2, which makes 16 in two seconds."""
    row = rows_of(shapes=("16x2",), batch=batch)["tiny against TabICL's network of our size, 16 × 2"]
    assert row.peer == pytest.approx(rate)
