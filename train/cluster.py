"""Where training runs and on how many processes: configuration without Ray, so that `--help` stays quick."""

import dataclasses
from collections.abc import Collection, Sequence

import tyro

from tools.failure import ExitCode, Failure
from train.compilation import Compilation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Where the training job runs."""

    address: str = "local"
    """"local": a Ray instance on this machine, for this job alone; "auto": the cluster that this machine belongs to."""
    num_workers: int | None = None
    """Training processes; by default one for each GPU, or one for each core where there is no GPU."""
    min_workers: int | None = None
    """Fewest processes with which training goes on when nodes are lost or still absent; by default all."""
    gpus_per_worker: int | None = None
    """GPUs of each worker; by default 1 where the cluster has GPUs, else 0."""
    compilation: tyro.conf.EnumChoicesFromValues[Compilation] = Compilation.AUTO
    """Whether blocks of the network are compiled; by default on GPUs whose machine has what that needs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """What the cluster gives.

    Args:
        count: training processes.
        gpus_each: GPUs of each.
        fewest: with how many training goes on; `count` where None.
    """

    count: int
    gpus_each: int
    fewest: int | None = None

    @property
    def is_elastic(self) -> bool:
        """Whether their number may change while training runs."""
        return self.fewest is not None and self.fewest < self.count

    def __str__(self) -> str:
        number = f"{self.fewest} to {self.count}" if self.is_elastic else f"{self.count}"
        if self.gpus_each:
            return f"{number} workers with {self.gpus_each} GPU each"
        return f"{number} CPU workers with one torch thread each"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSize:
    """One machine of a cluster.

    Args:
        cpus: cores that Ray hands out.
        gpus: the same of GPUs.
    """

    cpus: int
    gpus: int = 0

    def holds(self, gpus_each: int) -> int:
        """How many workers with one core and `gpus_each` GPUs fit on it."""
        return min(self.cpus, self.gpus // gpus_each) if gpus_each else self.cpus


def workers_for(config: ClusterConfig, *, nodes: Sequence[NodeSize], batch_sizes: Collection[int]) -> Workers:
    """How many workers train on a cluster of `nodes`.

    By default as many as fit, and no more than the smallest batch has tasks.

    Raises:
        Failure: BAD_FLAG for numbers that fit no batch; TOO_FEW_RESOURCES with both numbers.
    """
    gpus = sum(node.gpus for node in nodes)
    each = config.gpus_per_worker if config.gpus_per_worker is not None else min(1, gpus)
    if each < 0:
        raise Failure(ExitCode.BAD_FLAG, f"--cluster.gpus-per-worker {each} is negative: give 0 or more")
    have, most = sum(node.holds(each) for node in nodes), min(batch_sizes)
    noun = f"GPU workers ({gpus} GPUs, {each} each)" if each else "CPU workers (one a core)"
    wanted = config.num_workers if config.num_workers is not None else max(1, min(have, most))
    fewest = config.min_workers
    for flag, number in (("num-workers", wanted), ("min-workers", fewest)):
        if number is not None and number < 1:
            raise Failure(ExitCode.BAD_FLAG, f"--cluster.{flag} {number} is too small: give 1 or more")
    if fewest is not None and fewest > wanted and config.num_workers is not None:
        text = f"--cluster.min-workers {fewest} is more than --cluster.num-workers {wanted}: give {wanted} or fewer"
        raise Failure(ExitCode.BAD_FLAG, text)
    flag, needed = ("num-workers", wanted) if fewest is None else ("min-workers", fewest)
    if needed > have:
        text = f"--cluster.{flag} {needed} is more than the cluster's {have} {noun}: ask for {have} or fewer"
        raise Failure(ExitCode.TOO_FEW_RESOURCES, text)
    if wanted > most:
        text = f"--cluster.num-workers {wanted} is more than the {most} tasks of a batch: give {most} or fewer"
        raise Failure(ExitCode.BAD_FLAG, text)
    return Workers(count=wanted, gpus_each=each, fewest=fewest)
