"""Mini against official: our side comes from the run's own configuration."""

import pytest

from reports import alignment
from reports.alignment import Relation


def _config(**network: object) -> dict[str, object]:
    return {"config": {"classification": {"network": {"kind": "classification", **network}}}}


CONFIG = _config(
    cell={"width": 48, "num_rounds": 2, "num_heads": 2, "num_inducing": 16, "num_tokens": 4, "target_aware": False}
    | {"feature_offsets": [0, 2]},
    readout={"num_summaries": 5, "sketch_width": 70},
    icl={"num_blocks": 7, "num_heads": 3, "width": 96, "max_classes": 10, "norm": "rms"}
    | {"num_kv_heads_query": None, "length_scaling": True, "role_embeddings": True},
)


def _ours(kind: str, config: object) -> dict[str, str]:
    return {fact.feature: fact.ours for fact in alignment.aligned_facts(kind, config)}


def test_our_side_is_filled_from_the_configuration() -> None:
    """5.10: the report has a table Mini against official."""
    ours = _ours("classification", CONFIG)
    assert ours["ICL stage"] == "7 blocks, 3 heads, width 96"
    assert ours["Labels in the column stage (target-aware)"] == "no"
    assert ours["Row token"].startswith("5 summary tokens and a sketch of 70 entries")
    assert ours["Normalisation"] == "pre-norm, RMSNorm"
    assert ours["Feature group of a cell in column j"] == "j + [0, 2] (mod C)"
    assert next(text for feature, text in ours.items() if "icl_num_kv_heads_test" in feature) == "all"
    assert next(text for feature, text in ours.items() if "QASSMax" in feature) == "yes"


def test_what_comes_out_equal_is_called_the_same_and_a_missing_part_is_not() -> None:
    found = {fact.feature: fact.relation for fact in alignment.aligned_facts("classification", CONFIG)}
    assert found["Normalisation"] is Relation.SAME
    assert found["Labels in the column stage (target-aware)"] is Relation.MINI


def test_what_the_configuration_lacks_is_not_assumed() -> None:
    assert "(not recorded)" in _ours("classification", CONFIG)["Class logits"]
    assert "(not recorded)" in _ours("regression", None)["Regression head"]


def test_the_network_of_the_right_kind_is_found() -> None:
    both = {"a": [{"kind": "regression", "cell": {}, "icl": {}}, {"kind": "classification", "cell": 1, "icl": 2}]}
    assert alignment.network_config(both, kind="classification") == {"kind": "classification", "cell": 1, "icl": 2}
    assert alignment.network_config({"x": 1}, kind="classification") is None


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_every_simplification_that_the_course_names_has_a_row(kind: str) -> None:
    """5.10, 6.1, 6.9: multi-query, QASSMax, label embedding, head sizes, and that 6×64 is no class limit."""
    text = " ".join(f"{fact.feature} {fact.official}" for fact in alignment.facts(kind))
    for word in ("icl_num_kv_heads_test", "QASSMax", "test → train"):
        assert word in text
    needed = ("160 classes", "6 heads of width 64", "is no class limit") if kind == "classification" else ("5000",)
    assert all(word in text for word in needed)
    assert any(fact.relation is Relation.MINI for fact in alignment.facts(kind))
