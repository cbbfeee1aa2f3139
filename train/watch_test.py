"""Tests of what is watched during training."""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from eval.densities import BayesDensity
from eval.regret import RegretConfig, measure_regret
from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import Network
from priors.task import TaskKind
from train import watch as watching
from train.looks import WatchConfig
from train.toy import small_network
from train.watch import Watch

_CONFIG = WatchConfig(num_regret_tasks=4, num_tables=3, max_rows=64)


def _network(kind: LabelKind) -> Network:
    config = dataclasses.replace(small_network(kind), max_features=64)
    return initial_network(config, seed=0).eval()


def _watch(network: Network, config: WatchConfig = _CONFIG, *, folder: pathlib.Path | None = None) -> Watch:
    return Watch(network.config, config, folder=folder)


def test_regret_is_what_the_final_measurement_says_of_the_same_tasks() -> None:
    network = _network(LabelKind.REGRESSION)
    found = _watch(network).figures(network)
    config = RegretConfig(num_tasks=4, num_queries=32, context_sizes=(16, 128))
    rows = measure_regret({"n": network}, kind=TaskKind.REGRESSION, config=config, seed=watching.WATCH_SEED)
    for family in ("linear_gaussian", "gaussian_process"):
        for size in (16, 128):
            own = [row.value for row in rows if row.model == "n" and row.table == f"{family}@{size}"]
            assert found[f"regret/{family}/{size}"] == pytest.approx(np.mean(own), abs=1e-9)
    parts = [value for name, value in found.items() if name.startswith("regret/")]
    assert len(parts) == 4 and found["regret"] == pytest.approx(np.mean(parts))


def test_the_posterior_is_computed_once_for_all_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    network, calls = _network(LabelKind.CLASSIFICATION), []
    real = BayesDensity.log_densities
    monkeypatch.setattr(BayesDensity, "log_densities", lambda self, episodes: calls.append(1) or real(self, episodes))
    watch = _watch(network)
    first = watch.figures(network)
    asked = len(calls)
    assert asked and watch.figures(network) == first and len(calls) == asked


def test_a_look_changes_neither_weights_nor_the_global_generator() -> None:
    network = _network(LabelKind.CLASSIFICATION)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    generator = torch.get_rng_state()
    _watch(network).figures(network)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_look_compiles_nothing_for_sizes_that_training_does_not_have() -> None:
    network, compiled = _network(LabelKind.REGRESSION), []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(module)
        return module.forward

    plain = _watch(network).figures(network)
    for block in network.icl.blocks:
        block.compile(dynamic=True, backend=backend)
    assert _watch(network).figures(network) == plain and compiled == []


def test_tables_are_cut_to_their_rows_and_counted_out_and_the_bundled_ones_come_first(tmp_path: pathlib.Path) -> None:
    rows = "\n".join(f"{i},{i % 7},{'yes' if i % 3 else 'no'}" for i in range(90))
    entries = [{"name": name, "task": "cls", "file": "t.csv"} for name in ("one", "two")]
    (tmp_path / "t.csv").write_text(f"a,b,target\n{rows}\n")
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    network = _network(LabelKind.CLASSIFICATION)
    config = dataclasses.replace(_CONFIG, num_regret_tasks=0, num_tables=5)
    watch = _watch(network, config, folder=tmp_path)
    found = watch.figures(network)
    tables = {name.split("/")[1] for name in found if name.count("/") == 2}
    assert tables == {"breast_cancer", "iris", "wine", "digits", "one"}
    assert {"tables/auc_ovo", "tables/nll"} <= set(found) and "regret" not in found
    assert all(rows <= config.max_rows for rows, _ in watch.shapes()) and len(watch.shapes()) == 5
    assert 0 <= found["tables/one/auc_ovo"] <= 1


def test_tables_beyond_the_limits_of_the_network_are_passed_over() -> None:
    config = dataclasses.replace(small_network(LabelKind.CLASSIFICATION), max_features=13)
    network = initial_network(config, seed=0).eval()
    found = _watch(network).figures(network)
    assert {name.split("/")[1] for name in found if name.count("/") == 2 and "tables" in name} == {"iris", "wine"}
