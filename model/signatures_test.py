"""Interfaces of every module of the package: no forward pass can be handed a query label."""

import dataclasses
import inspect
import pathlib
import re

from torch import nn

from model import (
    attention,
    cell_embedding,
    classification_head,
    column_embedding,
    icl_transformer,
    label_injection,
    length_scaling,
    network,
    regression_heads,
    row_embedding,
    shared_backbone,
)
from model.network import NetworkInputs

_MODULES = (
    attention,
    cell_embedding,
    classification_head,
    column_embedding,
    icl_transformer,
    label_injection,
    length_scaling,
    network,
    regression_heads,
    row_embedding,
    shared_backbone,
)
_QUERY_LABEL = re.compile(r"(y|labels?|targets?|answers?)(_query|_queries)?|query_(y|labels?|targets?|answers?)")
_CONTEXT_LABELS = {"model.label_injection.LabelEncoder", "model.column_embedding.ColumnBlock"}  # context's


def test_no_forward_in_the_package_takes_a_query_label() -> None:
    """5.8: `y_query` is in no forward signature anywhere, nor in `NetworkInputs`."""
    forwards = {}
    for module in _MODULES:
        for name, member in inspect.getmembers(module, inspect.isclass):
            if issubclass(member, nn.Module) and member.__module__ == module.__name__:
                forwards[f"{module.__name__}.{name}"] = list(inspect.signature(member.forward).parameters)
    for path in pathlib.Path(network.__file__).parent.glob("*.py"):  # a new module is not forgotten above
        text = path.read_text()
        listed = path.stem in {module.__name__.rpartition(".")[2] for module in _MODULES}
        assert listed or path.name.endswith("_test.py") or "(nn.Module)" not in text, path
    assert len(forwards) >= 15
    assert all(_QUERY_LABEL.fullmatch(name) for name in ("y_query", "query_labels", "targets", "answers"))
    for owner, parameters in forwards.items():
        for parameter in parameters:
            known = parameter == "labels" and owner in _CONTEXT_LABELS
            assert known or not _QUERY_LABEL.fullmatch(parameter), (owner, parameter)
    fields = {field.name for field in dataclasses.fields(NetworkInputs)}
    masks = {"context_mask", "query_mask", "label_mask"}
    assert fields == {"x_context", "y_context", "x_query", "column_kinds", "num_classes", "has_padding"} | masks
