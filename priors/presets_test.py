"""Tests of priors.presets: golden configurations."""

import dataclasses
import json
import pathlib
import re

import pytest

from priors.generation import ensure_shards
from priors.presets import CURRICULA, PRESETS
from priors.task import TaskKind
from tools.config import parse_preset, to_json

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_its_golden_file_says(name: str) -> None:
    found = to_json(PRESETS[name]())
    assert found == json.loads((GOLDEN / f"{name}.json").read_text()), json.dumps(found, indent=1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_it_costs(name: str) -> None:
    config, text = PRESETS[name](), PRESETS[name].__doc__ or ""
    a_task, tasks, total, unit = re.search(r"(\d+) KB a task \(([\d,]+) tasks: ([\d.]+) ([GM])B\)", text).groups()
    assert int(tasks.replace(",", "")) == config.num_tasks
    assert float(a_task) * 1e3 == pytest.approx(config.num_bytes() / config.num_tasks, rel=0.08)
    assert float(total) * {"G": 1e9, "M": 1e6}[unit] == pytest.approx(config.num_bytes(), rel=0.03)


def test_the_cost_is_that_of_real_shards(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(PRESETS["tiny"](), num_tasks=2048)
    found = ensure_shards(config.shards, out=tmp_path, num_tasks=config.num_tasks, seed=0)
    assert found.num_bytes == pytest.approx(config.num_bytes(), rel=0.35)


def test_the_kind_is_a_flag_and_changes_nothing_else() -> None:
    _, config = parse_preset(PRESETS, ["tiny", "--kind", "regression"], program="//priors:generate")
    assert config == PRESETS["tiny"]().with_kind(TaskKind.REGRESSION)
    assert config.shards.prior.kind is TaskKind.REGRESSION
    assert config.with_kind(TaskKind.CLASSIFICATION) == PRESETS["tiny"]()


def test_presets_grow() -> None:
    sizes = [(p.shards.prior.max_rows, p.shards.prior.max_features) for p in (PRESETS[name]() for name in CURRICULA)]
    assert sizes[:2] == sorted(sizes[:2]) and list(CURRICULA) == ["tiny", "small", "base", "large"]
    assert PRESETS["large"]().num_tasks > PRESETS["base"]().num_tasks > PRESETS["small"]().num_tasks


def test_a_curriculum_goes_from_short_to_long_tables_and_shows_more_context() -> None:
    assert {stage.preset for stages in CURRICULA.values() for stage in stages} == set(PRESETS)
    for stages in CURRICULA.values():
        priors = [PRESETS[stage.preset]().shards.prior for stage in stages]
        for values in ([p.max_rows for p in priors], [s.split.min_share for s in stages]):
            assert values == sorted(set(values))
        weights = [dataclasses.replace(p.weights, gaussian_process=0.0) for p in priors]
        assert all(p.kind is priors[0].kind for p in priors) and weights == [weights[0]] * len(weights)
