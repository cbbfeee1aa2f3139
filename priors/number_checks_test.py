"""Tests of priors.number_checks: every field of the prior is looked at, and named by its flag."""

import dataclasses
from typing import Any

import pytest

from priors.causes import CauseConfig
from priors.families import FamilyConfigs
from priors.graph_scm import GraphSCMConfig
from priors.mixture import PriorConfig
from priors.number_checks import impossible_numbers
from priors.presets import PRESETS
from priors.random_graph import RandomGraphConfig
from priors.rules import RuleConfig
from tools.config import parse_preset


def paths(config: Any, *before: str) -> list[tuple[str, ...]]:
    """The path of every number in a config."""
    found = []
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), (*before, field.name)
        if dataclasses.is_dataclass(value):
            found += paths(value, *path)
        elif isinstance(value, int | float | tuple) and not isinstance(value, bool) and value != ():
            found.append(path)
    return found


def changed(config: Any, path: tuple[str, ...]) -> Any:
    """The config with one number made negative."""
    name, *rest = path
    value = getattr(config, name)
    if rest:
        return dataclasses.replace(config, **{name: changed(value, tuple(rest))})
    return dataclasses.replace(config, **{name: tuple(-item for item in value) if isinstance(value, tuple) else -value})


def test_presets_are_possible() -> None:
    for make in PRESETS.values():
        assert list(impossible_numbers(make().shards.prior)) == []


@pytest.mark.parametrize("path", paths(PriorConfig()), ids=".".join)
def test_every_number_of_the_prior_is_looked_at(path: tuple[str, ...]) -> None:
    try:
        config = changed(PriorConfig(), path)
    except Exception as error:  # what a part refuses by itself, it refuses when it is made
        assert path[-1].replace("_", "-") in str(error) or path[-1] in str(error)
        return
    complaints = list(impossible_numbers(config))
    assert any(f"{path[-1].replace(chr(95), chr(45))} " in text for text in complaints), complaints


@pytest.mark.parametrize(
    ("config", "flag", "value"),
    [
        (PriorConfig(causes=CauseConfig(clump_share=1.5)), "--causes.clump-share", "1.5"),
        (PriorConfig(families=FamilyConfigs(rules=RuleConfig(weights=(0.0,) * 5))), "--rules.weights", "0"),
    ],
)
def test_the_flag_and_its_value_are_named(config: PriorConfig, flag: str, value: str) -> None:
    (complaint,) = impossible_numbers(config)
    assert complaint.startswith(f"{flag} {value}")
    parse_preset(PRESETS, ["tiny", flag, *["1"] * (5 if "weights" in flag else 1)], program="//priors:generate")


def test_bounds_that_cross_are_named() -> None:
    graphs = RandomGraphConfig(min_nodes=9, max_nodes=4)
    (complaint,) = impossible_numbers(PriorConfig(families=FamilyConfigs(graph_scm=GraphSCMConfig(graphs=graphs))))
    assert complaint.startswith("--graph-scm.graphs.min-nodes 9 is above --graph-scm.graphs.max-nodes 4")
