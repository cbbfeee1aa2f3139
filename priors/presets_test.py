"""Tests of priors.presets: golden configurations."""

import json
import pathlib

import pytest

from priors.presets import PRESETS
from priors.task import TaskKind
from tools.config import parse_preset, to_json

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_its_golden_file_says(name: str) -> None:
    found = to_json(PRESETS[name]())
    assert found == json.loads((GOLDEN / f"{name}.json").read_text()), json.dumps(found, indent=1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_it_costs(name: str) -> None:
    text = PRESETS[name].__doc__ or ""
    assert "rows" in text and "B a task" in text and "tasks:" in text


def test_the_kind_is_a_flag_and_changes_nothing_else() -> None:
    _, config = parse_preset(PRESETS, ["tiny", "--kind", "regression"], program="//priors:generate")
    assert config == PRESETS["tiny"]().with_kind(TaskKind.REGRESSION)
    assert config.shards.prior.kind is TaskKind.REGRESSION
    assert config.with_kind(TaskKind.CLASSIFICATION) == PRESETS["tiny"]()


def test_presets_grow() -> None:
    sizes = [
        (p.shards.prior.max_rows, p.shards.prior.max_features, p.num_tasks) for p in (f() for f in PRESETS.values())
    ]
    assert sizes == sorted(sizes)
    assert list(PRESETS) == ["tiny", "small", "base", "large"]
