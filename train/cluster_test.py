"""Tests of how many workers train."""

import pytest

from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig, NodeSize, Workers, workers_for


@pytest.mark.parametrize(
    ("nodes", "batch_sizes", "count", "gpus_each"),
    [
        ([NodeSize(cpus=2)], [32], 2, 0),
        ([NodeSize(cpus=6)], [32], 6, 0),
        ([NodeSize(cpus=64)], [32, 48], 32, 0),
        ([NodeSize(cpus=16, gpus=4)], [32], 4, 1),
        ([NodeSize(cpus=8, gpus=1), NodeSize(cpus=8, gpus=2), NodeSize(cpus=8)], [32], 3, 1),
        ([NodeSize(cpus=1, gpus=8)], [32], 1, 1),
    ],
)
def test_by_default_as_many_as_fit_and_no_more_than_a_batch_has_tasks(
    nodes: list[NodeSize], batch_sizes: list[int], count: int, gpus_each: int
) -> None:
    found = workers_for(ClusterConfig(), nodes=nodes, batch_sizes=batch_sizes)
    assert found == Workers(count=count, gpus_each=gpus_each)
    assert not found.is_elastic


def test_a_worker_is_never_split_between_nodes() -> None:
    """Ray would wait for ever for two GPUs on one node where every node has one."""
    nodes = [NodeSize(cpus=8, gpus=3), NodeSize(cpus=8, gpus=1)]
    assert workers_for(ClusterConfig(gpus_per_worker=2), nodes=nodes, batch_sizes=[32]).count == 1
    with pytest.raises(Failure) as caught:
        workers_for(ClusterConfig(gpus_per_worker=4), nodes=nodes, batch_sizes=[32])
    assert "1 is more than the cluster's 0 GPU workers (4 GPUs, 4 each)" in caught.value.message


def test_with_a_smaller_minimum_the_number_may_exceed_what_is_there() -> None:
    """Nodes may come later."""
    found = workers_for(ClusterConfig(num_workers=8, min_workers=2), nodes=[NodeSize(cpus=4)], batch_sizes=[32])
    assert found == Workers(count=8, gpus_each=0, fewest=2)
    assert found.is_elastic and str(found) == "2 to 8 CPU workers with one torch thread each"


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (ClusterConfig(num_workers=4), ExitCode.BAD_FLAG, "4 is more than the 3 tasks of a batch"),
        (ClusterConfig(num_workers=0), ExitCode.BAD_FLAG, "--cluster.num-workers 0 is too small"),
        (ClusterConfig(min_workers=0), ExitCode.BAD_FLAG, "--cluster.min-workers 0 is too small"),
        (ClusterConfig(num_workers=2, min_workers=3), ExitCode.BAD_FLAG, "3 is more than --cluster.num-workers 2"),
        (ClusterConfig(gpus_per_worker=-1), ExitCode.BAD_FLAG, "negative"),
        (ClusterConfig(num_workers=5), ExitCode.TOO_FEW_RESOURCES, "5 is more than the cluster's 4 CPU workers"),
        (
            ClusterConfig(min_workers=5),
            ExitCode.TOO_FEW_RESOURCES,
            "--cluster.min-workers 5 is more than the cluster's 4",
        ),
        (ClusterConfig(gpus_per_worker=2), ExitCode.TOO_FEW_RESOURCES, "0 GPU workers"),
    ],
)
def test_numbers_that_cannot_be_are_refused(config: ClusterConfig, code: ExitCode, words: str) -> None:
    """T5: both numbers are named."""
    with pytest.raises(Failure) as caught:
        workers_for(config, nodes=[NodeSize(cpus=4)], batch_sizes=[32, 3])
    assert caught.value.code is code
    assert words in caught.value.message


def test_asking_for_gpus_where_there_are_none_is_refused_with_both_numbers() -> None:
    """T5."""
    with pytest.raises(Failure) as caught:
        workers_for(ClusterConfig(num_workers=2, gpus_per_worker=1), nodes=[NodeSize(cpus=4)], batch_sizes=[32])
    assert "2 is more than the cluster's 0 GPU workers (0 GPUs, 1 each)" in caught.value.message
