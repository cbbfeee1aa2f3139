"""What a family with a known posterior hands on: finished tables and answers, and nothing left to disturb.

Other families make a `Draft`, whose target the mixture cuts, scales and disturbs and whose columns get blemishes. A
family whose Bayes predictor is exact (`eval/bayes.py`) must be written down as it was drawn, its own noise inside.
"""

import dataclasses
import json

import numpy as np
import torch

from priors.draws import Draws
from priors.group import TaskGroup
from priors.task import TaskKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactDraft:
    """B finished tasks.

    Args:
        x: [B, R, C] float32.
        y: [B, R] float32; class ids 0..K-1, of which some may be in no row, or targets.
        column_kinds: [B, C] int8, values of `ColumnKind`.
        level_counts: [B, C] int32; 0 for a number.
        num_classes: [B] int32; K, or 0 for regression.
        facts: drawn parameters worth keeping, name → [B] array. No predictor reads them.
    """

    x: np.ndarray
    y: np.ndarray
    column_kinds: np.ndarray
    level_counts: np.ndarray
    num_classes: np.ndarray
    facts: dict[str, np.ndarray]

    def group(self, *, family: str, kind: TaskKind, seed: int) -> TaskGroup:
        """The tasks as a group of one family."""
        facts = {name: values.tolist() for name, values in self.facts.items()}
        notes = [{name: values[i] for name, values in facts.items()} | {"position": i} for i in range(len(self.y))]
        return TaskGroup(
            x=self.x,
            y=self.y,
            column_kinds=self.column_kinds,
            level_counts=self.level_counts,
            num_classes=self.num_classes,
            families=(family,) * len(self.y),
            seeds=np.full(len(self.y), seed, np.int64),
            parameters=tuple(json.dumps(note, sort_keys=True) for note in notes),
            kind=kind,
        )


def numbers_draft(x: np.ndarray, y: np.ndarray, *, facts: dict[str, np.ndarray]) -> ExactDraft:
    """A regression draft of number columns: x [B, R, C], y [B, R]."""
    count, _, features = x.shape
    return ExactDraft(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        column_kinds=np.zeros((count, features), np.int8),
        level_counts=np.zeros((count, features), np.int32),
        num_classes=np.zeros(count, np.int32),
        facts=facts,
    )


def numpy_generator(draws: Draws) -> np.random.Generator:
    """A numpy generator that follows from the state of `draws`: exact families draw gammas in double precision."""
    return np.random.default_rng(draws.integers((4,), low=0, high=2**31 - 1).tolist())


def normal_draws(draws: Draws, covariance: np.ndarray) -> np.ndarray:
    """[B, R] from N(0, covariance [B, R, R]), which must be positive definite."""
    factor = torch.linalg.cholesky(torch.from_numpy(covariance)).numpy()
    white = numpy_generator(draws).standard_normal(covariance.shape[:2])
    return np.einsum("brs,bs->br", factor, white)


def drawn_classes(generator: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """[...] int64 class ids drawn from probabilities [..., K]."""
    spots = generator.uniform(size=probabilities.shape[:-1])
    below = probabilities.cumsum(-1)[..., :-1] <= spots[..., None]
    return below.sum(-1)


def dirichlet(generator: np.random.Generator, *, concentration: np.ndarray, real: np.ndarray) -> np.ndarray:
    """[..., K] class probabilities from a symmetric Dirichlet over the classes that `real` [..., K] marks.

    Args:
        generator: of the draws.
        concentration: [..., 1], broadcast to the shape of `real`; the parameter of every class.
        real: bool; the other classes get 0.
    """
    alpha = np.broadcast_to(concentration, real.shape)
    logs = np.log(generator.standard_gamma(alpha + 1)) + np.log1p(-generator.uniform(size=real.shape)) / alpha
    logs = np.where(real, logs, -np.inf)  # of Gamma(α) = Gamma(α + 1)·U^(1/α), which a small α makes too small for fp64
    shares = np.exp(logs - logs.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)
