"""Tests of the cost program and of the tables in docs/cost.md."""

import dataclasses
import io
import pathlib

import pytest
import rich.console

from bench import cost
from bench.cost_model import model_cost
from bench.cost_tables import CostTable, computed, renewed
from priors.task import TaskKind
from tools import config as configs
from tools.failure import ExitCode, Failure

_DOCUMENT = pathlib.Path("docs/cost.md")


def test_the_document_holds_the_tables_that_the_program_computes() -> None:
    """What depends on no machine: `bazel run //bench:cost -- --write` renews it."""
    costs = [model_cost(preset, kind) for preset in cost._PRESETS for kind in TaskKind]
    tables = list(computed(costs, cost.CostConfig().assumptions()))
    text = _DOCUMENT.read_text()
    assert renewed(text, name="computed tables", tables=tables) == text


def test_a_part_of_a_document_is_replaced_and_the_rest_stays() -> None:
    table = CostTable(title="T", headings=("model", "tasks"), rows=(("small", "1"),))
    text = "a\n<!-- x: written by //bench:cost -->\nold\n<!-- end of x -->\nb\n"
    new = renewed(text, name="x", tables=[table])
    assert new.startswith("a\n<!-- x") and new.endswith("<!-- end of x -->\nb\n") and "old" not in new
    assert "| small | 1 |" in new and renewed(new, name="x", tables=[table]) == new
    with pytest.raises(Failure) as refused:
        renewed(text, name="y", tables=[table])
    assert refused.value.code is ExitCode.NOT_FOUND


def test_a_table_is_shown_with_its_title_and_every_cell() -> None:
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    console.print(CostTable(title="T", headings=("model", "tasks"), rows=(("small", "1"), ("base", "2"))).terminal())
    text = console.export_text()
    assert all(word in text for word in ("T", "model", "tasks", "small", "base", "2"))


_NO_NUMBERS = {
    "mfu": ("0.0", "1.5", "nan"),
    "gpus": ("0", "16385"),
    "tasks_per_gpu": ("0", "10001"),
    **dict.fromkeys(cost._ABOVE_ZERO, ("0.0", "-1.0", "nan", "inf")),
    **dict.fromkeys(cost._FROM_ZERO, ("-1.0", "nan", "inf")),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, some in _NO_NUMBERS.items() for value in some])
def test_numbers_with_which_nothing_can_be_reckoned_are_refused_by_flag_and_value(name: str, value: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(Failure) as refused:
        configs.parse_flags(cost.CostConfig, [flag, value], program="//bench:cost")
    assert refused.value.code is ExitCode.BAD_FLAG and refused.value.message.startswith(f"{flag} {value} ")
    assert ": give " in refused.value.message


def test_every_number_is_checked_and_none_of_gpus_is_refused() -> None:
    numbers = {field.name for field in dataclasses.fields(cost.CostConfig)} - {"times", "write", "json"}
    assert set(_NO_NUMBERS) == numbers
    with pytest.raises(Failure, match="--gpus has no value: give one"):
        configs.parse_flags(cost.CostConfig, ["--gpus"], program="//bench:cost")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--json", "/proc/absent/cost.json"], ExitCode.NOT_WRITABLE, "--json /proc/absent is not writable"),
        (["--json", "/tmp"], ExitCode.NOT_WRITABLE, "--json /tmp is a folder"),
        (["--times", "/absent.json"], ExitCode.NOT_FOUND, "--times /absent.json holds no step times"),
        (["--write"], ExitCode.NOT_FOUND, "cost.md is not there: run this in the repository"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_anything_is_counted(
    flags: list[str], code: ExitCode, words: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "measure_times", None)
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    with pytest.raises(Failure) as refused:
        cost._main(flags)
    assert refused.value.code is code and words in refused.value.message
