"""Mini against official: where this network is TabPFN-3's design, and where it is smaller or simpler (seed 5.10).

Source of the right-hand column: the TabPFN-3 code that Prior Labs publishes (package tabpfn 9.2.0, architecture v3)
and its report. The left-hand column is filled from the run's own configuration; what the configuration lacks is said
to be missing, never assumed. A simplification carries the word Mini in the module that makes it and in this table.
"""

import dataclasses
import enum
import string
from collections.abc import Mapping
from typing import Any


class Relation(enum.StrEnum):
    """How a feature relates to the official one."""

    MINI = "Mini"
    SAME = "same"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
    """One row of the table.

    Args:
        feature: what is compared.
        ours: a text whose {dotted.keys} are filled from the network's configuration.
        official: the same in TabPFN-3.
        relation: whether ours is a simplification; one that comes out equal to the official one is the same.
    """

    feature: str
    ours: str
    official: str
    relation: Relation


_COMMON = (
    Fact(
        feature="Cell width",
        ours="{cell.width}",
        official="128",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Features of a cell",
        ours="soft-clipped z-score, mid-rank in the context, NaN and ±inf flags, Fourier features; categories by code",
        official="scaled value (context mean where missing), NaN and ±inf flags",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Feature group of a cell in column j",
        ours="j + {cell.feature_offsets} (mod C)",
        official="j + [1, 2, 4] (mod C)",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Column stage",
        ours="{cell.num_rounds} rounds, {cell.num_heads} heads, {cell.num_inducing} inducing points",
        official="3 rounds, 8 heads, 128 inducing points",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Labels in the column stage (target-aware)",
        ours="{cell.target_aware}",
        official="yes",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Row stage",
        ours="{cell.num_rounds} rounds through {cell.num_tokens} temporary tokens, no positions",
        official="3 blocks, 8 heads, rotary positions (base 1e5)",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Row token",
        ours="{readout.num_summaries} summary tokens and a sketch of {readout.sketch_width} entries (signed by column, "
        "summed), mixed to {icl.width}",
        official="4 CLS tokens, flattened to 512",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="ICL stage",
        ours="{icl.num_blocks} blocks, {icl.num_heads} heads, width {icl.width}",
        official="24 blocks, 8 heads, width 512",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Who reads whom",
        ours="context → context, query → context",
        official="train → train, test → train",
        relation=Relation.SAME,
    ),
    Fact(
        feature="Key/value heads that query rows read in ICL, the first of all (icl_num_kv_heads_test)",
        ours="{icl.num_kv_heads_query}",
        official="1",
        relation=Relation.MINI,
    ),
    Fact(
        feature="QASSMax in ICL: queries × base(log N) × (1 + tanh(modulation))",
        ours="{icl.length_scaling}",
        official="yes",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Role embeddings of context and query rows",
        ours="{icl.role_embeddings}",
        official="no",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Normalisation",
        ours="pre-norm, {icl.norm}",
        official="pre-norm, RMSNorm",
        relation=Relation.OTHER,
    ),
)
_CLASSIFICATION = (
    Fact(
        feature="Label embedding",
        ours="{icl.class_code} at the start, trainable; {icl.max_classes} classes at most",
        official="orthogonal at the start, trainable; 160 classes at most",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Classification head (heads × width is no class limit)",
        ours="{classification.kind}, {classification.num_heads} heads of width {classification.head_width}",
        official="retrieval, 6 heads of width 64",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Length scaling in the classification head",
        ours="{classification.length_scaling}",
        official="none",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Class logits",
        ours="form {classification.log_form}, over the classes that the context holds",
        official="form tabpfn3, log(max(p, 1e-05) + 3e-05), over all classes",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Classes that the context lacks",
        ours="probability 0 by structure, masked in the loss",
        official="a floor of about 4e-5 each",
        relation=Relation.OTHER,
    ),
)
_REGRESSION = (
    Fact(
        feature="Label encoding",
        ours="a perceptron of the target, scaled by the context, and its sine and cosine waves",
        official="a linear layer of the target",
        relation=Relation.OTHER,
    ),
    Fact(
        feature="Regression head",
        ours="{regression.kind}: {icl.width} → 2 × {icl.width} → {regression.buckets.num_buckets} buckets, "
        "{regression.buckets.rule} borders",
        official="bar: 512 → 2 × 512 → 5000 buckets, tabpfn3 borders",
        relation=Relation.MINI,
    ),
)
_LAST = (
    Fact(
        feature="Prediction",
        ours="mean over {scoring.num_estimators} orders of features and classes, no temperature",
        official="mean over 8 orders of features and classes, temperature 0.9",
        relation=Relation.MINI,
    ),
    Fact(
        feature="Prior and pretraining",
        ours="open: this repository, this run's configuration",
        official="not published",
        relation=Relation.OTHER,
    ),
)


def facts(kind: str) -> tuple[Fact, ...]:
    """The rows for one kind of model."""
    return _COMMON + (_CLASSIFICATION if kind == "classification" else _REGRESSION) + _LAST


def aligned_facts(kind: str, config: Any) -> list[Fact]:
    """The rows with the numbers of a run's own configuration, as config.json holds it."""
    network = network_config(config, kind=kind) or {}
    scoring = next((node for node in _objects(config) if "num_estimators" in node), {})
    return [_filled(fact, {**network, "scoring": scoring}) for fact in facts(kind)]


def network_config(config: Any, *, kind: str) -> Mapping[str, Any] | None:
    """The network's part of a run's configuration: an object with a cell and an ICL stage, of `kind` if it says."""
    found = [node for node in _objects(config) if "cell" in node and "icl" in node]
    exact = [node for node in found if node.get("kind") == kind]
    return (exact or [node for node in found if "kind" not in node] or [None])[0]


def _objects(node: Any) -> list[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        return [node] + [inner for value in node.values() for inner in _objects(value)]
    if isinstance(node, list):
        return [inner for value in node for inner in _objects(value)]
    return []


def _filled(fact: Fact, network: Mapping[str, Any]) -> Fact:
    keys = [key for _, key, _, _ in string.Formatter().parse(fact.ours) if key]
    text = fact.ours
    for key in keys:
        text = text.replace("{" + key + "}", _shown(_at(network, key)))
    return dataclasses.replace(fact, ours=text, relation=Relation.SAME if text == fact.official else fact.relation)


_MISSING = object()


def _at(node: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return _MISSING
        node = node[part]
    return node


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "(not recorded)"
    words = {True: "yes", False: "no", None: "all", "rms": "RMSNorm", "layer": "LayerNorm"}
    return words.get(value, str(value)) if isinstance(value, (bool, str)) or value is None else str(value)
