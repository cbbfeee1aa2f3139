"""One backbone under two networks: everything but label encoders and heads is the same tensor in both (seed 6.11).

Each of the two stays an ordinary `Network`: it predicts, is audited and is saved as if the other were not there.
"""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from torch import nn

from model.bucket_borders import BucketConfig
from model.icl_transformer import ICLConfig
from model.label_injection import LabelKind
from model.network import CellConfig, Network, NetworkConfig
from model.regression_heads import RegressionHeadConfig
from tools.config import to_json
from tools.failure import BadInput, ExitCode

_OWN = ("head.", "column_labels.", "icl.injection.encoder.", "icl.injection.unknown_label")
_OWN_CONFIGS = ("kind", "classification", "regression")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterCounts:
    """How many numbers are trained; what is shared is counted once.

    Args:
        joint: both networks together.
        shared: the backbone.
        single: each single-task network, by kind.
    """

    joint: int
    shared: int
    single: dict[LabelKind, int]

    def excess(self, kind: LabelKind) -> float:
        """Parameters of the joint network over those of one single-task network, less 1."""
        return self.joint / self.single[kind] - 1


class SharedBackbone(nn.Module):
    """A classification and a regression network on one backbone; made by `share_backbone`."""

    def __init__(self, classification: Network, regression: Network) -> None:
        super().__init__()
        self.networks = nn.ModuleDict({"classification": classification, "regression": regression})

    def network(self, kind: LabelKind) -> Network:
        """The whole network of one kind."""
        return self.networks[kind.value]

    def shared(self) -> dict[str, nn.Parameter]:
        """The backbone's parameters under the names that they have in either network."""
        named = self.network(LabelKind.CLASSIFICATION).named_parameters()
        return {name: parameter for name, parameter in named if is_shared(name)}

    def stages(self) -> dict[str, list[str]]:
        """Stage of the backbone → names of its parameters, in the order of a forward pass."""
        found: dict[str, list[str]] = {}
        for name in self.shared():
            found.setdefault(_stage(name), []).append(name)
        return found

    def counts(self) -> ParameterCounts:
        """How many parameters there are."""
        return ParameterCounts(
            joint=_size(self.parameters()),
            shared=_size(iter(self.shared().values())),
            single={kind: _size(self.network(kind).parameters()) for kind in LabelKind},
        )


def share_backbone(
    classification: Network, regression: Network, *, backbone: LabelKind = LabelKind.CLASSIFICATION
) -> SharedBackbone:
    """Puts copies of two single-task networks on one backbone; each keeps its own label encoders and head.

    Args:
        classification: of kind classification.
        regression: of kind regression, its sizes those of the other.
        backbone: whose backbone weights both start from. That network predicts what it did before; the other one
            starts with a head and label encoders that were trained on another backbone.

    Raises:
        BadInput: CONFIG_MISMATCH, naming the first size in which the two differ.
    """
    check_agreement(classification.config, regression.config)
    networks = {
        LabelKind.CLASSIFICATION: copy.deepcopy(classification),
        LabelKind.REGRESSION: copy.deepcopy(regression),
    }
    source = dict(networks[backbone].named_parameters())
    other = next(network for kind, network in networks.items() if kind is not backbone)
    for name, parameter in list(other.named_parameters()):
        if is_shared(name):
            owner, _, leaf = name.rpartition(".")
            assert parameter.shape == source[name].shape, name
            setattr(other.get_submodule(owner), leaf, source[name])
    return SharedBackbone(networks[LabelKind.CLASSIFICATION], networks[LabelKind.REGRESSION])


def is_shared(name: str) -> bool:
    """Whether a network's parameter belongs to the backbone; whatever reads or stands for a label does not."""
    return not name.startswith(_OWN)


def check_agreement(classification: NetworkConfig, regression: NetworkConfig) -> None:
    """Refuses two configs that cannot share a backbone.

    Raises:
        BadInput: CONFIG_MISMATCH, naming the first size in which they differ; BAD_FLAG for two of one kind.
    """
    for config, kind in ((classification, LabelKind.CLASSIFICATION), (regression, LabelKind.REGRESSION)):
        if config.kind is not kind:
            what = f"the {kind} network is of kind {config.kind}"
            raise BadInput(ExitCode.BAD_FLAG, f"{what}: give one network of each kind")
    left, right = _flat(to_json(classification)), _flat(to_json(regression))
    for name in left:
        if name.split(".")[0] not in _OWN_CONFIGS and left[name] != right[name]:
            what = f"{name} is {left[name]} in the classification network and {right[name]} in the regression network"
            raise BadInput(ExitCode.CONFIG_MISMATCH, f"{what}: one backbone needs equal sizes; train both with one")


def slender(kind: LabelKind) -> NetworkConfig:
    """1.4 M parameters; the partner's label encoders and head add less than 5 % to either network (seed 1.7).

    In `tiny` they would add 9 % to the classification network: its backbone is shorter and its bar head finer.
    """
    return NetworkConfig(
        kind=kind,
        cell=CellConfig(num_rounds=1),
        icl=ICLConfig(num_blocks=10),
        regression=RegressionHeadConfig(buckets=BucketConfig(num_buckets=64)),
    )


def _stage(name: str) -> str:
    """The module path of a stage: a numbered block, a part of the ICL stage, or a module of the network."""
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    if numbered is not None:
        return ".".join(parts[: numbered + 1])
    return ".".join(parts[:2]) if parts[0] == "icl" else parts[0]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """{"icl.width": 128, …} of nested objects."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{prefix}.{name}" if prefix else name)
    return found


def _size(parameters: Iterator[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
