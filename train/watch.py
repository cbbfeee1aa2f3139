"""What is watched during training and never chooses anything: regret where the posterior is known, and real tables."""

import functools
import math
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from eval import comparison, tables
from eval.densities import BayesDensity, NetworkDensity
from eval.icl_predictor import ICLPredictor
from eval.regret import RegretConfig, episode_of, mean_losses, task_groups
from model.network import Network, NetworkConfig
from priors.exact import FAMILIES_OF_KIND
from priors.task import Episode, TaskKind
from train.looks import WatchConfig

WATCH_SEED = 4  # of watched tasks: neither those that choose the checkpoint nor those that report
_NAME = "veritab"
_CONTEXT_SIZES = (16, 128)
_NUM_QUERIES = 32
_TABLE_METRICS = {TaskKind.CLASSIFICATION: ("auc_ovo", "nll"), TaskKind.REGRESSION: ("r2", "crps")}


class Watch:
    """What one look consists of; the same tasks, tables and rows at every look.

    Args:
        network: limits and kind of the network that will be looked at.
        config: how much.
        folder: further tables (see `eval.tables`), or None.
    """

    def __init__(self, network: NetworkConfig, config: WatchConfig, *, folder: pathlib.Path | None = None) -> None:
        self._kind = TaskKind(network.kind.value)
        families = RegretConfig().families.within(
            max_features=network.max_features, max_classes=network.icl.max_classes
        )
        self._regret = RegretConfig(
            num_tasks=config.num_regret_tasks,
            num_queries=_NUM_QUERIES,
            context_sizes=_CONTEXT_SIZES,
            families=families,
        )
        self._tables = _table_episodes(network, config, folder=folder)

    def shapes(self) -> list[tuple[int, int]]:
        """(rows, features) of every task and table that one look passes through the network."""
        passed = [episode for groups, _ in self._known.values() for group in groups for episode in group]
        return [episode.task.x.shape for episode in [*passed, *self._tables.values()]]

    @functools.cached_property
    def _known(self) -> dict[str, tuple[list[list[Episode]], list[float]]]:
        """`family/N` → groups of episodes, and the Bayes predictor's mean NLL of each: computed once."""
        if not self._regret.num_tasks:
            return {}
        found = {}
        for family in FAMILIES_OF_KIND[self._kind]:
            groups = task_groups(family, config=self._regret, seed=WATCH_SEED)
            bayes = BayesDensity(config=self._regret.families, family=family)
            for size in self._regret.context_sizes:
                cut = [[episode_of(task, num_context=size, config=self._regret) for task in group] for group in groups]
                found[f"{family}/{size}"] = (cut, [loss for group in cut for loss in mean_losses(bayes, group)])
        return found

    def figures(self, network: Network) -> dict[str, float]:
        """One look at a network, which is in evaluation mode.

        Returns:
            `regret/<family>/<N>` in nats per query row, and `regret`, their mean, for a network with a density;
            `tables/<name>/<metric>` and `tables/<metric>`, the mean over tables: AUC one-vs-one and NLL, or R² and CRPS
            (in standard deviations of the context's targets), of one pass in fp32. What is undefined is left out.

        Raises:
            Failure: DIVERGED for answers that are no distribution.
        """
        with torch.compiler.set_stance("force_eager"):  # sizes and a dtype that training has not: not worth compiling
            regrets, scores = self._regrets(network), self._table_scores(network)
        metrics = _TABLE_METRICS[self._kind] if scores else ()
        means = {f"tables/{name}": _mean(scores[table][name] for table in scores) for name in metrics}
        named = {f"tables/{table}/{name}": scores[table][name] for table in scores for name in metrics}
        found = {**({"regret": _mean(regrets.values())} if regrets else {}), **regrets, **means, **named}
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def _regrets(self, network: Network) -> dict[str, float]:
        found, model = {}, NetworkDensity(name=_NAME, network=network)
        for name, (groups, best) in self._known.items():
            parts = [mean_losses(model, group) for group in groups]
            if any(part is None for part in parts):
                return {}
            losses = [loss for part in parts for loss in part]
            found[f"regret/{name}"] = _mean(loss - least for loss, least in zip(losses, best, strict=True))
        return found

    def _table_scores(self, network: Network) -> dict[str, dict[str, float]]:
        predictor, unit = ICLPredictor(name=_NAME, network=network, num_estimators=1), comparison.Unit.CONTEXT_DEVIATION
        found = {
            table: comparison.episode_scores(episode, predictor, unit=unit, table=table)
            for table, episode in self._tables.items()
        }
        metrics = _TABLE_METRICS[self._kind]
        return {table: {name: one.get(name, math.nan) for name in metrics} for table, one in found.items()}


def _table_episodes(network: NetworkConfig, config: WatchConfig, *, folder: pathlib.Path | None) -> dict[str, Episode]:
    """The first `num_tables` tables that the network can take, cut down to `max_rows`; the bundled ones come first."""
    if not config.num_tables:
        return {}
    kind, half = TaskKind(network.kind.value), config.max_rows // 2
    candidates = tables.load_sklearn_tables(kind)
    candidates += tables.load_folder(folder, kind=kind) if folder is not None else []
    fitting = _fitting(candidates, network)[: config.num_tables]
    return {table.name: tables.split(table, seed=WATCH_SEED, max_context=half, max_query=half) for table in fitting}


def _fitting(candidates: Sequence[tables.Table], network: NetworkConfig) -> list[tables.Table]:
    found: dict[str, tables.Table] = {}
    for table in candidates:
        columns, classes = table.frame.shape[1], len(set(table.target)) if table.kind is TaskKind.CLASSIFICATION else 0
        if table.name not in found and columns <= network.max_features and classes <= network.icl.max_classes:
            found[table.name] = table
    return list(found.values())


def _mean(values: Iterable[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan
