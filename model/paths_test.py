"""The three paths compute one function, whatever the options: drawn networks, drawn batches, every pair of ways."""

import dataclasses
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from model.attention import Norm
from model.icl_transformer import AttentionPath
from model.label_injection import ClassCode, LabelKind
from model.network import Network, NetworkConfig, NetworkInputs
from model.specimens import distance, redraw, specimen_config, specimen_inputs, stack_padded, take, values

KINDS = list(LabelKind)
PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
_ICL_OPTIONS = {
    "num_kv_heads_query": [None, 1],
    "length_scaling": [False, True],
    "num_thinking_rows": [0, 3],
    "residual_decay": [1.0, 0.8],
    "class_code": list(ClassCode),
    "role_embeddings": [True, False],
    "norm": list(Norm),
}
_CELL_OPTIONS = {"target_aware": [True, False], "num_rounds": [1, 2]}


def _drawn(options: dict[str, list[Any]]) -> strategies.SearchStrategy[dict[str, Any]]:
    return strategies.fixed_dictionaries({name: strategies.sampled_from(ways) for name, ways in options.items()})


def _config(kind: LabelKind, icl: dict[str, Any], cell: dict[str, Any]) -> NetworkConfig:
    config = specimen_config(kind)
    return dataclasses.replace(
        config, icl=dataclasses.replace(config.icl, **icl), cell=dataclasses.replace(config.cell, **cell)
    )


def _network(config: NetworkConfig, *, dtype: torch.dtype, seed: int = 0) -> Network:
    network = Network(config)
    redraw(network, seed=seed, gain=1.0)
    return (network.double() if dtype is torch.float64 else network).eval()


def _tables(kind: LabelKind, *, dtype: torch.dtype, unlabelled: bool) -> list[NetworkInputs]:
    """Tables of different sizes; where asked, every third context row has no label."""
    sizes = [(9, 4, 5), (1, 2, 3), (6, 4, 2)]  # context rows, queries, columns
    tables = [
        specimen_inputs(kind, tables=1, context=n, queries=m, columns=c, seed=seed, dtype=dtype)
        for seed, (n, m, c) in enumerate(sizes)
    ]
    if not unlabelled:
        return tables
    return [dataclasses.replace(t, label_mask=(torch.arange(t.y_context.shape[1]) % 3 != 0)[None]) for t in tables]


