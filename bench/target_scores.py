"""Looks at real tables, several at a time: each contestant is a checkpoint, a rival's weights or a baseline.

One look asks every table once, on its one split (seed 0), in one process with one torch thread: where cores are
shared, two threads are several times slower than one. As many looks as there are cores go on at once.
"""

import concurrent.futures
import contextlib
import dataclasses
import enum
import multiprocessing
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from bench.two_way_training import load_two_way
from eval import baselines, comparison, tables
from eval.icl_predictor import ICLPredictor
from eval.two_way_predictor import TwoWayPredictor
from model.checkpoint import load_checkpoint
from priors.task import Episode, TaskKind
from tools import progress
from tools.environment import environment
from tools.failure import ExitCode, Failure
from tools.parent import follow_parent

_SPLIT_SEED = 0
_NUM_TREES = 300


class ContestantKind(enum.StrEnum):
    """What stands behind a contestant's `source`."""

    CHECKPOINT = "checkpoint"  # a step folder of ours
    TWO_WAY = "two-way"  # a file of weights
    BASELINE = "baseline"  # a name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contestant:
    """What is scored.

    Args:
        kind: of `source`.
        source: a folder, a file or a name.
        num_estimators: orders that a network's answers are averaged over.
    """

    kind: ContestantKind
    source: str
    num_estimators: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableScores:
    """Means over tables.

    Args:
        auc: one-vs-one.
        accuracy: of the most probable class.
        nll: log-loss, in nats.
        seconds: that the look took, loading of weights left out.
        auc_by_table: one-vs-one, by the table's name.
    """

    auc: float
    accuracy: float
    nll: float
    seconds: float
    auc_by_table: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableChoice:
    """Which tables.

    Args:
        folder: of tables (see `eval.tables`); None for those that scikit-learn ships.
        group: of the folder's tables; None for all.
        max_classes: tables with more are left out.
        max_features: tables with more are left out.
    """

    folder: pathlib.Path | None
    group: str | None
    max_classes: int
    max_features: int


def target_tables(choice: TableChoice) -> comparison.Selection:
    """The chosen classification tables, each cut once in halves of at most 1,000 rows.

    Raises:
        Failure: what `eval.tables` refuses; NOT_FOUND where no table is left.
    """
    kind = TaskKind.CLASSIFICATION
    if choice.folder is None:
        found = tables.load_sklearn_tables(kind)
    else:
        found = tables.load_folder(choice.folder, kind=kind, group=choice.group)
    selection = comparison.select(
        found, max_classes=choice.max_classes, max_features=choice.max_features, seeds=(_SPLIT_SEED,)
    )
    if not selection.episodes:
        group = f" of group {choice.group}" if choice.group else ""
        text = f"--tables {choice.folder} holds no classification table{group} that the model takes: give another"
        raise Failure(ExitCode.NOT_FOUND, text)
    return selection


class Judges:
    """Processes that have the tables in memory and score contestants.

    Args:
        pool: of those processes.
    """

    def __init__(self, pool: concurrent.futures.Executor) -> None:
        self._pool = pool

    def scores(self, contestants: Sequence[Contestant], *, title: str) -> list[TableScores]:
        """Scores in the order of `contestants`, with a progress display.

        Raises:
            Failure: what a checkpoint is refused for; DIVERGED for answers that are no distribution.
        """
        with progress.meter(title, total=len(contestants), unit="looks") as meter:
            pending = [self._pool.submit(_score_one, contestant) for contestant in contestants]
            for done, _ in enumerate(concurrent.futures.as_completed(pending), start=1):
                meter(done)
        return [future.result() for future in pending]


@contextlib.contextmanager
def judges(choice: TableChoice, *, workers: int) -> Iterator[Judges]:
    """Starts `workers` processes, one torch thread each; they end with the block."""
    context = multiprocessing.get_context("spawn")
    with _single_threads():
        pool = concurrent.futures.ProcessPoolExecutor(
            workers, mp_context=context, initializer=_prepare, initargs=(choice,)
        )
    try:
        with _single_threads():  # processes are started when work arrives
            yield Judges(pool)
    finally:
        pool.shutdown(cancel_futures=True)


def _single_threads() -> contextlib.AbstractContextManager[None]:
    """Inside, new processes have BLAS and OpenMP of one thread; scikit-learn's baselines ask those alone."""
    return environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")


_episodes: dict[str, Episode] = {}  # of this process, if it is a judge


def _prepare(choice: TableChoice) -> None:
    follow_parent()
    torch.set_num_threads(1)
    found = target_tables(choice).episodes
    _episodes.update({name: by_seed[_SPLIT_SEED][0] for name, by_seed in found.items()})


def _score_one(contestant: Contestant) -> TableScores:
    return mean_scores(_predictor(contestant), _episodes)


def mean_scores(predictor: baselines.Predictor, episodes: dict[str, Episode]) -> TableScores:
    """One look: every table once; what a table's answers leave undefined takes no part in the means."""
    found = {
        name: comparison.episode_scores(episode, predictor, unit=comparison.Unit.TARGET, table=name)
        for name, episode in episodes.items()
    }
    means = {
        metric: float(np.nanmean([scores[metric] for scores in found.values()]))
        for metric in ("auc_ovo", "accuracy", "nll")
    }
    return TableScores(
        auc=means["auc_ovo"],
        accuracy=means["accuracy"],
        nll=means["nll"],
        seconds=sum(scores["seconds"] for scores in found.values()),
        auc_by_table={name: scores["auc_ovo"] for name, scores in found.items()},
    )


def _predictor(contestant: Contestant) -> baselines.Predictor:
    source, number = contestant.source, contestant.num_estimators
    match contestant.kind:
        case ContestantKind.CHECKPOINT:
            network = load_checkpoint(pathlib.Path(source)).network()
            return ICLPredictor(name="veritab", network=network, num_estimators=number)
        case ContestantKind.TWO_WAY:
            return TwoWayPredictor(model=load_two_way(pathlib.Path(source)), num_estimators=number)
        case ContestantKind.BASELINE:
            named = {model.name: model for model in baselines.all_baselines(num_trees=_NUM_TREES)}
            return named[source]
