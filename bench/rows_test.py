"""Tests of bench/rows.py: medians, ratios and goals, and that sides are measured in turn."""

import io

import rich.console

from bench.rows import BenchRow, bench_table, in_turn, measured_row


def test_a_row_holds_medians_spread_and_ratio() -> None:
    row = measured_row(name="a", unit="tasks/s", ours=[10.0, 30.0, 20.0], peer=[1.0, 4.0, 2.0], least_ratio=10.0)
    assert (row.ours, row.peer, row.ratio, row.met) == (20.0, 2.0, 10.0, True)
    assert (row.ours_range, row.peer_range, row.goal) == ((10.0, 30.0), (1.0, 4.0), "≥ 10 ×")
    assert row.record()["ratio"] == 10.0
    assert not measured_row(name="a", unit="", ours=[10.0], peer=[1.01], least_ratio=10.0).met


def test_without_a_peer_or_a_goal_nothing_is_judged() -> None:
    alone = measured_row(name="a", unit="tasks/s", ours=[1.0], least_ratio=10.0)
    assert (alone.peer, alone.ratio, alone.met) == (None, None, None)
    assert measured_row(name="a", unit="tasks/s", ours=[1.0], peer=[1.0]).met is None


def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[tuple[str, int]] = []

    def side(name: str, value: float) -> float:
        calls.append((name, len(calls)))
        return value + len(calls)

    seen = [
        ([list(one) for one in values], done)
        for values, done in in_turn([lambda n: side("a", n), lambda n: side("b", n)], rounds=2)
    ]
    assert "".join(name for name, _ in calls) == "ababab"
    assert seen == [([[3.0], [4.0]], 1), ([[3.0, 6.0], [4.0, 7.0]], 2)]


def test_the_table_shows_every_row_with_its_verdict() -> None:
    rows = [
        measured_row(name="fast", unit="tasks/s", ours=[1234.0, 1300.0], peer=[10.0], least_ratio=30.0),
        BenchRow(name="slow", unit="GB/s", ours=0.5, goal="≥ 1", met=False, note="on one core"),
    ]
    console = rich.console.Console(width=110, record=True, file=io.StringIO())
    console.print(bench_table(rows, title="Bench", peer="tabicl"))
    text = console.export_text()
    fast = next(line for line in text.splitlines() if "fast" in line)
    slow = next(line for line in text.splitlines() if "slow" in line)
    assert all(part in fast for part in ("1,267", "(1,234–1,300)", "126.7 ×", "≥ 30 × ✓", "tasks/s"))
    assert "≥ 1 ✗" in slow and "0.5" in slow
    assert "on one core" in text and "tabicl" in text and "Bench" in text
