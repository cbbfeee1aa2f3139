"""Regret: how many nats per query row a model loses to the Bayes predictor of the family that drew the task (5.I).

Passing audits prove that no query label reaches a prediction, not that the model learned to read its context well. On
families with a known posterior the least possible expected NLL is known too, and what a model pays above it is its
regret: an upper bound on what is missing, and no statement about what the network computes.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eval.densities import BayesDensity, DensityModel, LinearDensity, MajorityDensity, NetworkDensity, answerable
from eval.results import ResultRow
from model.network import Network
from priors.exact import FAMILIES_OF_KIND, ExactConfig, ExactFamily, sample_exact_group
from priors.task import Episode, TaskKind
from tools import progress
from tools.failure import ExitCode, Failure

METRIC = "regret"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegretConfig:
    """On how many tasks regret is measured, and which."""

    num_tasks: int = 32
    """Tasks of each family; the same ones at every context size and for every model."""
    num_queries: int = 32
    """Query rows of a task: the same ones at every context size."""
    context_sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    """N: the first N context rows of a task."""
    families: ExactConfig = ExactConfig()
    """What tasks are drawn from, and what the Bayes predictors know."""


def measure_regret(
    networks: Mapping[str, Network],
    *,
    kind: TaskKind,
    config: RegretConfig = RegretConfig(),
    seed: int = 0,
    title: str = METRIC,
) -> list[ResultRow]:
    """Regret of networks and of two baselines (majority, linear) on every family of one kind, with a progress display.

    Args:
        networks: by name, in evaluation mode, all of `kind`. One without a density (a scalar or quantile head)
            gets no row.
        kind: of the networks.
        config: tasks.
        seed: of the tasks.
        title: of the display.

    Returns:
        A row for each family, N, model and task: table `family@N`, metric `regret`, `seed` the task's number. Models
        are paired by task, and tasks are the clusters of an interval. NaN where the context holds no query's class.
    """
    config = _within_limits(config, networks.values())
    models = [NetworkDensity(name=name, network=network) for name, network in networks.items()]
    models += [MajorityDensity(), LinearDensity()]
    families = FAMILIES_OF_KIND[kind]
    total, done, rows = len(families) * len(config.context_sizes) * len(models), 0, []
    with progress.meter(title, total=total, unit="cells") as meter:
        for family in families:
            groups = task_groups(family, config=config, seed=seed)
            for size in config.context_sizes:
                cut = [[episode_of(task, num_context=size, config=config) for task in group] for group in groups]
                best = _losses(BayesDensity(config=config.families, family=family), cut)
                for model in models:
                    rows += regret_rows(
                        _losses(model, cut), best=best, kind=kind, table=f"{family}@{size}", model=model.name
                    )
                    done += 1
                    meter(done, f"{family}@{size} {model.name}")
    return rows


def _within_limits(config: RegretConfig, networks: Iterable[Network]) -> RegretConfig:
    for limits in (network.config for network in networks):
        families = config.families.within(max_features=limits.max_features, max_classes=limits.icl.max_classes)
        config = dataclasses.replace(config, families=families)
    return config


def task_groups(family: ExactFamily, *, config: RegretConfig, seed: int) -> list[list[Episode]]:
    """The tasks of a family, cut after the largest context, in groups of one shape."""
    counts = config.families.feature_counts(family)
    size = max(config.context_sizes)
    shares = [config.num_tasks // len(counts) + (i < config.num_tasks % len(counts)) for i in range(len(counts))]
    groups = []
    for features, count in zip(counts, shares, strict=True):
        shape = {"rows": size + config.num_queries, "features": features, "count": count}
        own = int(np.random.SeedSequence([seed, features]).generate_state(1, np.uint64)[0] >> 1)
        if count:
            group = sample_exact_group(config.families, family, seed=own, **shape)
            groups.append([Episode(task=task, num_context=size) for task in group.tasks()])
    return groups


def episode_of(whole: Episode, *, num_context: int, config: RegretConfig) -> Episode:
    """The same task and query rows with the first `num_context` context rows alone."""
    task = whole.task
    kept = np.r_[:num_context, max(config.context_sizes) : len(task.y)]
    return Episode(task=dataclasses.replace(task, x=task.x[kept], y=task.y[kept]), num_context=num_context)


def mean_losses(model: DensityModel, episodes: Sequence[Episode]) -> list[float] | None:
    """Mean NLL in nats of each episode's answerable query rows, NaN where there are none; None without a density.

    Raises:
        Failure: DIVERGED for a density that is not finite: a model must not gain by what it cannot answer.
    """
    found = model.log_densities(episodes)
    if found is None:
        return None
    kept = [-logs[answerable(episode)] for logs, episode in zip(found, episodes, strict=True)]
    for losses, episode in zip(kept, episodes, strict=True):
        if not np.isfinite(losses).all():
            where = f"an NLL of {model.name} on a {episode.task.family} task with {episode.num_context} context rows"
            worst = losses[~np.isfinite(losses)][0]
            raise Failure(ExitCode.DIVERGED, f"{where} is {worst}: mend the model before comparing it")
    return [float(losses.mean()) if len(losses) else math.nan for losses in kept]


def _losses(model: DensityModel, groups: Sequence[Sequence[Episode]]) -> list[float] | None:
    parts = [mean_losses(model, group) for group in groups]
    return None if any(part is None for part in parts) else [loss for part in parts if part for loss in part]


def regret_rows(
    losses: Sequence[float] | None, *, best: Sequence[float] | None, kind: TaskKind, table: str, model: str
) -> list[ResultRow]:
    """A row for each task: its loss minus the `best` one. None (no density) gives no row."""
    return [
        ResultRow(
            kind=kind.value,
            table=table,
            model=model,
            seed=number,
            metric=METRIC,
            value=loss - least,
            num_episodes=int(not math.isnan(loss)),
            num_undefined=int(math.isnan(loss)),
        )
        for number, (loss, least) in enumerate(zip(losses or [], best if losses and best else [], strict=True))
    ]
