"""Tests of where matrix products are rounded."""

import torch

from model.precision import full_precision, mixed_precision


def _product(device: str = "cpu") -> torch.dtype:
    ones = torch.ones(3, 3, device=device)
    return (ones @ ones).dtype


def test_products_are_narrow_inside_and_wide_in_an_island() -> None:
    cpu = torch.device("cpu")
    with mixed_precision(cpu, torch.bfloat16):
        assert _product() is torch.bfloat16
        with full_precision(cpu):
            assert _product() is torch.float32
        assert _product() is torch.bfloat16
    with mixed_precision(cpu, torch.float32):
        assert _product() is torch.float32


def test_a_device_without_autocast_has_an_island_too() -> None:
    meta = torch.device("meta")
    with mixed_precision(meta, torch.float32), full_precision(meta):
        assert _product("meta") is torch.float32
