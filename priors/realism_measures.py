"""Meta-features of many tasks, measured by one process or by several."""

import concurrent.futures
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from priors.meta_features import FeatureVector, meta_features
from priors.task import Task
from tools.failure import ExitCode, Failure
from tools.parent import follow_parent

_TASKS_AT_A_TIME = 8


def measure(tasks: Sequence[Task], *, seed: int, workers: int, report: Callable[[int], Any]) -> list[FeatureVector]:
    """Measures tasks; what comes out does not depend on the number of processes.

    Args:
        tasks: any number.
        seed: of the landmarkers' folds and trees, 0 … 2³² − 1.
        workers: processes; 1 means this one.
        report: called with the number of tasks that are measured.

    Raises:
        Failure: WORKER_FAILED when one of several processes is killed.
    """
    found = []
    for vector in _measured(tasks, seed=seed, workers=workers):
        found.append(vector)
        report(len(found))
    return found


def _measured(tasks: Sequence[Task], *, seed: int, workers: int) -> Iterator[FeatureVector]:
    one = functools.partial(meta_features, seed=seed)
    if workers == 1:
        yield from map(one, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=follow_parent) as pool:
        try:
            yield from pool.map(one, tasks, chunksize=_TASKS_AT_A_TIME)
        except concurrent.futures.process.BrokenProcessPool as error:
            mend = "run the same command again"
            raise Failure(ExitCode.WORKER_FAILED, f"a measuring process was killed: {mend}") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
