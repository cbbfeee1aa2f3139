"""Tests of bench/waiting.py: a short run on one worker, from both sources of tasks."""

import pytest

from bench.waiting import measure_waiting
from train.cluster import ClusterConfig
from train.feed import TaskSource
from train.toy_job import toy_pretraining

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings


def test_both_sources_are_measured_after_the_first_ten_steps() -> None:
    found = list(measure_waiting(num_steps=20, cluster=ClusterConfig(num_workers=1), config=toy_pretraining()))
    assert [one.source for one in found] == list(TaskSource)
    for one in found:
        assert (one.workers, one.num_steps) == (1, 20)
        assert 0.0 < one.share < 0.9
        assert 0.0 < one.start < 60.0
        assert one.tasks_per_second > 0.0
    shards, fresh = found
    assert fresh.start > shards.start  # a process has to come up first
