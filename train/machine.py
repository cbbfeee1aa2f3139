"""What the machine of the first worker is doing: processor, memory, disk and GPU, as records of a training.

Names are those of MLflow's own system metrics, so that its page shows them. MLflow's sampler would watch the process
that started the job, which on a cluster is not where training runs, and would send past the spool (K1).
"""

import contextlib
import pathlib
import time

import psutil
import torch

PREFIX = "system/"
_MEGABYTE = 10**6


class Machine:
    """Samples the machine that this process runs on.

    Args:
        device: on which this process computes.
        folder: on whose disk its files lie.
        interval_seconds: between two samples, at least.
    """

    def __init__(self, device: torch.device, *, folder: pathlib.Path, interval_seconds: float = 10.0) -> None:
        self._device, self._folder, self._interval = device, folder, interval_seconds
        self._process = psutil.Process()
        self._sampled = time.monotonic()
        psutil.cpu_percent(), self._process.cpu_percent()  # both measure since they were last called

    def sample(self) -> dict[str, float]:
        """`system/...` figures, empty when the last ones are not old enough."""
        if time.monotonic() - self._sampled < self._interval:
            return {}
        self._sampled = time.monotonic()
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(self._folder))
        found = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "process_cpu_utilization_percentage": self._process.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / _MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_usage_megabytes": self._process.memory_info().rss / _MEGABYTE,
            "disk_usage_percentage": disk.percent,
            "disk_available_megabytes": disk.free / _MEGABYTE,
        }
        if self._device.type == "cuda":
            found |= self._gpu()
        return {f"{PREFIX}{name}": round(value, 1) for name, value in found.items()}

    def _gpu(self) -> dict[str, float]:
        """Memory of the device, all processes counted; its utilisation where the library that tells it is there."""
        index = self._device.index or 0
        free, total = torch.cuda.mem_get_info(self._device)
        found = {
            f"gpu_{index}_memory_usage_megabytes": (total - free) / _MEGABYTE,
            f"gpu_{index}_memory_usage_percentage": 100 * (total - free) / total,
            f"gpu_{index}_memory_allocated_megabytes": torch.cuda.memory_allocated(self._device) / _MEGABYTE,
        }
        with contextlib.suppress(ModuleNotFoundError, RuntimeError):
            found[f"gpu_{index}_utilization_percentage"] = float(torch.cuda.utilization(self._device))
        return found
