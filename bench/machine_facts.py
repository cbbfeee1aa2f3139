"""What figures were measured on, as every bench writes it down."""

import os
import platform
from typing import Any

import torch


def machine_facts() -> dict[str, Any]:
    """This machine as JSON values: cores, what its CPU can do, GPU or None, versions, and how busy it was just now."""
    return {
        "cores": os.cpu_count(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