def _predict(network: Network, inputs: NetworkInputs, *, path: AttentionPath) -> Tensor:
    network.icl.path = path
    with torch.no_grad():
        return values(network(inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
@hypothesis.given(icl=_drawn(_ICL_OPTIONS), cell=_drawn(_CELL_OPTIONS), unlabelled=strategies.booleans())
@hypothesis.settings(max_examples=25, derandomize=True, deadline=None)
def test_paths_batches_and_padding_give_one_prediction(
    kind: LabelKind, dtype: torch.dtype, tolerance: float, icl: dict[str, Any], cell: dict[str, Any], unlabelled: bool
) -> None:
    """5.5, 5.7, 5.9, 5.10: reference ≡ fast ≡ cached, one query at a time ≡ all at once, padded ≡ alone."""
    network = _network(_config(kind, icl, cell), dtype=dtype)
    tables = _tables(kind, dtype=dtype, unlabelled=unlabelled)
    batch = stack_padded(tables)
    together = _predict(network, batch, path=AttentionPath.FAST)
    assert together.isfinite().all()
    for path in (AttentionPath.REFERENCE, AttentionPath.CACHED):
        assert distance(_predict(network, batch, path=path), together) < tolerance, path
    for index, table in enumerate(tables):
        for path in AttentionPath:
            alone = _predict(network, table, path=path)
            assert distance(together[[index], : alone.shape[1]], alone) < tolerance, (index, path)
            single = _predict(network, take(table, queries=torch.tensor([1])), path=path)
            assert distance(single, alone[:, 1:2]) < tolerance, (index, path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_changes_the_function(kind: LabelKind) -> None:
    """5.3, 5.10: control of the test above: no option is without effect."""
    inputs = specimen_inputs(kind, dtype=torch.float64)
    base = _predict(_network(_config(kind, {}, {}), dtype=torch.float64), inputs, path=AttentionPath.FAST)
    for name, ways in (_ICL_OPTIONS | _CELL_OPTIONS).items():
        if name == "class_code":
            continue  # it decides the start, which these tests draw anew
        default = getattr(_config(kind, {}, {}).icl if name in _ICL_OPTIONS else _config(kind, {}, {}).cell, name)
        for way in ways:
            if way == default:
                continue
            changed = ({name: way}, {}) if name in _ICL_OPTIONS else ({}, {name: way})
            network = _network(_config(kind, *changed), dtype=torch.float64)
            moved = _predict(network, inputs, path=AttentionPath.FAST)
            assert distance(moved, base) > 1e-4, (name, way)


@pytest.mark.parametrize("path", list(AttentionPath))
@hypothesis.given(icl=_drawn(_ICL_OPTIONS))
@hypothesis.settings(max_examples=10, derandomize=True, deadline=None)
def test_bfloat16_moves_probabilities_by_at_most_two_hundredths(path: AttentionPath, icl: dict[str, Any]) -> None:
    """5.10: under autocast, against fp32, on networks with weights of their initial size."""
    config = _config(LabelKind.CLASSIFICATION, icl, {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # style: layers initialise themselves from the global generator, restored after this
        network = Network(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            if not parameter.any():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    inputs = specimen_inputs(LabelKind.CLASSIFICATION, context=40)
    exact = _predict(network, inputs, path=path)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = _predict(network, inputs, path=path)
    assert 0 < distance(rounded, exact) < 2e-2


def _flops(network: Network, inputs: NetworkInputs, *, predicts: int) -> int:
    """Floating-point operations of predicting from a context that was remembered before."""
    network.requires_grad_(False)
    memory = network.remember(inputs)
    with FlopCounterMode(display=False) as counter:
        for _ in range(predicts):
            network.predict(memory, inputs.x_query)
    return counter.get_total_flops()


@pytest.mark.parametrize("num_kv_heads_query", [None, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_second_prediction_spends_nothing_on_context_layers(
    kind: LabelKind, num_kv_heads_query: int | None
) -> None:
    """5.1: twice the context costs a remembered prediction exactly the longer reads, and no layer on a context row."""
    network = _network(_config(kind, {"num_kv_heads_query": num_kv_heads_query}, {}), dtype=torch.float32)
    config, (tables, queries) = network.config, (2, 4)
    short, long = (specimen_inputs(kind, tables=tables, context=n, queries=queries) for n in (50, 100))
    cost, longer = (_flops(network, inputs, predicts=1) for inputs in (short, long))
    reads = tables * queries * 2 * 2 * config.icl.width * config.icl.num_blocks  # q·k and weights·v, multiply and add
    if kind is LabelKind.CLASSIFICATION:
        head = config.classification
        reads += tables * queries * 2 * (head.num_heads * head.head_width + short.num_classes)
    assert longer - cost == 50 * reads
    assert _flops(network, short, predicts=2) == 2 * cost
    with FlopCounterMode(display=False) as counter:
        network.remember(short)
    assert counter.get_total_flops() > 5 * cost / queries  # what is saved is most of the work


def test_a_memory_is_of_its_context_alone() -> None:
    """5.1: a memory does not change with the queries that it was made beside, and holds no query."""
    kind = LabelKind.CLASSIFICATION
    network = _network(_config(kind, {}, {}), dtype=torch.float64)
    inputs = specimen_inputs(kind, dtype=torch.float64)
    other = dataclasses.replace(inputs, x_query=inputs.x_query * 100.0)
    with torch.no_grad():
        first, second = network.remember(inputs), network.remember(other)
        assert torch.equal(first.icl.h_context, second.icl.h_context)
        assert torch.equal(
            values(network.predict(first, inputs.x_query)), values(network.predict(second, inputs.x_query))
        )
        changed = dataclasses.replace(inputs, y_context=(inputs.y_context + 1) % 3)
        stale = values(network.predict(first, inputs.x_query))
        assert distance(values(network.predict(network.remember(changed), inputs.x_query)), stale) > 1e-3
