"""Targets: from latent scores to class ids or to a raw regression target, with noise of every strength.

Classes are cut from one score (by value or rank), or are the nearest of some centres in the space of several scores
(unordered classes). Ids are permuted, so that they mean nothing. Noise is none, small, or as large as in tables of
medicine and marketing, where half the variance cannot be explained.
"""

import dataclasses

import torch

from priors.draws import Draws, below, standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """How targets are made from scores."""

    max_classes: int = 10
    """Most classes of a task."""
    binary_share: float = 0.6
    """Share of classification tasks with two classes."""
    noiseless_share: float = 0.25
    """Share of tasks without noise on the score."""
    weak_share: float = 0.2
    """Share of tasks whose noise is about as large as the signal."""
    flip_share: float = 0.15
    """Share of classification tasks in which some labels are replaced at random."""
    max_flip: float = 0.15
    """Largest share of replaced labels in such a task."""
    uneven_noise_share: float = 0.25
    """Share of regression tasks whose noise varies with a latent score (heteroscedastic)."""
    long_tail_share: float = 0.15
    """Share of regression tasks whose noise has long tails (Student's t)."""
    skewed_share: float = 0.2
    """Share of regression targets that are exponentials of a score (prices, concentrations)."""
    rounded_share: float = 0.5
    """Share of regression targets that are rounded (counts, ages, grades)."""


def draw_noise(draws: Draws, config: TargetConfig, *, count: int) -> torch.Tensor:
    """[B] standard deviation of the noise on a score of variance 1."""
    clean = 1 - config.noiseless_share - config.weak_share
    level = draws.choice((count,), weights=(config.noiseless_share, clean, config.weak_share))
    mild = draws.log_uniform((count,), low=0.03, high=0.5)
    weak = draws.uniform((count,), low=0.5, high=1.3)
    return torch.where(level == 0, 0.0, torch.where(level == 1, mild, weak))


