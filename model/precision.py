"""Which precision a part of the network computes in, on any device: also on those that know no autocast."""

import contextlib

import torch


def mixed_precision(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Matrix products in `dtype` inside; fp32 leaves everything as it is."""
    if dtype is torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype)


def full_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Every operation in the precision of its arguments inside, whatever is around it."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)
