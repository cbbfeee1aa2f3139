"""Golden tests of the network sizes: a change of a default shows as a change of a file in testdata/."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from model import presets
from model.bucket_borders import bucket_borders
from model.class_distribution import LogForm
from model.label_injection import LabelKind
from model.length_scaling import QASSMax
from model.network import Network, NetworkConfig
from tools import config as configs

_GOLDEN = pathlib.Path(__file__).parent / "testdata"
_PRESETS = [presets.tiny, presets.small, presets.base, presets.large, presets.official]


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
    """K_max = 10 and 100 features in tiny and small; H = 6, D_h = 64 and 160 classes at the full sizes (6.1)."""
    counts = [_record(make)["classification"]["parameters"] for make in _PRESETS]
    assert counts == sorted(counts)
    made = [make(LabelKind.CLASSIFICATION) for make in _PRESETS]
    assert [config.icl.max_classes for config in made] == [10, 10, 32, 160, 160]
    assert [config.max_features for config in made] == [100, 100, 200, 500, 500]
    assert [(config.classification.num_heads, config.classification.head_width) for config in made[-2:]] == [
        (6, 64)
    ] * 2


def test_the_official_preset_has_the_published_sizes() -> None:
    """5.10, 6.1, 6.9: read from the modules, which are built without memory."""
    with torch.device("meta"):
        network, regression = (Network(presets.official(kind)) for kind in LabelKind)
    assert all(part.is_meta for net in (network, regression) for part in (*net.parameters(), *net.buffers()))
    assert (len(network.column_blocks), len(network.row_blocks), len(network.icl.blocks)) == (3, 3, 24)
    assert network.column_blocks[0].inducing_points.shape == (128, 128)
    assert network.row_readout.summaries.shape == (4, 128)
    attention = network.icl.blocks[0].attention
    assert (attention.num_heads, attention.num_query_side, attention.query.weight.shape) == (8, 1, (512, 512))
    assert network.icl.blocks[0].feed_forward.inner.weight.shape == (1024, 512)
    assert isinstance(attention.scaling, QASSMax) and isinstance(network.icl.norm, torch.nn.RMSNorm)
    assert network.icl.injection.encoder.classes.weight.shape == (160, 512)
    assert network.icl.injection.query_role is None
    assert {name: tuple(part.shape) for name, part in network.head.named_parameters()} == {
        "query.weight": (384, 512), "query.bias": (384,), "key.weight": (384, 512)
    }  # fmt: skip
    assert network.config.classification.log_form is LogForm.TABPFN3
    widths = [part.shape[0] for part in regression.head.parameters() if part.dim() == 2]
    assert widths == [1024, 5000]
    borders = bucket_borders(regression.config.regression.buckets)
    assert borders[[0, 5, 1000, 2500, 4000, 5000]].tolist() == pytest.approx([-128, -16.9, -4.4, 0, 4.4, 128])
