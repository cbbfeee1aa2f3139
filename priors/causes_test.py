"""Tests of priors.causes: how raw columns hang together."""

import dataclasses

import torch

from priors.causes import CauseConfig, draw_causes
from priors.draws import Draws

ALONE = CauseConfig(independent_share=1.0, clump_share=0.0, duplicate_share=0.0)


def correlations(config: CauseConfig) -> torch.Tensor:
    """[B, pairs] absolute correlation of every pair of six columns."""
    raw = draw_causes(Draws(0), config, count=64, causes=6, rows=512)
    assert raw.shape == (64, 6, 512) and raw.isfinite().all()
    assert raw.mean(-1).abs().max() < 1e-4 and (raw.square().mean(-1) - 1).abs().max() < 1e-3
    matrix = (raw @ raw.transpose(1, 2) / 512).abs()
    upper = torch.ones(6, 6).triu(1).bool()
    return matrix[:, upper]


def test_independent_columns_are_independent() -> None:
    assert correlations(ALONE).mean() < 0.06


def test_drivers_make_columns_correlated_and_every_task_differs() -> None:
    found = correlations(dataclasses.replace(ALONE, independent_share=0.0)).mean(-1)
    assert found.median() > 0.2 and found.std() > 0.08


def test_drivers_of_size_push_all_columns_the_same_way() -> None:
    config = dataclasses.replace(ALONE, independent_share=0.0, size_share=1.0, max_factors=1)
    raw = draw_causes(Draws(0), config, count=64, causes=6, rows=512)
    signed = (raw @ raw.transpose(1, 2) / 512)[:, torch.ones(6, 6).triu(1).bool()]
    assert (signed[signed.abs() > 0.15] > 0).float().mean() > 0.75


def test_copies_are_nearly_equal_columns() -> None:
    copied = correlations(dataclasses.replace(ALONE, duplicate_share=1.0, max_duplicates=0.9))
    assert (copied.amax(-1) > 0.8).float().mean() > 0.5
    assert (correlations(ALONE).amax(-1) > 0.8).sum() == 0


def test_clumps_make_rows_fall_into_groups() -> None:
    """Along the main direction of many clumped tasks rows lie in separate heaps: the kurtosis is small."""
    shares = []
    for clump in (0.0, 1.0):
        config = dataclasses.replace(ALONE, independent_share=0.0, clump_share=clump)
        raw = draw_causes(Draws(0), config, count=300, causes=8, rows=300)
        main = torch.linalg.svd(raw, full_matrices=False).Vh[:, 0] * 300**0.5
        shares.append(((main**4).mean(-1) < 2).float().mean())
    assert shares[1] > 2 * shares[0]
