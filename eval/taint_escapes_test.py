"""Only the model's own checks are trusted, and they can do nothing but raise."""

import ast
import inspect
import textwrap
import types

import pytest
import torch
from torch import Tensor

from eval.taint import TaintTracker, Untraceable
from eval.taint_escapes import trusted_checks
from model import bucket_borders, input_checks, levels

_WRITES = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Try, ast.With, ast.Delete, ast.AugAssign)


def _functions() -> dict[str, types.FunctionType]:
    found = {}
    for module in (input_checks, levels, bucket_borders):
        found |= {name: value for name, value in vars(module).items() if name in trusted_checks().values()}
    return found


def _guards(check: types.FunctionType, value: Tensor) -> TaintTracker:
    tracker = TaintTracker()
    tracker.mark(value, 4)
    with tracker:
        check(value)
    return tracker


@pytest.mark.parametrize("name", sorted(set(trusted_checks().values())))
def test_a_trusted_check_returns_nothing_and_writes_nothing(name: str) -> None:
    """What it learns cannot leave it but by an error."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(_functions()[name])))
    for node in ast.walk(tree):
        assert not isinstance(node, _WRITES)
        assert not isinstance(node, ast.Return) or node.value is None
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert all(isinstance(part, ast.Name | ast.Tuple | ast.Store) for part in ast.walk(target))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert not node.func.attr.endswith("_") and node.func.attr not in ("append", "add", "update", "setdefault")


def test_the_checks_of_inputs_and_levels_are_trusted() -> None:
    """They look at values, and go on."""
    tracker = _guards(lambda value: levels.check_levels("levels", value), torch.full((2,), 0.5))
    assert tracker.guards == {"check_levels": 1} and not tracker.branches
    tracker = _guards(lambda value: input_checks.check_labels(value, 2), torch.tensor([0.0, 1.0]))
    assert tracker.guards["check_labels"] > 0 and not tracker.branches


@pytest.mark.parametrize("module", ["model.other", "model.input_checks"])
def test_a_function_that_only_looks_like_a_check_is_a_branch(module: str) -> None:
    """Neither its name nor that of its module is enough: this one carries a value away."""
    kept: list[float] = []

    def check_rows(value: Tensor) -> None:
        kept.append(float(value.max()))

    impostor = types.FunctionType(
        check_rows.__code__, {"__name__": module}, closure=check_rows.__closure__, name="check_rows"
    )
    tracker = _guards(impostor, torch.ones(2))
    assert kept == [1.0] and tracker.branches and not tracker.guards


def test_a_check_that_writes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would tell by the tensor that it changes."""

    def check_marked(value: Tensor) -> None:
        value.add_(1)

    check_marked.__module__ = "model.levels"
    monkeypatch.setattr(levels, "check_marked", check_marked, raising=False)
    with pytest.raises(Untraceable, match="aten.add_: a check writes"):
        _guards(check_marked, torch.ones(2))
