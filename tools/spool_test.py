"""The spool: what was written since, once, whole lines only."""

import pathlib

from tools.spool import Point, Spool, Tail


def _points(spool: Spool) -> list[Point]:
    """Takes what waits."""
    spool.read()
    taken, spool.points = spool.points, []
    return taken


def test_only_what_is_new_is_read_and_a_line_only_when_it_is_whole(tmp_path: pathlib.Path) -> None:
    """K1: the file grows while it is read."""
    path = tmp_path / "metrics.jsonl"
    spool = Spool(path, prefix="regression/")
    assert _points(spool) == [] and spool.pending() == 0
    path.write_text('{"step": 1, "loss": 2}\n{"step": 2, "lo')
    assert _points(spool) == [Point(key="regression/loss", step=1, value=2.0)]
    with path.open("a") as file:
        file.write('ss": 3}\n')
    assert spool.pending() == 1 and spool.pending() == 1
    assert _points(spool) == [Point(key="regression/loss", step=2, value=3.0)]


def test_a_file_that_a_resume_cut_back_gives_only_new_steps(tmp_path: pathlib.Path) -> None:
    """K1: once per (key, step)."""
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "loss": 0}}\n' for step in range(5)))
    spool = Spool(path)
    assert len(_points(spool)) == 5
    path.write_text("".join(f'{{"step": {step}, "loss": 0}}\n' for step in range(3)))
    assert _points(spool) == []
    with path.open("a") as file:
        file.write("".join(f'{{"step": {step}, "loss": 0}}\n' for step in range(3, 7)))
    assert [point.step for point in _points(spool)] == [5, 6]


def test_rows_without_a_step_and_values_that_are_no_numbers_are_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = ('{"loss": 1}', "[1]", '{"step": "x", "loss": 1}', '{"step": 1, "a": true, "b": null, "c": "d", "e": 0.5}')
    path.write_text("".join(row + "\n" for row in rows))
    assert _points(Spool(path)) == [Point(key="e", step=1, value=0.5)]


def test_damaged_lines_are_left_out_and_what_stands_behind_them_is_read(tmp_path: pathlib.Path) -> None:
    """K1: also one whose brackets go deeper than a parser follows."""
    path = tmp_path / "metrics.jsonl"
    rows = ('{"step": 1, "lo', "[" * 1_000_000, '{"step": ' * 1_000_000, '{"step": 2, "loss": 3}')
    path.write_text("".join(row + "\n" for row in rows))
    spool = Spool(path)
    assert _points(spool) == [Point(key="loss", step=2, value=3.0)] and spool.pending() == 0


def test_metrics_of_the_machine_keep_their_prefix_in_front(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "system/cpu": 5, "train/loss": 2}\n')
    assert [point.key for point in _points(Spool(path, prefix="regression/"))] == [
        "system/regression/cpu",
        "regression/train/loss",
    ]


def test_a_tail_begins_again_where_another_file_took_the_name_even_a_longer_one(tmp_path: pathlib.Path) -> None:
    path, other = tmp_path / "events.jsonl", tmp_path / "new"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n')
    assert tail.read() == [{"a": 1}] and tail.restarts == 0
    other.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    other.replace(path)
    assert tail.read() == [{"a": 1}, {"a": 2}, {"a": 3}] and tail.restarts == 1
    tail.skip()
    assert tail.read() == []
