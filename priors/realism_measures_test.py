"""Tests of priors.realism_measures."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from priors.mixture import PriorConfig, sample_group
from priors.realism_measures import measure
from tools.failure import ExitCode, Failure

TASKS = sample_group(PriorConfig(max_rows=64, max_features=4), seed=0, rows=48, features=3, count=12).tasks()


def kill_one() -> None:
    """Kills one process of this one's pool as soon as there is one."""
    deadline = time.monotonic() + 15
    while not multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)


def test_two_processes_measure_what_one_does_in_the_same_order() -> None:
    done: list[int] = []
    alone = measure(TASKS, seed=3, workers=1, report=done.append)
    together = measure(TASKS, seed=3, workers=2, report=done.append)
    assert [vector.names for vector in alone] == [vector.names for vector in together]
    np.testing.assert_array_equal([vector.values for vector in alone], [vector.values for vector in together])
    assert len({vector.values.tobytes() for vector in alone}) == 12
    assert done == [*range(1, 13), *range(1, 13)]


def test_the_loss_of_a_process_is_a_refusal_of_one_line() -> None:
    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(Failure, match="a measuring process was killed: run the same command again") as refused:
        measure(TASKS * 40, seed=3, workers=2, report=lambda done: None)
    killer.join()
    assert refused.value.code is ExitCode.WORKER_FAILED and not multiprocessing.active_children()
