"""Targets: from latent scores to class ids or to a raw regression target, with noise of every strength.

Classes are cut from one score (at values, as grades and diagnoses are, or at ranks, as quartiles are), or are the
nearest of some centres in the space of several scores (unordered classes). They are from balanced to 1 in 50. Ids are
permuted, so that they mean nothing. Noise is none, small, or as large as in tables of medicine and marketing, where
half the variance cannot be explained; how much there really is comes back with the labels.
"""

import dataclasses

import torch

from priors.class_cuts import cut_between, cut_nearest, draw_weights
from priors.draws import Draws, standardised


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """How targets are made from scores."""

    max_classes: int = 10
    """Most classes of a task."""
    binary_share: float = 0.6
    """Share of classification tasks with two classes."""
    cluster_share: float = 0.7
    """Share of tasks of three or more classes whose classes are the nearest of some centres; the others are cut."""
    binary_cluster_share: float = 0.25
    """The same share among tasks of two classes."""
    value_share: float = 0.4
    """Share of the cut tasks whose borders are values of the score; the others are cut at ranks."""
    balanced_share: float = 0.25
    """Share of tasks whose classes are meant to be equally frequent."""
    max_imbalance: float = 50.0
    """Largest ratio of the most frequent to the rarest class, as far as the rows allow it."""
    noiseless_share: float = 0.15
    """Share of tasks without noise on the score."""
    weak_share: float = 0.3
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
    bounded_share: float = 0.1
    """Share of regression targets that pile up at a bound (claims of zero, capped sums, full marks)."""
    rounded_share: float = 0.5
    """Share of regression targets that are rounded (counts, ages, grades)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labels:
    """Answers of B tasks.

    Args:
        y: [B, R] float32; class ids 0 … K − 1, every class in at least two rows, or raw regression targets.
        num_classes: [B] int64, K of at least 2, or 0 for regression.
        noise_share: [B] float32. Classification: the share of rows whose label differs from the one that the noise-free
            score has between the same borders or centres. Regression: the share of the variance of the score under the
            target that the noise-free score does not explain.
    """

    y: torch.Tensor
    num_classes: torch.Tensor
    noise_share: torch.Tensor


def draw_noise(draws: Draws, config: TargetConfig, *, count: int) -> torch.Tensor:
    """[B] standard deviation of the noise on a score of variance 1."""
    clean = 1 - config.noiseless_share - config.weak_share
    level = draws.choice((count,), weights=(config.noiseless_share, clean, config.weak_share))
    mild = draws.log_uniform((count,), low=0.03, high=0.5)
    weak = draws.uniform((count,), low=0.5, high=1.3)
    return torch.where(level == 0, 0.0, torch.where(level == 1, mild, weak))


def classify(
    draws: Draws,
    config: TargetConfig,
    *,
    scores: torch.Tensor,
    fixed: torch.Tensor,
    noise: torch.Tensor,
    own_noise: torch.Tensor | None = None,
) -> Labels:
    """Makes class labels.

    Args:
        draws: the random source.
        config: shares and limits.
        scores: [B, S, R], variance 1.
        fixed: [B, R] int64; rows of a task that starts with −1 are to be cut from the scores, the others are kept.
        noise: [B] standard deviation of the noise on the scores.
        own_noise: [B] share of the main score's variance that is noise already. What it costs in labels cannot be seen
            from here; `noise_share` counts it by a redraw of equal strength.
    """
    count, _, rows = scores.shape
    noisy = torch.addcmul(scores, noise.view(-1, 1, 1), draws.normal(scores.shape))
    quiet = _quiet(draws, scores, own_noise=own_noise)
    most = min(config.max_classes, max(2, rows // 8))
    many = draws.counts((count,), low=min(3, most), high=most)
    classes = torch.where(draws.happens((count,), share=config.binary_share), 2, many)
    weights = draw_weights(
        draws,
        classes=classes,
        most=most,
        rows=rows,
        balanced_share=config.balanced_share,
        max_imbalance=config.max_imbalance,
    )
    share = torch.where(classes == 2, config.binary_cluster_share, config.cluster_share)
    clustered = draws.uniform((count,)) < share
    labels = torch.empty((count, 2 * rows), dtype=torch.int64, device=scores.device)  # noisy, then noise-free
    near, cut = clustered.nonzero().squeeze(-1), (~clustered).nonzero().squeeze(-1)
    if len(near):
        labels[near] = cut_nearest(draws, noisy[near], quiet=quiet[near], weights=weights[near])
    if len(cut):
        labels[cut] = cut_between(
            draws, noisy[cut, 0], quiet=quiet[cut, 0], weights=weights[cut], value_share=config.value_share
        )
    kept = fixed[:, :1] >= 0
    labels = torch.where(kept, (fixed % config.max_classes).repeat(1, 2), labels)
    final = _flipped(draws, labels[:, :rows], config=config)
    spare = torch.stack([noisy[:, 0], quiet[:, 0]])
    return _relabelled(draws, final, noise_free=labels[:, rows:], spare=spare)


def _quiet(draws: Draws, scores: torch.Tensor, *, own_noise: torch.Tensor | None) -> torch.Tensor:
    """The noise-free scores; where the main score has noise of its own, one that is as far from it as the true one."""
    if own_noise is None or not bool((own_noise > 0).any()):
        return scores
    share = own_noise.nan_to_num(0.0).clamp(0, 1).unsqueeze(-1)
    quiet = scores.clone()
    quiet[:, 0] = (1 - share).sqrt() * scores[:, 0] + share.sqrt() * draws.normal(scores[:, 0].shape)
    return quiet


def _flipped(draws: Draws, labels: torch.Tensor, *, config: TargetConfig) -> torch.Tensor:
    """Replaces some labels of some tasks by those of other rows."""
    count, rows = labels.shape
    rate = draws.uniform((count, 1), high=config.max_flip) * draws.happens((count, 1), share=config.flip_share)
    other = labels.gather(1, draws.integers((count, rows), low=0, high=rows - 1))
    return torch.where(draws.uniform((count, rows)) < rate, other, labels)


def _relabelled(draws: Draws, labels: torch.Tensor, *, noise_free: torch.Tensor, spare: torch.Tensor) -> Labels:
    """Permutes ids, merges classes of fewer than two rows into the largest, and leaves two classes at least.

    A task that would keep one class only is cut at the median rank of its score instead (at random where that is
    constant); `spare` [2, B, R] holds the noisy and the noise-free score.
    """
    count, rows = labels.shape
    most = int(labels.max().maximum(noise_free.max())) + 2
    sizes = torch.zeros((count, most), dtype=torch.int64, device=labels.device)
    sizes.scatter_add_(1, labels, torch.ones_like(labels))
    single = ((sizes >= 2).sum(-1) < 2).nonzero().squeeze(-1)
    if len(single):
        ties = draws.normal((len(single), rows)).mul_(1e-4)
        scores = torch.stack([spare[0, single] + ties, spare[1, single]])
        halves = (scores.argsort(-1).argsort(-1) >= rows // 2).long()
        labels[single], noise_free[single] = halves
        sizes[single] = 0
        sizes[single, 0], sizes[single, 1] = rows // 2, rows - rows // 2
    kept = sizes >= 2
    fresh = draws.uniform((count, most)).masked_fill_(~kept, 2.0).argsort(-1).argsort(-1)
    fresh = torch.where(kept, fresh, fresh.gather(1, sizes.argmax(-1, keepdim=True)))
    y = fresh.gather(1, labels)
    wrong = (y != fresh.gather(1, noise_free)).float().mean(-1)
    return Labels(y=y.float(), num_classes=kept.sum(-1), noise_share=wrong)


def regress(
    draws: Draws,
    config: TargetConfig,
    *,
    scores: torch.Tensor,
    noise: torch.Tensor,
    own_noise: torch.Tensor | None = None,
) -> Labels:
    """Makes regression targets in raw units, with at least two distinct values in every task.

    Args:
        draws: the random source.
        config: shares and limits.
        scores: [B, S, R], variance 1; the first carries the mean, the last the spread of heteroscedastic noise.
        noise: [B] standard deviation of the noise.
        own_noise: [B] share of the main score's variance that is noise already.
    """
    count, _, rows = scores.shape
    shock = _shock(draws, config, shape=(count, rows))
    uneven = draws.uniform((count, 1), high=1.2) * draws.happens((count, 1), share=config.uneven_noise_share)
    loud = noise.unsqueeze(-1) * torch.exp(uneven * scores[:, -1].clamp(-3, 3))
    score = standardised(torch.addcmul(scores[:, 0], loud, shock))
    explained = (score * scores[:, 0]).mean(-1).square().clamp(max=1.0)
    y = _recorded(draws, config, score=score)
    flat = (y.amax(-1) - y.amin(-1) < 1e-3).nonzero().squeeze(-1)
    if len(flat):
        y[flat], explained[flat] = shock[flat], 0.0
    if own_noise is not None:
        explained = explained * (1 - own_noise.nan_to_num(0.0))
    unit = draws.log_uniform((count, 1), low=1e-2, high=1e4)
    offset = draws.normal((count, 1)) * 3 * draws.happens((count, 1), share=0.7)
    return Labels(
        y=(y + offset) * unit,
        num_classes=torch.zeros(count, dtype=torch.int64, device=scores.device),
        noise_share=1 - explained,
    )


def _shock(draws: Draws, config: TargetConfig, *, shape: tuple[int, int]) -> torch.Tensor:
    """[B, R] normal, or Student's t of 3 degrees in some tasks."""
    shock = draws.normal(shape)
    long_tail = draws.happens(shape[:1], share=config.long_tail_share).nonzero().squeeze(-1)
    if len(long_tail):
        divisor = draws.normal((3, len(long_tail), shape[1])).square().mean(0).clamp(min=0.02).sqrt()
        shock[long_tail] = shock[long_tail] / divisor / 1.7
    return shock


def _recorded(draws: Draws, config: TargetConfig, *, score: torch.Tensor) -> torch.Tensor:
    """[B, R] the score as it is written down: skewed, cut off at a bound, rounded, or as it is."""
    count, _ = score.shape
    skewed, bounded, rounded = draws.uniform((3, count, 1)) < draws.tensor(
        [config.skewed_share, config.bounded_share, config.rounded_share]
    ).view(3, 1, 1)
    steep = draws.uniform((count, 1), low=0.3, high=1.1)
    score = torch.where(skewed, torch.expm1(steep * score.clamp(max=5.0)), score)
    floor = torch.where(bounded, draws.uniform((count, 1), low=-1.5, high=0.5), -torch.inf)
    side = torch.where(draws.happens((count, 1), share=0.7), 1.0, -1.0)
    score = (side * score).maximum(floor) * side
    step = draws.log_uniform((count, 1), low=0.004, high=0.5)
    return torch.where(rounded, torch.round(score / step) * step, score)
