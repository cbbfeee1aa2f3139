"""Class cuts: from scores to classes, by borders of one score or by the nearest of some centres.

Every cut is made on noisy scores and applied to the noise-free scores too, so that the effect of the noise is known.
"""

import torch

from priors.draws import Draws, below

_ROWS_OF_SMALLEST = 2.5  # that the smallest class is meant to have at least


def draw_weights(
    draws: Draws, *, classes: torch.Tensor, most: int, rows: int, balanced_share: float, max_imbalance: float
) -> torch.Tensor:
    """How frequent each class is meant to be: 1 for one class, 1/ratio for another, the rest between.

    Args:
        draws: the random source.
        classes: [B] K of each task, at least 2.
        most: largest K.
        rows: R; the ratio stays so small that the rarest class has a few rows.
        balanced_share: share of tasks of ratio 1.
        max_imbalance: largest ratio (log-uniform from 1).

    Returns:
        [B, most]; 0 from K on.
    """
    count = len(classes)
    real = below(classes, size=most)
    keys = draws.uniform((count, most))
    low = keys.masked_fill(~real, 2.0).amin(-1, keepdim=True)
    high = keys.masked_fill(~real, -1.0).amax(-1, keepdim=True)
    limit = (rows / (_ROWS_OF_SMALLEST * classes)).clamp(1.0, max_imbalance)
    ratio = limit ** (draws.uniform((count,)) * ~draws.happens((count,), share=balanced_share))
    place = ((keys - low) / (high - low).add_(1e-9)).clamp_(0, 1)
    return ratio.unsqueeze(-1).pow(-place) * real


def cut_between(
    draws: Draws, noisy: torch.Tensor, *, quiet: torch.Tensor, weights: torch.Tensor, value_share: float
) -> torch.Tensor:
    """Counts the borders below each score.

    Args:
        draws: the random source.
        noisy: [B, R] scores that the borders are placed on.
        quiet: [B, R] scores that are cut at the same borders.
        weights: [B, K] what the shares of the classes follow, or the widths of the classes in units of the score.
        value_share: share of tasks in which it is the widths.

    Returns:
        [B, 2R] int64, the noisy rows and then the quiet ones.
    """
    count, rows = noisy.shape
    by_value = draws.uniform((count, 1)) < value_share
    ordered = noisy.sort(-1).values
    shares = (weights.cumsum(-1) / weights.sum(-1, keepdim=True))[:, :-1]
    spots = (shares * rows).long().clamp(max=rows - 1)
    tail = draws.uniform((count, 1), high=0.15).mul(rows).long()
    ends = ordered.gather(1, torch.cat([tail, rows - 1 - tail], dim=1))
    values = ends[:, :1] + shares * (ends[:, 1:] - ends[:, :1])
    borders = torch.where(by_value, values, ordered.gather(1, spots))
    borders = borders.masked_fill(weights[:, 1:] == 0, torch.inf)
    return torch.searchsorted(borders, torch.cat([noisy, quiet], dim=1), right=True)


def cut_nearest(draws: Draws, noisy: torch.Tensor, *, quiet: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Index of the nearest centre; centres are rows of the task.

    Args:
        draws: the random source.
        noisy: [B, S, R] scores that centres are taken from.
        quiet: [B, S, R] scores that are compared with the same centres.
        weights: [B, K] enlarge the centres' cells.

    Returns:
        [B, 2R] int64, the noisy rows and then the quiet ones.
    """
    count, size, rows = noisy.shape
    importance = draws.normal((count, size, 1)).mul_(0.7).exp_()
    importance[:, 1:] *= draws.happens((count, 1, 1), share=0.8)
    chosen = draws.integers((count, 1, weights.shape[1]), low=0, high=rows - 1).expand(-1, size, -1)
    centres = noisy.gather(2, chosen) * importance
    points = torch.cat([noisy, quiet], dim=-1).mul_(importance)
    bias = weights.log().sub_(centres.square().sum(1)).clamp_(min=-1e6).unsqueeze(-1)
    return torch.baddbmm(bias, centres.transpose(1, 2), points, alpha=2).argmax(1)
