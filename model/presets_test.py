"""Golden tests of the network sizes: a change of a default shows as a change of a file in testdata/."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from model import presets
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from tools import config as configs

_GOLDEN = pathlib.Path(__file__).parent / "testdata"
_PRESETS = [presets.tiny, presets.small, presets.base, presets.large]


def _record(make: Callable[[LabelKind], NetworkConfig]) -> dict[str, Any]:
    """A preset's configs and parameter counts; networks are built on the meta device, without memory."""
    record = {}
    for kind in LabelKind:
        config = make(kind)
        with torch.device("meta"):
            network = Network(config)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        record[kind.value] = {"config": configs.to_json(config), "parameters": parameters}
    return record


@pytest.mark.parametrize("make", _PRESETS)
def test_a_preset_is_what_its_golden_file_says(make: Callable[[LabelKind], NetworkConfig]) -> None:
    """6.9 and 6.1: sizes, bucket range and policy, and the number of parameters."""
    golden, found = json.loads((_GOLDEN / f"{make.__name__}.json").read_text()), _record(make)
    assert found == golden, f"if this is meant, testdata/{make.__name__}.json becomes:\n{json.dumps(found, indent=1)}"


@pytest.mark.parametrize("make", _PRESETS)
def test_a_preset_survives_json(make: Callable[[LabelKind], NetworkConfig]) -> None:
    """What a checkpoint records is what was trained."""
    for kind in LabelKind:
        assert configs.from_json(NetworkConfig, configs.to_json(make(kind))) == make(kind)


@pytest.mark.parametrize("make", _PRESETS)
def test_a_preset_tells_its_size(make: Callable[[LabelKind], NetworkConfig]) -> None:
    """The number in the docstring is that of the classification network, within a tenth."""
    told = float(re.search(r"([\d.]+) M parameters", make.__doc__).group(1)) * 1e6
    found = _record(make)["classification"]["parameters"]
    assert found == pytest.approx(told, rel=0.1)


def test_sizes_grow_and_the_small_ones_take_ten_classes_and_a_hundred_features() -> None:
    """K_max = 10 and 100 features in tiny and small; 160 classes at the full size (6.1)."""
    counts = [_record(make)["classification"]["parameters"] for make in _PRESETS]
    assert counts == sorted(counts)
    configs_of_classification = [make(LabelKind.CLASSIFICATION) for make in _PRESETS]
    assert [config.icl.max_classes for config in configs_of_classification] == [10, 10, 32, 160]
    assert [config.max_features for config in configs_of_classification] == [100, 100, 200, 500]
    full = configs_of_classification[-1].retrieval
    assert (full.num_heads, full.head_width) == (6, 64)
