"""Tests of the cost program and of the tables in docs/cost.md."""

import io
import pathlib

import pytest
import rich.console

from bench import cost
from bench.cost_model import model_cost
from bench.cost_tables import CostTable, computed, renewed
from priors.task import TaskKind
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


@pytest.mark.parametrize(
    "flags", [{"mfu": 0.0}, {"mfu": 1.5}, {"chip_tflops": 0.0}, {"gpus": (0,)}, {"mtbf_hours": -1.0}]
)
def test_numbers_with_which_nothing_can_be_reckoned_are_refused(flags: dict[str, float]) -> None:
    with pytest.raises(Failure) as refused:
        cost.CostConfig(**flags)
    assert refused.value.code is ExitCode.BAD_FLAG and str(next(iter(flags.values()))) in refused.value.message