def classify(
    draws: Draws, config: TargetConfig, *, scores: torch.Tensor, fixed: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes class labels.

    Args:
        draws: the random source.
        config: shares and limits.
        scores: [B, S, R], variance 1.
        fixed: [B, R] int64; rows of a task that starts with −1 are to be cut from the scores, the others are kept.
        noise: [B] standard deviation of the noise on the scores.

    Returns:
        y [B, R] int64 in 0 … K−1, every class in at least two rows; K [B] int64, at least 2.
    """
    count, _, rows = scores.shape
    noisy = scores + noise.view(-1, 1, 1) * draws.normal(scores.shape)
    most = min(config.max_classes, max(2, rows // 8))
    many = draws.counts((count,), low=3, high=max(3, most)).clamp(max=most)
    classes = torch.where(draws.happens((count,), share=config.binary_share), 2, many)
    spread = draws.uniform((count, 1), high=1.2) * draws.happens((count, 1), share=0.8)
    weights = (draws.normal((count, most)) * spread).exp() * below(classes, size=most)
    by_value = _cut(noisy[:, 0], weights=weights)
    by_centre = _nearest(draws, noisy, weights=weights)
    ordered = draws.uniform((count, 1)) < torch.where(classes == 2, 0.75, 0.3).unsqueeze(-1)
    labels = torch.where(ordered, by_value, by_centre)
    labels = torch.where(fixed[:, :1] >= 0, fixed % config.max_classes, labels)
    labels = _flipped(draws, labels, config=config)
    return _relabelled(draws, labels, spare=noisy[:, 0])


def _cut(score: torch.Tensor, *, weights: torch.Tensor) -> torch.Tensor:
    """[B, R] number of borders below the score; class shares follow `weights` [B, K]."""
    shares = weights.cumsum(-1) / weights.sum(-1, keepdim=True)
    rows = score.shape[-1]
    spots = (shares[:, :-1] * rows).long().clamp(max=rows - 1)
    ordered = score.sort(-1).values
    borders = ordered.gather(1, spots).masked_fill(weights[:, 1:] == 0, torch.inf)
    return torch.searchsorted(borders.contiguous(), score.contiguous(), right=True)


def _nearest(draws: Draws, scores: torch.Tensor, *, weights: torch.Tensor) -> torch.Tensor:
    """[B, R] index of the nearest centre; centres are rows of the task, and `weights` [B, K] enlarge their cells."""
    count, size, rows = scores.shape
    importance = draws.normal((count, size, 1)).mul(0.7).exp()
    importance[:, 1:] *= draws.happens((count, 1, 1), share=0.8)
    points = scores * importance
    chosen = draws.integers((count, 1, weights.shape[1]), low=0, high=rows - 1).expand(-1, size, -1)
    centres = points.gather(2, chosen)
    distance = torch.cdist(points.transpose(1, 2), centres.transpose(1, 2)).square()
    return (distance - weights.log().clamp(min=-1e6).unsqueeze(1)).argmin(-1)


def _flipped(draws: Draws, labels: torch.Tensor, *, config: TargetConfig) -> torch.Tensor:
    """Replaces some labels of some tasks by those of other rows."""
    count, rows = labels.shape
    rate = draws.uniform((count, 1), high=config.max_flip) * draws.happens((count, 1), share=config.flip_share)
    other = labels.gather(1, draws.integers((count, rows), low=0, high=rows - 1))
    return torch.where(draws.uniform((count, rows)) < rate, other, labels)


def _relabelled(draws: Draws, labels: torch.Tensor, *, spare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Permutes ids, merges classes of fewer than two rows into the largest, and leaves two classes at least.

    A task that would keep one class only is cut at the median rank of `spare` [B, R] instead.
    """
    count, rows = labels.shape
    most = int(labels.max()) + 2
    sizes = torch.zeros((count, most), dtype=torch.int64).scatter_add_(1, labels, torch.ones_like(labels))
    single = (sizes >= 2).sum(-1) < 2
    if single.any():
        halves = (spare[single].argsort(-1).argsort(-1) >= rows // 2).long()
        labels = labels.clone()
        labels[single] = halves
        sizes[single] = 0
        sizes[single, 0], sizes[single, 1] = rows // 2, rows - rows // 2
    kept = sizes >= 2
    order = draws.uniform((count, most)).masked_fill(~kept, 2.0).argsort(-1)
    fresh = order.argsort(-1)
    largest = sizes.argmax(-1, keepdim=True)
    fresh = torch.where(kept, fresh, fresh.gather(1, largest))
    return fresh.gather(1, labels), kept.sum(-1)


def regress(draws: Draws, config: TargetConfig, *, scores: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Makes regression targets in raw units.

    Args:
        draws: the random source.
        config: shares and limits.
        scores: [B, S, R], variance 1; the first carries the mean, the last the spread of heteroscedastic noise.
        noise: [B] standard deviation of the noise.

    Returns:
        [B, R] float32 with at least two distinct values in every task.
    """
    count, _, rows = scores.shape
    uneven = draws.uniform((count, 1), high=1.2) * draws.happens((count, 1), share=config.uneven_noise_share)
    long_tail = draws.happens((count, 1), share=config.long_tail_share)
    shock = draws.normal((count, rows))
    divisor = draws.normal((3, count, rows)).square().mean(0).clamp(min=0.02).sqrt()  # Student's t, 3 degrees
    shock = torch.where(long_tail, shock / divisor / 1.7, shock)
    score = scores[:, 0] + noise.unsqueeze(-1) * torch.exp(uneven * scores[:, -1].clamp(-3, 3)) * shock
    score = standardised(score)
    steep = draws.uniform((count, 1), low=0.3, high=1.1)
    skewed = draws.happens((count, 1), share=config.skewed_share)
    score = torch.where(skewed, torch.expm1(steep * score.clamp(max=5.0)), score)
    step = draws.log_uniform((count, 1), low=0.004, high=0.5)
    rounded = draws.happens((count, 1), share=config.rounded_share)
    score = torch.where(rounded, torch.round(score / step) * step, score)
    flat = (score.amax(-1) - score.amin(-1)) < 1e-3
    score = torch.where(flat.unsqueeze(-1), shock, score)
    unit = draws.log_uniform((count, 1), low=1e-2, high=1e4)
    offset = draws.normal((count, 1)) * 3 * draws.happens((count, 1), share=0.7)
    return (score + offset) * unit
