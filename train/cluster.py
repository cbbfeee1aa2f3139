"""Where training runs and on how many processes: configuration without Ray, so that `--help` stays quick."""

import dataclasses
from collections.abc import Collection

from tools import ray_session
from tools.failure import ExitCode, Failure


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Where the training job runs."""

    address: str = "local"
    """"local": a Ray instance on this machine, for this job alone; "auto": the cluster that this machine belongs to."""
    num_workers: int | None = None
    """Training processes; by default one for each GPU, or one for each core where there is no GPU."""
    gpus_per_worker: int | None = None
    """GPUs of each worker; by default 1 where the cluster has GPUs, else 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """What the cluster gives.

    Args:
        count: training processes.
        gpus_each: GPUs of each.
    """

    count: int
    gpus_each: int

    def __str__(self) -> str:
        if self.gpus_each:
            return f"{self.count} workers with {self.gpus_each} GPU each"
        return f"{self.count} CPU workers with one torch thread each"


def check_address(config: ClusterConfig) -> None:
    """Refuses an address over which training cannot run.

    Raises:
        Failure: BAD_FLAG.
    """
    ray_session.check_address(config.address)


def workers_for(config: ClusterConfig, *, cpus: int, gpus: int, batch_sizes: Collection[int]) -> Workers:
    """How many workers train on a cluster of `cpus` cores and `gpus` GPUs.

    By default as many as there are GPUs (or cores) and as divide every batch size.

    Raises:
        Failure: BAD_FLAG for numbers that fit no batch; TOO_FEW_RESOURCES with both numbers.
    """
    each = config.gpus_per_worker if config.gpus_per_worker is not None else min(1, gpus)
    if each < 0:
        raise Failure(ExitCode.BAD_FLAG, f"--cluster.gpus-per-worker {each} is negative: give 0 or more")
    have = gpus // each if each else cpus
    noun = f"GPU workers ({gpus} GPUs, {each} each)" if each else "CPU workers (one a core)"
    if config.num_workers is None and have:
        fitting = max(count for count in range(1, have + 1) if all(size % count == 0 for size in batch_sizes))
        return Workers(count=fitting, gpus_each=each)
    wanted = config.num_workers if config.num_workers is not None else 1
    if wanted < 1:
        raise Failure(ExitCode.BAD_FLAG, f"--cluster.num-workers {wanted} is too small: give 1 or more")
    if wanted > have:
        text = f"--cluster.num-workers {wanted} is more than the cluster's {have} {noun}: ask for {have} or fewer"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, text)
    for size in batch_sizes:
        if size % wanted:
            mend = f"give a number that divides {size}"
            raise Failure(ExitCode.BAD_FLAG, f"--cluster.num-workers {wanted} does not divide the batch: {mend}")
    return Workers(count=wanted, gpus_each=each)
