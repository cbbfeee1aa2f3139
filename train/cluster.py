"""Where training runs and on how many processes: configuration without Ray, so that `--help` stays quick."""

import dataclasses


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
