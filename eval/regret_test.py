"""Regret in nats to the Bayes predictor (5.I): paired, reproducible, zero for Bayes itself."""

import collections
import dataclasses
import math

import numpy as np
import pytest
import torch

from eval import regret
from eval.densities import BayesDensity
from eval.regret import RegretConfig, episode_of, mean_losses, measure_regret, task_groups
from eval.results import ResultRow
from model.label_injection import LabelKind
from model.network import Network
from model.specimens import specimen_config, specimen_network
from priors.exact import FAMILIES_OF_KIND, ExactFamily
from priors.task import TaskKind
from tools.failure import ExitCode, Failure

SMALL = RegretConfig(num_tasks=6, num_queries=8, context_sizes=(8, 32))


def _rows(kind: TaskKind, *, seed: int = 0, config: RegretConfig = SMALL) -> list[ResultRow]:
    network: Network = specimen_network(LabelKind(kind.value))
    return measure_regret({"veritab": network}, kind=kind, config=config, seed=seed)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_every_family_size_model_and_task_has_a_row(kind: TaskKind) -> None:
    rows = _rows(kind)
    tables = {f"{family}@{size}" for family in FAMILIES_OF_KIND[kind] for size in (8, 32)}
    found = {(row.table, row.model, row.seed) for row in rows}
    models = ("veritab", "majority", "linear")
    assert found == {(table, model, task) for table in tables for model in models for task in range(6)}
    assert len(found) == len(rows) and {row.metric for row in rows} == {"regret"}
    assert all(row.kind == kind.value and row.num_episodes + row.num_undefined == 1 for row in rows)


def test_equal_seeds_give_equal_rows_and_others_do_not() -> None:
    rows, again, other = (_rows(TaskKind.REGRESSION, seed=seed) for seed in (0, 0, 1))
    assert rows == again and rows != other


@pytest.mark.parametrize("family", list(ExactFamily))
def test_context_grows_around_the_same_query_rows(family: ExactFamily) -> None:
    for group in task_groups(family, config=SMALL, seed=3):
        for whole in group:
            few, many = (episode_of(whole, num_context=size, config=SMALL) for size in (8, 32))
            assert np.array_equal(few.answers(), many.answers()) and len(few.answers()) == 8
            assert np.array_equal(few.evidence().x_query, many.evidence().x_query)
            assert np.array_equal(few.evidence().x_context, many.evidence().x_context[:8])
            assert np.array_equal(few.evidence().y_context, many.evidence().y_context[:8])


@pytest.mark.parametrize("family", list(ExactFamily))
def test_all_sizes_of_tables_are_among_the_tasks(family: ExactFamily) -> None:
    groups = task_groups(family, config=SMALL, seed=0)
    assert tuple(group[0].task.x.shape[1] for group in groups) == SMALL.families.feature_counts(family)
    assert sum(len(group) for group in groups) == 6


def test_bayes_has_no_regret_and_a_random_network_has() -> None:
    """5.I."""
    for kind in TaskKind:
        config = dataclasses.replace(SMALL, num_tasks=24, num_queries=16)
        by_cell = collections.defaultdict(list)
        for row in _rows(kind, config=config):
            by_cell[row.table, row.model].append(row.value)
        assert all(np.nanmean(values) > 0 for (_, model), values in by_cell.items() if model == "veritab")
        for family in FAMILIES_OF_KIND[kind]:
            (group, *_) = task_groups(family, config=config, seed=0)
            bayes = BayesDensity(config=config.families, family=family)
            rows = regret.regret_rows(
                mean_losses(bayes, group), best=mean_losses(bayes, group), kind=kind, table="t", model="bayes"
            )
            assert {row.value for row in rows} == {0.0}


def test_a_row_is_the_difference_of_mean_losses_over_one_tasks_query_rows() -> None:
    rows = [row for row in _rows(TaskKind.REGRESSION) if (row.table, row.model) == ("gaussian_process@32", "linear")]
    (first, *_) = task_groups(ExactFamily.GAUSSIAN_PROCESS, config=SMALL, seed=0)[0]
    episode = episode_of(first, num_context=32, config=SMALL)
    linear = regret.LinearDensity().log_densities([episode])[0]
    bayes = BayesDensity(config=SMALL.families, family=ExactFamily.GAUSSIAN_PROCESS).log_densities([episode])[0]
    assert rows[0].value == pytest.approx(float((bayes - linear).mean()))


def test_a_small_network_gets_tasks_that_it_can_take() -> None:
    config = specimen_config(LabelKind.CLASSIFICATION)
    small = dataclasses.replace(config, max_features=2, icl=dataclasses.replace(config.icl, max_classes=2))
    rows = measure_regret({"veritab": Network(small).eval()}, kind=TaskKind.CLASSIFICATION, config=SMALL)
    assert len(rows) == 2 * 2 * 3 * 6 and all(math.isfinite(row.value) for row in rows if row.num_episodes)


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_network_that_answers_nan_is_named_and_not_left_out(kind: TaskKind) -> None:
    network = specimen_network(LabelKind(kind.value))
    with torch.no_grad():
        next(network.head.parameters()).fill_(torch.nan)
    with pytest.raises(Failure, match="broken on a .* task with 8 context rows is nan") as failure:
        measure_regret({"broken": network}, kind=kind, config=SMALL)
    assert failure.value.code is ExitCode.DIVERGED


def test_a_model_without_a_density_has_no_row_and_an_unanswerable_task_is_counted() -> None:
    arguments = {"best": [0.1, 0.2], "kind": TaskKind.CLASSIFICATION, "table": "t", "model": "m"}
    assert regret.regret_rows(None, **arguments) == []
    rows = regret.regret_rows([0.3, math.nan], **arguments)
    assert rows[0].value == pytest.approx(0.2) and math.isnan(rows[1].value)
    assert [(row.num_episodes, row.num_undefined) for row in rows] == [(1, 0), (0, 1)]
