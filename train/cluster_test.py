"""Tests of how many workers train."""

import pytest

from tools.failure import ExitCode, Failure
from train.cluster import ClusterConfig, Workers, workers_for


@pytest.mark.parametrize(
    ("cpus", "gpus", "batch_sizes", "count", "gpus_each"),
    [(2, 0, [32], 2, 0), (6, 0, [32], 4, 0), (64, 0, [32, 48], 16, 0), (16, 4, [32], 4, 1), (16, 3, [32], 2, 1)],
)
def test_by_default_as_many_as_there_are_and_as_divide_the_batches(
    cpus: int, gpus: int, batch_sizes: list[int], count: int, gpus_each: int
) -> None:
    found = workers_for(ClusterConfig(), cpus=cpus, gpus=gpus, batch_sizes=batch_sizes)
    assert found == Workers(count=count, gpus_each=gpus_each)


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (ClusterConfig(num_workers=3), ExitCode.BAD_FLAG, "divides 32"),
        (ClusterConfig(num_workers=0), ExitCode.BAD_FLAG, "1 or more"),
        (ClusterConfig(gpus_per_worker=-1), ExitCode.BAD_FLAG, "negative"),
        (ClusterConfig(num_workers=5), ExitCode.TOO_FEW_RESOURCES, "5 is more than the cluster's 4 CPU workers"),
        (ClusterConfig(gpus_per_worker=2), ExitCode.TOO_FEW_RESOURCES, "0 GPU workers"),
    ],
)
def test_numbers_that_cannot_be_are_refused(config: ClusterConfig, code: ExitCode, words: str) -> None:
    """T5: both numbers are named."""
    with pytest.raises(Failure) as caught:
        workers_for(config, cpus=4, gpus=0, batch_sizes=[32])
    assert caught.value.code is code
    assert words in caught.value.message


def test_asking_for_gpus_where_there_are_none_is_refused_with_both_numbers() -> None:
    """T5."""
    with pytest.raises(Failure) as caught:
        workers_for(ClusterConfig(num_workers=2, gpus_per_worker=1), cpus=4, gpus=0, batch_sizes=[32])
    assert "2 is more than the cluster's 0 GPU workers (0 GPUs, 1 each)" in caught.value.message
