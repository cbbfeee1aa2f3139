"""Cost of a prediction: operations follow the formula exactly; what is timed is what is reported."""

import dataclasses

import numpy as np
import pytest
import torch

from eval import prediction_cost
from eval.prediction_cost import GrowthConfig, Way, count_flops, fast_way, growth, measured, predict_way, remember_way
from eval.small_network import small_config, small_network
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import TaskKind
from tools.failure import BadInput

KINDS = list(TaskKind)
_FUSED_TOO = (50, 100, 150, 2910)


def _flops(
    network: Network, way: Way, *, context: tuple[int, ...], query: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    """Operations over context rows, and over query rows."""
    config = GrowthConfig(context_rows=context, query_rows=query, fixed_context_rows=40, fixed_query_rows=8, repeats=1)
    found = measured(network, way=way, config=config, with_flops=True)
    return found["context_flops"], found["query_flops"]


@pytest.mark.parametrize("kind", KINDS)
def test_operations_are_quadratic_in_the_context_and_linear_in_the_queries(kind: TaskKind) -> None:
    """1.6: exactly so: third differences over N are 0 and second ones are attention's; second ones over M are 0."""
    network = small_network(kind)
    over_context, over_query = _flops(network, fast_way(network), context=(50, 100, 150, 200), query=(10, 20, 30, 40))
    icl = network.config.icl
    per_pair = 2 * 2 * icl.width * icl.num_blocks  # q·k and weights·v, a multiply and an add
    assert np.diff(over_context, n=2).tolist() == [2 * 50**2 * per_pair] * 2
    assert np.diff(over_query, n=2).tolist() == [0, 0] and over_query[1] > over_query[0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_is_quadratic_and_what_is_predicted_from_it_linear_in_both(kind: TaskKind) -> None:
    """1.6, 5.1: the cache pays the quadratic part once."""
    network = small_network(kind)
    sizes = {"context": (50, 100, 150, 200), "query": (10, 20, 30, 40)}
    context, query = _flops(network, remember_way(network), **sizes)
    assert (np.diff(context, n=2) > 0).all() and (np.diff(query) == 0).all()
    context, query = _flops(network, predict_way(network), **sizes)
    assert (np.diff(context, n=2) == 0).all() and (np.diff(context) > 0).all() and (np.diff(query, n=2) == 0).all()


def test_the_fused_attention_of_large_contexts_is_counted_too() -> None:
    """1.6: beyond the size at which attention goes to the fused kernel the counts stay on the same parabola."""
    config = small_config(TaskKind.REGRESSION)
    icl = dataclasses.replace(config.icl, num_blocks=1, num_heads=8)
    network = small_network(TaskKind.REGRESSION, config=dataclasses.replace(config, icl=icl)).requires_grad_(False)
    counts = [count_flops(fast_way(network).prepare(prediction_cost._inputs(network, n, 10))) for n in _FUSED_TOO]
    parabola = np.polyfit(_FUSED_TOO[:3], counts[:3], 2)
    assert 8 * _FUSED_TOO[-1] ** 2 > 1 << 26  # logits: as many are never held at once
    assert counts[3] == pytest.approx(np.polyval(parabola, _FUSED_TOO[-1]), rel=1e-6)


def test_growth_has_the_reports_form_and_leaves_the_network_as_it_was() -> None:
    """1.6: what the report draws."""
    network, threads = small_network(TaskKind.CLASSIFICATION), torch.get_num_threads()
    network.icl.path = AttentionPath.CACHED
    found = growth(network, config=GrowthConfig(context_rows=(8, 16), query_rows=(4, 8, 12), repeats=2))
    assert found["context_rows"] == [8, 16] and found["query_rows"] == [4, 8, 12]
    assert len(found["context_seconds"]) == 2 and len(found["query_seconds"]) == 3
    assert min(found["context_seconds"] + found["query_seconds"]) > 0 and "context_flops" not in found
    assert all(weight.requires_grad for weight in network.parameters())
    assert network.icl.path is AttentionPath.CACHED and torch.get_num_threads() == threads


def test_the_median_of_the_repeats_is_what_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(prediction_cost.time, "perf_counter", lambda: next(clock))
    calls: list[int] = []
    assert prediction_cost._median_seconds(lambda: calls.append(1), repeats=3) == 2.0
    assert len(calls) == 4  # one to warm up


@pytest.mark.parametrize(("budget", "context"), [(10.0, [8]), (100.0, [8, 16]), (None, [8, 16, 160])])
def test_a_budget_leaves_out_the_largest_sizes(
    monkeypatch: pytest.MonkeyPatch, budget: float | None, context: list[int]
) -> None:
    """1.6: half for each side; the next size is taken for quadratic, and is run twice for one repeat."""
    monkeypatch.setattr(prediction_cost, "_median_seconds", lambda run, repeats: 1.0)
    config = GrowthConfig(context_rows=(8, 16, 160), query_rows=(8,), repeats=1, budget_seconds=budget)
    found = growth(small_network(TaskKind.CLASSIFICATION), config=config)
    assert found["context_rows"] == context and found["context_seconds"] == [1.0] * len(context)
    assert found["query_rows"] == [8]


def test_slopes_are_exponents_of_the_last_sizes() -> None:
    rows = [1, 2, 4, 8, 16]
    assert prediction_cost.slope(rows, [100, 100, 3 * 16, 3 * 64, 3 * 256]) == pytest.approx(2.0)
    assert prediction_cost.slope([5], [1.0]) is None


def test_a_product_of_matrices_counts_two_operations_for_each_multiply_add() -> None:
    assert count_flops(lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7


@pytest.mark.parametrize(
    "changes", [{"context_rows": ()}, {"query_rows": (4, 4)}, {"context_rows": (0, 1)}, {"repeats": 0}]
)
def test_sizes_that_mean_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(changes))):
        growth(small_network(TaskKind.CLASSIFICATION), config=GrowthConfig(**changes))
