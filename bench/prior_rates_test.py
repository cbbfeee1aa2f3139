"""Tests of the sections of the bench of priors that //tools:bench_test leaves out."""

import pytest

from bench import prior_rates
from bench.prior_rates import PriorsBenchConfig, Section, measure
from bench.rows import BenchRow

_SIZES = {"min_rows": 64, "max_rows": 64, "min_features": 2, "max_features": 2}


def test_sections_come_in_order_each_with_its_goal_and_are_saved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_rates, "_LARGE_ONLY", _SIZES)
    monkeypatch.setattr(prior_rates.os, "cpu_count", lambda: 2)
    sections, saved = (Section.VERIFY, Section.PYTHON, Section.PROCESSES), []
    config = PriorsBenchConfig(quick=True, rounds=1, seconds=0.02, batch=8, sections=sections)
    rows = measure(config, save=lambda found: saved.append([row.name for row in found]))
    python, processes, verify = rows[:3], rows[3:5], rows[5]
    assert all(row.name.startswith("time outside tensor kernels, ") and 0 < row.ours < 1 for row in python)
    assert [row.goal for row in processes] == ["≥ 1.8", "≥ 1.8"]
    assert all(row.name.startswith("2 processes against one, by ") and row.ours > 0 for row in processes)
    assert (verify.name, verify.unit, verify.goal) == ("shards verified", "GB/s", "≥ 1")
    assert [len(names) for names in saved] == [3, 5, 6] and _names(rows) == saved[-1]


def _names(rows: list[BenchRow]) -> list[str]:
    return [row.name for row in rows]
